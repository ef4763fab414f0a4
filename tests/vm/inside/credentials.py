"""Lines log in with all characters that a person can type in user names, passwords and IPsec
secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from egressd.model.errors import Invalid
from egressd.planner.lines.dial import check
from tests.support.hostile_text import PIECES
from tests.vm.inside import network
from tests.vm.inside.network import SERVERS, Account
from tests.vm.inside.suite import ONLINE_S, PLACES, Suite, has_state, replaced, users

_BYTES_MAX: Final = 255


async def odd_credentials_log_in(suite: Suite) -> None:
    """Log in with every piece that a line may have, in the credentials of all lines at once."""
    kept = suite.lines["pptp_b"]
    await _log_in(suite, list(_mixed(_takeable(suite))))
    # pppd as a server looks up, and hashes, ``M-C`` where a name has a byte of 0xC3 (``%v`` in its
    # chap-new.c), so no user with such a name can log in there. Its log shows the name it got.
    foreign = "".join(piece for piece in PIECES if piece.isprintable() and not piece.isascii())
    await suite.apply(pptp_b=replaced(kept, username=foreign))
    await suite.until("pptp_b", partial(has_state, "wrong_password"), ONLINE_S)
    log = (network.RUN / "s1" / "ppp-pptp.log").read_text(errors="replace")
    assert f"Peer {_visible(foreign)} failed CHAP authentication" in log
    await suite.apply(pptp_b=kept)
    await suite.online(["pptp_b"])


def _takeable(suite: Suite) -> list[str]:
    """Return the pieces that no line refuses, for each of its credentials."""
    line = suite.lines["l2tp_c"]

    def is_taken(piece: str) -> bool:
        try:
            check(replaced(line, username=piece, password=piece, secret=piece))
        except Invalid:
            return False
        return True

    found = [piece for piece in PIECES if is_taken(piece)]
    assert len(found) > len(PIECES) / 2
    return found


def _mixed(pieces: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield a user name, password and secret for each line, which together have all pieces."""
    many = len(PLACES)
    shares = ["".join(pieces[n::many]) for n in range(many)]
    names = ["".join(piece for piece in pieces[n::many] if piece.isascii()) for n in range(many)]
    half = len(pieces) // 2
    # A secret holds more pieces than the others, since each server has only one.
    secrets = {"s1": "".join(pieces[:half]), "s2": "".join(pieces[half:][::-1])}
    for n, (server, _, _) in enumerate(PLACES.values()):
        yield names[n], shares[n - 1][::-1], secrets[server]
    assert all(len(text.encode()) <= _BYTES_MAX for text in (*shares, *secrets.values()))


def _visible(text: str) -> str:
    """Return characters beyond ASCII as pppd writes them (``%v`` in its utils.c)."""

    def told(byte: int) -> str:
        seven = byte - 0x80
        return "M-" + (f"^{chr(seven ^ 0x40)}" if seven < 0x20 or seven == 0x7F else chr(seven))

    return "".join(map(told, text.encode()))


async def _log_in(suite: Suite, credentials: Sequence[tuple[str, str, str]]) -> None:
    """Log all lines in with new credentials, check their addresses, and restore the old ones."""
    kept = dict(suite.lines)
    changed = {
        name: replaced(line, username=username, password=password)
        for (name, line), (username, password, _) in zip(kept.items(), credentials, strict=True)
    }
    began = time.monotonic()
    for server in SERVERS:
        mine = [name for name, place in PLACES.items() if place[0] == server]
        secret = credentials[list(PLACES).index(mine[-1])][2]
        for name in mine:
            if kept[name].secret:
                changed[name] = replaced(changed[name], secret=secret)
        accounts = [
            Account(changed[name].username, changed[name].password, users(server)[name])
            for name in mine
        ]
        await asyncio.to_thread(network.let_in, server, accounts, secret)
    await suite.apply(**changed)
    await suite.online()
    suite.figures["online again"] = time.monotonic() - began
    since = time.monotonic()
    await asyncio.sleep(1)
    for name in suite.lines:
        expected = users(PLACES[name][0])[name]
        assert suite.clients[name].seen_since(since) == {expected}, suite.lines[name]
    await suite.take_back(kept)
