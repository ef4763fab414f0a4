"""From what a row or a share link says to a node's draft: the one way in for all of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from egressd.formats.amounts import port_ranges
from egressd.formats.config_json import FIELD, SETTINGS_KEYS, NodeConfig, read_config
from egressd.formats.entries import PROTOCOLS
from egressd.formats.hosts import join_host_port
from egressd.formats.json_text import write_object
from egressd.formats.rows import Unreadable
from egressd.model.drafts import NodeDraft
from egressd.model.errors import Invalid, told
from egressd.model.names import NODE_NAME_MAX, node_name_problem

_DECOMPOSED_MAX: Final = 4 * NODE_NAME_MAX
"""Characters of a name that may still have `NODE_NAME_MAX` in NFC: each has up to four in NFD
(UAX #15, 9). Of a longer text, putting its marks in order can take minutes."""


class ParsedNode(msgspec.Struct, frozen=True):
    """A node as its text says it, unchecked. ``name`` is empty when the text gives none."""

    protocol: str
    config: dict[str, Any]
    name: str = ""


def draft_of(parsed: ParsedNode, group: str, names: Iterator[str] | None) -> NodeDraft:
    """The checked draft, named by the next of `names` when there are any.

    Without, its own name; a missing one becomes ``server:port``, if that is not too long. Raises
    Unreadable.
    """
    if parsed.protocol not in PROTOCOLS:
        raise Unreadable(f"type must be one of {', '.join(PROTOCOLS)}")
    for key in SETTINGS_KEYS:
        if parsed.config.get(key):
            raise Unreadable(f"{key} must not be given in an import: set it on the node afterwards")
    text = write_object(parsed.config)
    try:
        config = read_config(parsed.protocol, text)
    except Invalid as invalid:
        reasons = [problem.removeprefix(f"{FIELD}.") for problem in invalid.problems]
        raise Unreadable(told(reasons)) from None
    if names is not None:
        name = next(names)
    else:
        # Programs of some systems write names decomposed: it is the same name.
        own = parsed.name.strip()
        if len(own) <= _DECOMPOSED_MAX:
            own = unicodedata.normalize("NFC", own)
        name = own or _address(config)
        if not own and len(name) > NODE_NAME_MAX:
            raise Unreadable(f"name must be given: server:port has over {NODE_NAME_MAX} characters")
        if problem := node_name_problem(name):
            raise Unreadable(problem)
    return NodeDraft(name=name, protocol=parsed.protocol, config_json=text, group=group)


def _address(config: NodeConfig) -> str:
    port = config.fields.get("port") or port_ranges(config.fields["ports"])[0][0]
    return join_host_port(config.fields["server"], port)
