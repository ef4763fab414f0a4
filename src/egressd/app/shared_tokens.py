"""Scoped tokens are the same at all members of a site.

Each member keeps them in its own database, by which they count without the site's, too. In the
site's, each token is a text of its own under its id, with the time of its last use as version. The
text of a deleted one is `_DELETED`, so that a member that was away, and an older copy of the
database, do not bring it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from egressd.app.site_texts import SiteTexts, digest_of
from egressd.model.tokens import ScopedToken
from egressd.service.tokens import STORE_EVERY_S, Tokens

_PREFIX: Final = "scoped-token/"
"""The first characters of a token's name in the database; its id follows."""
_DELETED: Final = "deleted"
_DIGEST: Final = digest_of(_DELETED)
_KEPT_S: Final = 400 * 86_400
"""Seconds for which a deletion is kept: no member is away, and no copy used, for longer."""


class SharedTokens:
    """Keeps the `tokens` of this box and of its site equal."""

    def __init__(self, tokens: Tokens, texts: SiteTexts) -> None:
        self._tokens = tokens
        self._texts = texts

    async def leave_behind(self, versions: Mapping[str, int]) -> None:
        """Delete this box's own tokens, when it has joined a site: with them, users of the box
        alone would rule the site. Raises Failed.
        """
        own = {_PREFIX + token.id for token in self._tokens.list()}
        await self._tokens.forget([_id(name) for name in own - versions.keys()])

    def note_deleted(self) -> None:
        """Note the tokens that were deleted here, over a restart too: the database may be away.
        Raises Failed.
        """
        for id_ in self._tokens.take_deleted():
            self._texts.note(_PREFIX + id_, int(self._tokens.clock()) + 1, _DELETED)

    async def follow(self, versions: Mapping[str, int]) -> None:
        """Have a token count, and stop to count, at all members. Raises Failed."""
        there = {name: at for name, at in versions.items() if name.startswith(_PREFIX)}
        known = self._texts.known
        unseen = [name for name in there if name not in known or known[name].version != there[name]]
        for name, version, text in await self._texts.read(unseen):
            there[name] = version
            await self._meet(name, version, text)
        for token in self._tokens.list():
            name, version = _PREFIX + token.id, max(token.created_at, token.last_used_at)
            before = there.get(name, 0)
            if version - before >= STORE_EVERY_S:
                text = msgspec.json.encode(token).decode()
                if await self._texts.put(name, version, text, after=before):
                    self._texts.note(name, version)
        await self._forget_old(there)

    async def _meet(self, name: str, version: int, text: str) -> None:
        """Take over what is in the database, unless the token was deleted here."""
        if text == _DELETED:
            await self._tokens.forget([_id(name)])
            self._texts.note(name, version, _DELETED)
        elif not self._is_deleted(name):
            await self._tokens.adopt(msgspec.json.decode(text, type=ScopedToken))
            self._texts.note(name, version)
        else:
            later = max(int(self._tokens.clock()), version) + 1
            if await self._texts.put(name, later, _DELETED, after=version):
                self._texts.note(name, later, _DELETED)

    async def _forget_old(self, there: Mapping[str, int]) -> None:
        past = self._tokens.clock() - _KEPT_S
        old = {
            name
            for name, seen in self._texts.known.items()
            if name.startswith(_PREFIX) and seen.version < past and self._is_deleted(name)
        }
        await self._texts.drop([*old & there.keys()])
        self._texts.forget(old)

    def _is_deleted(self, name: str) -> bool:
        seen = self._texts.known.get(name)
        return seen is not None and seen.digest == _DIGEST


def _id(name: str) -> str:
    return name.removeprefix(_PREFIX)
