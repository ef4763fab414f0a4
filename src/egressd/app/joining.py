"""Joining a site: the two sides of an invitation, and the files that a member has.

`invite` runs on the box that has the site's authority and the owner's connection, until the other
box has joined. `join` runs on the other box. Neither side has changed anything unless both say so.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from psycopg import conninfo as libpq

from egressd import __version__
from egressd.app import accounts, network, site, site_authority
from egressd.app.config import Cluster, Config
from egressd.app.join_token import JoinToken
from egressd.app.site_authority import SiteAuthority
from egressd.license.device import this_device
from egressd.model.errors import EgressdError, Failed, Invalid
from egressd.planner.topology import discover
from egressd.store.connection import reported
from egressd.store.database import Database
from egressd.store.files import prepare_directory, replace_durably
from egressd.store.postgres.connection import check_server, engine_on, standing
from egressd.store.postgres.invitations import (
    JOINED,
    VALID_S,
    Conversation,
    Guest,
    Invitation,
    Joiner,
)
from egressd.store.postgres.site_store import GATE_MARK, AdoptionMark, DurableMark
from egressd.store.sealing import SiteSeal

AUTHORITY, MEMBER_CERTIFICATE, MEMBER_KEY = "site-ca.pem", "member.pem", "member-key.pem"
"""File names in the api's data directory: of the site's authority, and of this member."""
T = TypeVar("T")

SERVER_CERTIFICATE: Final = "server.pem"
"""The file in the authority's folder with the certificate of a database that `init` set up."""
_LOOK_S: Final = 0.3
_REFUSAL_S: Final = 10.0
"""Seconds that a box has to read that it was refused."""
_NOT_IN_ROLES: Final = re.compile(r"[^a-z0-9]+")
_NAME_MAX: Final = 40
"""Characters of a member's name in its role's: PostgreSQL takes 63 bytes, X.509 64 characters."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The site's demands on a box."""

    key_id: str
    lan: tuple[str, ...]
    wan: tuple[str, ...]
    member: str = ""
    """The name that the box is to have; empty if it may choose."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A description of the box, by itself."""

    member: str
    device: str
    version: str
    certificate_request: str


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request."""

    refusal: str = ""
    """The reason why the box is no member; empty if it is one."""
    role: str = ""
    certificate: str = ""
    site_key: str = ""
    """The site's key in base64."""


def folder_of(settings: Config) -> Path:
    """Return the folder of the site's authority and the owner's connection; root only."""
    return settings.data.dir / "cluster"


def roles_of(settings: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of this box's LANs and WANs, in order. Raises Failed."""
    try:
        topology = discover(network.facts(), settings.roles)
    except OSError as error:
        raise Failed("see this device's interfaces", str(error)) from error
    return tuple(sorted(topology.lans)), tuple(sorted(topology.wans))


def role_of(member: str) -> str:
    """Return a new role's name for a member."""
    word = _NOT_IN_ROLES.sub("_", member.lower()).strip("_")[:_NAME_MAX]
    return f"egressd_{word}_{secrets.token_hex(3)}"


# --- The member's side. ------------------------------------------------------------------


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
    key = site.site_key(settings)
    lan, wan = roles_of(settings)
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
    invitation.open(_sealed(token, "offer", offer), token.password)
    try:
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
        asked = _opened(token, "request", said.request, JoinRequest)
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
            Joiner(name, role, certificate, asked.device, asked.version),
            _sealed(token, "answer", admission),
        )
    except EgressdError as error:
        reason = error.cause if isinstance(error, Failed) else str(error)
        invitation.refuse(_sealed(token, "answer", JoinAnswer(refusal=reason)))
        raise
    return name


# --- The other box's side. ---------------------------------------------------------------


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
    files = _MemberFiles(settings.api_data)
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
            offer = _opened(token, "offer", guest.read().offer, Offer)
            _compare(action, settings, offer)
            if Database(settings.api_data).path.exists():
                permit()
                files.give_up_own(backup)
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
    files: _MemberFiles,
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
    guest.ask(_sealed(token, "request", asked))
    announce("waiting for the box that invites")
    while not (answer := guest.read().answer):
        time.sleep(_LOOK_S)
    admission = _opened(token, "answer", answer, JoinAnswer)
    if admission.refusal:
        raise Failed(action, admission.refusal)
    files.write(MEMBER_CERTIFICATE, admission.certificate.encode())
    files.write(site.KEY_NAME, admission.site_key.encode())
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
    lan, wan = roles_of(settings)
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


# --- Files. ------------------------------------------------------------------------------


class _MemberFiles:
    """The files of a member in the api's data directory, of which the new ones can be removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: list[Path] = []

    def path(self, name: str) -> Path:
        return (self._folder / name).absolute()

    def refuse_other(self, action: str) -> None:
        """Raise Failed if this box has a member's files: it was one, or is a copy of one."""
        for name in (site.KEY_NAME, MEMBER_KEY):
            if self.path(name).exists():
                raise Failed(
                    action,
                    f"{self.path(name)} is there, as on a member of a site: this box was one, or"
                    " is a copy of one. Move the file away if the box is to join anew",
                )

    def write(self, name: str, content: bytes) -> None:
        path = self.path(name)
        with reported(f"write {path}"):
            replace_durably(path, content)
        self._written.append(path)

    def give_up_own(self, backup: Path) -> None:
        """Back this box's configuration up, and note that the site's replaces it.

        From its next start on, the box lets clients through by a lease only: also while the site's
        database is away, and the box does not know yet whether the site has other members.
        """
        asyncio.run(Database(self._folder).backup(backup))
        mark = AdoptionMark(self._folder)
        self._written += [backup, mark.path]
        mark.put(backup)
        gate = DurableMark(self._folder / GATE_MARK)
        self._written.append(self._folder / GATE_MARK)
        gate.open()
        gate.put(True)

    def remove(self) -> None:
        for path in self._written:
            path.unlink(missing_ok=True)


# --- Sealed texts. -----------------------------------------------------------------------


def _sealed(token: JoinToken, what: str, content: msgspec.Struct) -> str:
    text = msgspec.json.encode(content).decode()
    return token.seal.close(text, f"{token.role}/{what}")


def _opened(token: JoinToken, what: str, stored: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(token.seal.open(stored, f"{token.role}/{what}"), type=kind)
    except (ValueError, msgspec.DecodeError) as error:
        raise Failed(f"read the {what} of the invitation", str(error)) from error


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


def own_certificate(settings: Config, authority: SiteAuthority, role: str) -> str:
    """Return the certificate of this box, which is made, with its key, unless it is there.

    With it the box can reach a database by TCP, too. Raises EgressdError.
    """
    files = _MemberFiles(settings.api_data)
    if not files.path(MEMBER_CERTIFICATE).exists():
        key, request = site_authority.new_request()
        files.write(MEMBER_KEY, key)
        files.write(AUTHORITY, authority.pem)
        files.write(MEMBER_CERTIFICATE, authority.member(request, role).encode())
    with reported(f"read {files.path(MEMBER_CERTIFICATE)}"):
        return files.path(MEMBER_CERTIFICATE).read_text()
