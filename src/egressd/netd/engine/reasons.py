"""The engine's errors in plain words. Pure.

sing-box joins an error's causes with ``: ``, outermost first (``common/exceptions`` of its library
``sing``): the cause that an operator can act on comes last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

SOCKS_REPLIES: Final = {
    1: "it cannot connect",
    2: "it does not allow the connection",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "connection refused",
    6: "timed out",
    7: "it does not carry TCP",
    8: "it does not take such an address",
}
"""Meanings of the replies of a SOCKS5 server that does not connect (RFC 1928, section 6)."""

_STAGES: Final = re.compile(
    r"(?:decode sing-box configuration: |create sing-box service: "
    r"|start sing-box service: (?:(?:start|initialize) [a-z-]+: )?(?:start [a-z-]+/[^:]+: )?)"
    r"(?:initialize )?(?:outbounds?\[\d+\](?:\.([^:]+))?: )?"
)
_UNKNOWN_FIELD: Final = re.compile(r'json: unknown field "([^"]*)"')
_WRONG_TYPE: Final = re.compile(r"json: cannot unmarshal (.+) into Go .*")


def _resolving(found: re.Match[str]) -> str:
    if re.search("NXDOMAIN|no such host", found[1]):
        return "the node's name does not exist"
    if found[1].endswith("empty result"):
        return "the node's name has no address of the asked kind (ip-version)"
    return f"the node's name was not resolved: {plain(found[1])}"


def _rejected(found: re.Match[str]) -> str:
    reply = SOCKS_REPLIES.get(int(found[1]), f"SOCKS reply {found[1]}")
    return f"the node does not reach the site: {reply}"


_PLAIN: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
    (r"lookup [^\s:]+: (.+)", _resolving),
    (r"request rejected, code=(\d+)", _rejected),
    (r"incorrect user name or password", "wrong user name or password"),
    (r"authentication required|unsupported auth method", "wrong user name or password"),
    (r"authentication failed", "wrong password"),
    (r"expected socks version 5", "the node does not speak SOCKS5"),
    (r"unexpected (?:HTTP response )?status(?: code)?: (.+)", r"the node answered with HTTP \1"),
    (r"\b(?:tls|x509): (.+)", r"TLS failure: \1"),
    (r"(?i)reality", "TLS failure: REALITY verification failed"),
    (r"connection refused", "connection refused"),
    (r"connection reset|broken pipe|\bEOF\b", "the node closed the connection"),
    (r"network is unreachable|no route to host", "the node is unreachable"),
    (r"permission denied", "the node's egress is blocked"),
    (r"i/o timeout|deadline exceeded|no recent network activity", "the node does not answer"),
)
"""Patterns of errors and their meanings, the more specific ones first."""


def plain(error: str) -> str:
    """Return why a node's connection failed: in plain words if they are known, else `error`."""
    for pattern, words in _PLAIN:
        if found := re.search(pattern, error):
            return words(found) if callable(words) else found.expand(words)
    return error


def refusal(error: str) -> str:
    """Return why the engine refused a document: `error` without the stages it went through, and in
    terms of JSON instead of Go.
    """
    if stages := _STAGES.match(error):
        field = f"{stages[1]}: " if stages[1] else ""
        error = field + error[stages.end() :]
    if unknown := _UNKNOWN_FIELD.search(error):
        return f"the engine does not know the field {unknown[1]}"
    return _WRONG_TYPE.sub(r"wrong value (\1)", error)
