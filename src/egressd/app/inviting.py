"""Inviting a box to a site, on the box that has the site's authority and the owner's connection.

It runs until the other box has joined, by what `joining` does there.
"""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from psycopg import conninfo as libpq

from egressd.app import site_authority, site_key
from egressd.app.config import Config
from egressd.app.interrupts import Interrupts
from egressd.app.invitation_texts import JoinAnswer, JoinRequest, Offer, opened, sealed
from egressd.app.join_token import JoinToken
from egressd.app.member_files import SERVER_CERTIFICATE, folder_of
from egressd.app.site_authority import SiteAuthority
from egressd.app.surroundings import roles_of
from egressd.model.errors import EgressdError, Failed, Invalid
from egressd.store.postgres.invitations import JOINED, VALID_S, Conversation, Invitation, Joiner
from egressd.store.sealing import SiteSeal

_LOOK_S: Final = 0.3
_REFUSAL_S: Final = 10.0
"""Seconds that a box has to read that it was refused."""
_NOT_IN_ROLES: Final = re.compile(r"[^a-z0-9]+")
_NAME_MAX: Final = 40
"""Characters of a member's name in its role's: PostgreSQL takes 63 bytes, X.509 64 characters."""


def invite(
    settings: Config,
    owner: str,
    *,
    database: str,
    member: str,
    announce: Callable[[str], None],
) -> str:
    """Announce a token, and wait until a box has joined by it. Return the box's name in the site.

    `database` is the connection string for the other box, without a role. Raises EgressdError; the
    invitation is withdrawn then, as it is at the end of any kind but a kill: then it expires, and
    the next invitation removes it.
    """
    name = settings.cluster.site
    authority = SiteAuthority.of_folder(folder_of(settings))
    key = site_key.read(settings)
    lan, wan = roles_of(settings.roles)
    invitation = Invitation(owner, name)
    if member in invitation.certificates():
        raise Invalid(f"--member: the site has a member {member} already")
    token = JoinToken(
        database=database,
        site=name,
        role=invitation.role,
        authority=authority.der,
        secret=JoinToken.new_secret(),
    )
    offer = Offer(key_id=SiteSeal(key).key_id, lan=lan, wan=wan, member=member)
    with Interrupts() as interrupts:
        invitation.open(sealed(token, "offer", offer), token.password)
        try:
            with interrupts.allowed():
                announce(token.text)
                return _attend(invitation, token, authority, key, member)
        finally:
            invitation.close()


def _attend(
    invitation: Invitation, token: JoinToken, authority: SiteAuthority, key: bytes, member: str
) -> str:
    """Answer the box, and return its name once it says that it has joined. Raises Failed."""
    action = f"let a box join the site {token.site}"
    joined, refusal, last_look = "", None, 0.0
    while (said := invitation.read()) is not None:
        if said.outcome == JOINED:
            return joined
        if refusal is not None and (said.outcome or time.monotonic() > last_look):
            raise refusal
        if said.outcome:
            raise Failed(action, f"it could not join: {said.outcome}")
        if said.request and not said.answer:
            try:
                joined = _answer(
                    invitation, token=token, authority=authority, key=key, member=member, said=said
                )
            except EgressdError as error:
                # The box reads the answer before the invitation ends.
                refusal, last_look = error, time.monotonic() + _REFUSAL_S
        time.sleep(_LOOK_S)
    raise Failed(action, f"none has joined within {VALID_S // 60} minutes: the token has expired")


def _answer(
    invitation: Invitation,
    *,
    token: JoinToken,
    authority: SiteAuthority,
    key: bytes,
    member: str,
    said: Conversation,
) -> str:
    try:
        asked = opened(token, "request", said.request, JoinRequest)
        name = member or asked.member
        for other, certificate in invitation.certificates().items():
            if site_authority.has_key_of(certificate, asked.certificate_request):
                raise Failed("make it a member", f"it has the key of the member {other}: a copy")
        role = role_of(name)
        certificate = authority.member(asked.certificate_request, role)
        admission = JoinAnswer(
            role=role, certificate=certificate, site_key=base64.b64encode(key).decode()
        )
        invitation.admit(
            Joiner(name, role, certificate, asked.device),
            sealed(token, "answer", admission),
        )
    except EgressdError as error:
        reason = error.cause if isinstance(error, Failed) else str(error)
        invitation.refuse(sealed(token, "answer", JoinAnswer(refusal=reason)))
        raise
    return name


def role_of(member: str) -> str:
    """Return a new role's name for a member."""
    word = _NOT_IN_ROLES.sub("_", member.lower()).strip("_")[:_NAME_MAX]
    return f"egressd_{word}_{secrets.token_hex(3)}"


def public_conninfo(settings: Config, addresses: Sequence[str]) -> str:
    """Return the connection string by which another box reaches the site's database, without a
    role. Raises Invalid if it is not known where.
    """
    own = libpq.conninfo_to_dict(settings.cluster.database)
    hosts = [str(own.get("host", ""))] if _is_remote(str(own.get("host", ""))) else []
    ports = [str(own.get("port", ""))]
    certificate = folder_of(settings) / SERVER_CERTIFICATE
    if addresses:
        pairs = [_split(each) for each in addresses]
        hosts = [host for host, _ in pairs]
        ports = [port or ports[0] for _, port in pairs]
    elif not hosts and certificate.exists():
        hosts = site_authority.hosts_of(certificate.read_bytes())
        ports *= len(hosts)
    if not hosts:
        raise Invalid("--address must be given: this box reaches the database by a socket")
    parts = {"host": ",".join(hosts), "dbname": str(own.get("dbname", "egressd"))}
    if any(ports):
        parts["port"] = ",".join(ports)
    return libpq.make_conninfo(**parts)


def _is_remote(host: str) -> bool:
    return bool(host) and not host.startswith("/")


def _split(address: str) -> tuple[str, str]:
    """Return host and port; an IPv6 address with a port is in brackets."""
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        return host, port.removeprefix(":")
    if address.count(":") == 1:
        host, _, port = address.partition(":")
        return host, port
    return address, ""
