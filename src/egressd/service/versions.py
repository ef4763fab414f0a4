"""Versions of stored objects, by which a change is refused that was made against an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from egressd.model.errors import Outdated
from egressd.model.faults import Fault

D = TypeVar("D", bound=msgspec.Struct)


def tag_of(stored: msgspec.Struct) -> str:
    """Return the entity tag of an object as it is stored (RFC 9110, 8.8.3). It is another one after
    each change, and the same at all members of a site.
    """
    return entity_tag(msgspec.json.encode(stored))


def entity_tag(content: bytes) -> str:
    """Return the entity tag of content, in its quotes."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def demand(stored: msgspec.Struct, tags: Collection[str], outdated: Fault) -> None:
    """Raise Outdated, with this fault, unless `tags` name the object's version; no tags name every
    one. It is called inside of a change: no other one comes between the check and the edit.
    """
    if tags and tag_of(stored) not in tags:
        raise Outdated(outdated)


def revised(draft: type[D], stored: msgspec.Struct, fields: Mapping[str, Any]) -> D:
    """Return a draft with `fields`, and all others as they are stored."""
    kept = {name: getattr(stored, name) for name in draft.__struct_fields__}
    return draft(**{**kept, **fields})
