"""Joining a site, on the box that is not a member yet: the other side of `inviting`.

Neither side has changed anything unless both say so.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from psycopg import conninfo as libpq

from egressd import __version__
from egressd.app import accounts, site_authority, site_key
from egressd.app.config import Cluster, Config
from egressd.app.invitation_texts import JoinAnswer, JoinRequest, Offer, opened, sealed
from egressd.app.join_token import JoinToken
from egressd.app.member_files import AUTHORITY, MEMBER_CERTIFICATE, MEMBER_KEY, MemberFiles
from egressd.app.surroundings import roles_of
from egressd.license.device import this_device
from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.database import Database
from egressd.store.files import prepare_directory
from egressd.store.postgres.connection import check_server, engine_on, standing
from egressd.store.postgres.invitations import JOINED, Guest
from egressd.store.sealing import SiteSeal

_LOOK_S: Final = 0.3


def join(
    settings: Config,
    token: JoinToken,
    *,
    backup: Path,
    permit: Callable[[], None],
    announce: Callable[[str], None],
) -> Cluster:
    """Make this box a member, and return the section of its configuration file.

    If it has a configuration of its own, `permit` is called, and raises to keep it; then it is
    backed up to `backup`. Raises EgressdError; then nothing has changed here or at the site.
    """
    action = f"join the site {token.site}"
    if settings.cluster.database:
        raise Failed(
            action,
            f"this box is a member of the site {settings.cluster.site}: it must leave that first",
        )
    user = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (user.pw_uid, user.pw_gid))
    files = MemberFiles(settings.api_data)
    files.refuse_other(action)
    device = this_device()
    try:
        files.write(AUTHORITY, site_authority.pem_of_der(token.authority))
        place = f"the database of the site {token.site}"
        given = {"sslmode": "verify-full", "sslrootcert": str(files.path(AUTHORITY))}
        database = libpq.make_conninfo(token.database, **given)
        guest = Guest(
            libpq.make_conninfo(database, user=token.role, password=token.password), place
        )
        with guest.connected():
            guest.check()
            offer = opened(token, "offer", guest.read().offer, Offer)
            _compare(action, settings, offer)
            if Database(settings.api_data).path.exists():
                permit()
                files.give_up_own(backup)
            files.need_lease()
            name = offer.member or settings.cluster.member
            with _ending(guest):
                cluster = _become(
                    token,
                    guest,
                    files,
                    database=database,
                    name=name,
                    device=device,
                    announce=announce,
                )
            guest.end(JOINED)
    except BaseException:
        files.remove()
        raise
    return cluster


@contextmanager
def _ending(guest: Guest) -> Iterator[None]:
    """Tell the site why this box does not join, if the block fails."""
    try:
        yield
    except BaseException as error:
        with suppress(Failed):
            guest.end(str(error) or "it was interrupted")
        raise


def _become(
    token: JoinToken,
    guest: Guest,
    files: MemberFiles,
    *,
    database: str,
    name: str,
    device: str,
    announce: Callable[[str], None],
) -> Cluster:
    action = f"join the site {token.site}"
    key, request = site_authority.new_request()
    files.write(MEMBER_KEY, key)
    asked = JoinRequest(
        member=name, device=device, version=__version__, certificate_request=request
    )
    guest.ask(sealed(token, "request", asked))
    announce("waiting for the box that invites")
    while not (answer := guest.read().answer):
        time.sleep(_LOOK_S)
    admission = opened(token, "answer", answer, JoinAnswer)
    if admission.refusal:
        raise Failed(action, admission.refusal)
    files.write(MEMBER_CERTIFICATE, admission.certificate.encode())
    files.write(site_key.NAME, admission.site_key.encode())
    own = libpq.make_conninfo(
        database,
        user=admission.role,
        sslcert=str(files.path(MEMBER_CERTIFICATE)),
        sslkey=str(files.path(MEMBER_KEY)),
    )
    cluster = Cluster(database=own, site=token.site, member=name)
    verify(cluster, SiteSeal(base64.b64decode(admission.site_key)))
    return cluster


def verify(cluster: Cluster, seal: SiteSeal) -> None:
    """Raise Failed unless this box can use the site's database as its member."""
    place = f"the database of the site {cluster.site}"
    with (
        reported(f"use {place}"),
        engine_on(cluster.database).connect() as connection,
        connection.begin(),
    ):
        check_server(connection, place)
        found = standing(connection, place)
    if (found.site, found.key_id, found.member) != (cluster.site, seal.key_id, cluster.member):
        raise Failed(f"use {place}", f"it takes this box for {found.member} of {found.site}")


def _compare(action: str, settings: Config, offer: Offer) -> None:
    lan, wan = roles_of(settings.roles)
    other = [
        f"[{section}] is {', '.join(own) or 'nothing'} here, and {', '.join(wanted) or 'nothing'}"
        " at the site"
        for section, own, wanted in (("lan", lan, offer.lan), ("wan", wan, offer.wan))
        if own != wanted
    ]
    if other:
        raise Failed(
            action,
            f"the boxes of a site need interfaces of the same names: {'; '.join(other)}",
        )
