"""Giving a site another key, after a box was stolen that had it.

The box with the site's authority makes the key, and seals it for each member into the database. The
members take it when they follow that change, at their next start at the latest.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from egressd.app import key_envelope, site_key
from egressd.app.config import Config
from egressd.app.member_files import AUTHORITY, MEMBER_KEY, folder_of
from egressd.app.site_authority import SiteAuthority
from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.files import replace_durably
from egressd.store.postgres.site_keys import KeyHolder, Rotation
from egressd.store.sealing import SiteSeal

_TAKEN_S: Final = 15.0
"""Seconds to wait for members that run."""
_LOOK_S: Final = 0.2


def rotate(settings: Config, owner: str) -> list[str]:
    """Replace the site's key, and wait for the members that run. Return the names of those that do
    not have it. `owner` connects as the database's owner. Raises EgressdError; then the site has
    the key that it had, unless the action is to write or to watch.
    """
    name = settings.cluster.site
    authority = SiteAuthority.of_folder(folder_of(settings))
    current, key = site_key.read(settings), site_key.new()
    old = SiteSeal(current)
    kept = folder_of(settings) / f"site-key.{old.key_id}"
    with reported(f"write {kept}"):
        replace_durably(kept, base64.b64encode(current))
    rotation = Rotation(owner, name)
    batch = rotation.rotate(
        old=old,
        new=SiteSeal(key),
        by=settings.cluster.member,
        envelope=partial(_sealed_for, authority, key, old.key_id, name),
    )
    given_up = time.monotonic() + _TAKEN_S
    while True:
        running, others = rotation.without(batch)
        if not running or time.monotonic() > given_up:
            break
        time.sleep(_LOOK_S)
    # The service of this box takes it as the others do, but it may not run.
    if site_key.read(settings) != key:
        site_key.keep(settings, key)
    return sorted({*running, *others} - {settings.cluster.member})


def _sealed_for(
    authority: SiteAuthority, key: bytes, old: str, name: str, holder: KeyHolder
) -> str:
    """Return the new key sealed for a member. `old` is the id of the key that it replaces."""
    earlier = _replaced_by(authority, holder, old)
    if not authority.has_issued(holder.certificate, holder.role):
        raise Failed(
            f"give the site {name} another key",
            f"the certificate of the member {holder.name} is not of the site's authority: it must"
            " join anew",
        )
    return key_envelope.sealed(
        authority, holder.certificate, key, site=name, replaces=(*earlier, old)
    )


def _replaced_by(authority: SiteAuthority, holder: KeyHolder, current: str) -> tuple[str, ...]:
    """Return the ids of the keys that the site's current one has replaced, as far as this member
    may have one of them: it may not have run since.
    """
    if not holder.envelope:
        return ()
    with suppress(Failed):
        before = key_envelope.signed(holder.envelope, authority.pem)
        if before.key_id == current:
            return before.replaces
    return ()


def opened_here(settings: Config, envelope: str) -> bytes:
    """Return the site's new key from this member's envelope. Raises Failed."""
    authority, private_key = _read(settings, AUTHORITY, MEMBER_KEY)
    own = site_key.read(settings)
    if key_envelope.signed(envelope, authority).key_id == SiteSeal(own).key_id:
        return own  # written by `rotate`, on the box where it was called
    return key_envelope.opened(
        envelope, authority, private_key, site=settings.cluster.site, own=SiteSeal(own).key_id
    )


def _read(settings: Config, *names: str) -> Iterator[bytes]:
    for name in names:
        path = settings.api_data / name
        with reported(f"read {path}"):
            yield path.read_bytes()
