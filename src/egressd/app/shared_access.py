"""Certificate, tokens, console password and sessions are the same at all members of a site.

Each member keeps them in its own files, by which it works without the database too.
`AccessFollower` writes what has changed here into the site's database, sealed with the site's key,
and takes over what another member has written there. Of two changes at once the one that reached
the database first counts.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from egressd.app import tls
from egressd.app.shared_tokens import SharedTokens
from egressd.app.site_texts import AccessLink, Seen, SiteTexts, digest_of
from egressd.console.accounts import Accounts
from egressd.console.sessions import Sessions
from egressd.model.console import Session
from egressd.model.errors import Failed
from egressd.service.tokens import Tokens
from egressd.store.api_token import ApiToken
from egressd.store.connection import reported
from egressd.store.files import replace_durably
from egressd.store.sealing import SiteSeal

log = structlog.get_logger()

EVERY_S: Final = 1.0
"""Seconds from one look at the site's database to the next."""
RECORD: Final = "shared-access.json"
"""The file in the api's data directory with what this box has in common with its site."""
_SESSION: Final = "session/"
"""The first characters of a session's name in the database; its key follows."""
_ENDED: Final = "ended/"
"""The same in the record, of one that was ended here, until the database knows."""
_USED_S: Final = 60
"""Seconds between two notes of a session's use in the database."""


class AccessItem(Protocol):
    """A text that is the same at all members. Every method raises Failed."""

    name: str

    async def read(self) -> str:
        """Return the text of this box; empty if there is none."""
        ...

    async def write(self, text: str) -> None:
        """Put a text in force at this box."""
        ...


class AccessFollower:
    """Keeps the `items` of this box and of its site equal.

    `record` is the file of what they had in common last, and `seal` returns the seal with the
    site's key of this moment. `sessions` are the console's, of which each is in the database under
    its key, with the time of its last use as version; `tokens` are the scoped ones.
    """

    def __init__(
        self,
        link: AccessLink,
        items: Collection[AccessItem],
        record: Path,
        seal: Callable[[], SiteSeal],
        sessions: Sessions,
        *,
        tokens: Tokens,
    ) -> None:
        self._link = link
        self._items = items
        self._texts = SiteTexts(link, record, seal)
        self._sessions = sessions
        self._tokens = SharedTokens(tokens, self._texts)
        self._fault = ""
        self._is_begun = False
        """True once the sessions of this start have been compared."""

    async def follow(self) -> None:
        """Look again and again, until it is cancelled."""
        try:
            while True:
                await self._look_once()
                await asyncio.sleep(EVERY_S)
        finally:
            await self._link.close()

    async def _look_once(self) -> None:
        try:
            await self.look()
            self._fault = ""
        except Failed as error:
            if self._fault != str(error):
                self._fault = str(error)
                log.warning(
                    "certificate, token, password and sessions may differ", error=self._fault
                )
        except Exception as error:
            # No client's traffic depends on it: the api does not end for it.
            if self._fault != repr(error):
                self._fault = repr(error)
                log.exception("certificate, token, password and sessions may differ")

    async def look(self) -> None:
        """Take over what is newer in the database, and write there what is newer here. Raises
        Failed.
        """
        # Over a restart, too: the database may be away.
        self._texts.mark([_ENDED + key for key in self._sessions.take_ended()])
        self._tokens.note_deleted()
        versions = await self._link.versions()
        if versions and not any(item.name in self._texts.known for item in self._items):
            await self._tokens.leave_behind(versions)
        failed: Failed | None = None
        for item in self._items:
            there, seen = versions.get(item.name, 0), self._texts.known.get(item.name, Seen())
            try:
                if there > seen.version:
                    await self._take(item)
                else:
                    await self._give(item, seen, there)
            except Failed as error:  # which does not concern the other items
                failed = failed or error
        for follow in (self._follow_sessions, self._tokens.follow):
            try:
                await follow(versions)
            except Failed as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def _take(self, item: AccessItem) -> None:
        for _, version, text in await self._texts.read([item.name]):
            if text != await item.read():
                await item.write(text)
                log.info("taken over from the site", what=item.name)
                if item.name == SharedPassword.name:
                    # All sessions have ended with it. The site's go on, as far as they are left.
                    known = self._texts.known_below(_SESSION)
                    self._texts.forget([_SESSION + key for key in known])
            self._texts.note(item.name, version, text)

    async def _give(self, item: AccessItem, seen: Seen, there: int) -> None:
        """Write this box's text into the database, if it is newer than what is there: it has
        changed, or the database is an older copy.
        """
        text = await item.read()
        if not text or (there == seen.version and digest_of(text) == seen.digest):
            return
        version = seen.version + 1
        if await self._texts.put(item.name, version, text, after=there):
            self._texts.note(item.name, version, text)
            log.info("written into the site's database", what=item.name)

    # --- Sessions. ------------------------------------------------------------------------

    async def _follow_sessions(self, versions: Mapping[str, int]) -> None:
        """Have a session go on, and end, at all members. Raises Failed."""
        there = {name: at for name, at in versions.items() if name.startswith(_SESSION)}
        own = {_SESSION + each.key: each for each in self._sessions.current()}
        known = {_SESSION + key for key in self._texts.known_below(_SESSION)}
        if not self._is_begun:
            # One that began elsewhere was not kept over the restart.
            self._texts.forget(known - own.keys())
            known &= own.keys()
            self._is_begun = True
        for name in known - there.keys():
            self._sessions.forget(name.removeprefix(_SESSION))
            own.pop(name, None)
        # The others are over by this member's clock alone, and may have been used elsewhere.
        ended = set(self._texts.known_below(_ENDED))
        over = {_SESSION + key for key in ended}
        await self._link.drop(
            [name for name, at in there.items() if name in over or self._sessions.is_past(at)]
        )
        self._texts.forget((known - (there.keys() & own.keys())) | {_ENDED + key for key in ended})
        wanted = [
            name
            for name, at in there.items()
            if name not in over
            and (at > own[name].seen_at if name in own else self._sessions.is_used(at))
        ]
        for name, version, text in await self._texts.read(wanted):
            if self._sessions.adopt(msgspec.json.decode(text, type=Session)):
                self._texts.note(name, version)
        for name, session in own.items():
            before = there.get(name, 0)
            if session.seen_at - before >= _USED_S:
                await self._give_session(name, session, before)

    async def _give_session(self, name: str, session: Session, before: int) -> None:
        text = msgspec.json.encode(session).decode()
        if await self._texts.put(name, session.seen_at, text, after=before):
            self._texts.note(name, session.seen_at)


# --- The items. -----------------------------------------------------------------------------


class SharedToken:
    """The API token."""

    name = "token"

    def __init__(self, token: ApiToken) -> None:
        self._token = token

    async def read(self) -> str:
        """Return the token. Raises Failed."""
        return self._token.token()

    async def write(self, text: str) -> None:
        """Replace the token. Raises Failed."""
        self._token.replace(text)


class SharedPassword:
    """The hash of the console's password."""

    name = "password"

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def read(self) -> str:
        """Return the hash. Raises Failed."""
        return await self._accounts.password_hash()

    async def write(self, text: str) -> None:
        """Replace the hash, and end all sessions. Raises Failed."""
        await self._accounts.adopt_password(text)


class SharedCertificate:
    """The certificate of the HTTPS listener, with its key.

    A certificate that a member has made gets the names of all: each makes it again that finds one
    of its own missing. `wanted` are the addresses that it must be for, and `serving` returns the
    context of the listener, or None if it is shut.
    """

    name = "certificate"

    def __init__(
        self,
        folder: Path,
        wanted: Callable[[], Collection[IPv4Address]],
        serving: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._certificate, self._key = folder / tls.CERTIFICATE, folder / tls.KEY
        self._folder = folder
        self._wanted = wanted
        self._serving = serving
        self._usable = ""

    async def read(self) -> str:
        """Return both as JSON; nothing while they do not belong together, as when an operator is
        about to replace them. Raises Failed.
        """
        with reported(f"read {self._certificate}"):
            if not (self._certificate.exists() and self._key.exists()):
                return ""
            text = json.dumps([self._certificate.read_text(), self._key.read_text()])
            if text != self._usable:
                try:
                    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._certificate, self._key)
                except ssl.SSLError:
                    return ""
                self._usable = text
        return text

    async def write(self, text: str) -> None:
        """Replace both, and serve new connections by them. Raises Failed."""
        certificate, key = json.loads(text)
        with reported(f"write {self._certificate}"):
            replace_durably(self._key, key.encode())
            replace_durably(self._certificate, certificate.encode())
        # With other names than the site's, it is written into the database at the next look.
        await asyncio.to_thread(tls.context, self._folder, self._wanted())
        serving = self._serving()
        if serving is not None:
            with reported(f"load {self._certificate}"):
                _load(serving, self._certificate, self._key)


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load a certificate with its key. Raises ssl.SSLError, also for a key with a password, for
    which OpenSSL would ask.
    """
    context.load_cert_chain(certificate, key, password="")
