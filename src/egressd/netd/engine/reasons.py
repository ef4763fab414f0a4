"""The engine's errors in plain words. Pure.

sing-box joins an error's causes with ``: ``, outermost first (``common/exceptions`` of its library
``sing``): the cause that an operator can act on comes last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from egressd.model.wording import Sentence, as_sentence, say

_SOCKS_REPLIES: Final = {
    1: say("cannot-connect"),
    2: say("not-allowed"),
    3: say("network-unreachable"),
    4: say("host-unreachable"),
    5: say("connection-refused"),
    6: say("timed-out"),
    7: say("no-tcp"),
    8: say("no-such-address"),
}
"""Meanings of the replies of a SOCKS5 server that does not connect (RFC 1928, section 6)."""

_STAGES: Final = re.compile(
    r"(?:decode sing-box configuration: |create sing-box service: "
    r"|start sing-box service: (?:(?:start|initialize) [a-z-]+: )?(?:start [a-z-]+/[^:]+: )?)"
    r"(?:initialize )?(?:outbounds?\[\d+\](?:\.([^:]+))?: )?"
)
_UNKNOWN_FIELD: Final = re.compile(r'json: unknown field "([^"]*)"')
_WRONG_TYPE: Final = re.compile(r"json: cannot unmarshal (.+) into Go .*")


def socks_reply(number: int) -> Sentence:
    """Return the meaning of a SOCKS5 server's reply."""
    return _SOCKS_REPLIES.get(number) or say("socks-reply", number=number)


def _resolving(found: re.Match[str]) -> Sentence:
    if re.search("NXDOMAIN|no such host", found[1]):
        return say("node-name-unknown")
    if found[1].endswith("empty result"):
        return say("node-name-without-address")
    return say("node-name-unresolved", reason=plain(found[1]))


def _rejected(found: re.Match[str]) -> Sentence:
    return say("site-unreached", reply=socks_reply(int(found[1])))


def _status(found: re.Match[str]) -> Sentence:
    return say("node-http-status", status=found[1])


def _tls(found: re.Match[str]) -> Sentence:
    return say("tls-failure", reason=found[1])


def _site(found: re.Match[str]) -> Sentence:
    """Return an error about the site: of the stack in a tunnel, or of an SSH server."""
    said = found[1].lower()
    number = 5 if "refused" in said else 2 if "prohibited" in said else 4
    return say("site-unreached", reply=_SOCKS_REPLIES[number])


_PLAIN: Final[tuple[tuple[str, Sentence | Callable[[re.Match[str]], Sentence]], ...]] = (
    (r"lookup [^\s:]+: (.+)", _resolving),
    (r"request rejected, code=(\d+)", _rejected),
    (r"\bconnect tcp \S+: (.*(?:refused|unreachable|no route).*)", _site),
    (r"ssh: rejected: (.+)", _site),
    (r"incorrect user name or password", say("wrong-login")),
    (r"authentication required|unsupported auth method", say("wrong-login")),
    (r"ssh: unable to authenticate", say("wrong-ssh-login")),
    (r"host key mismatch", say("ssh-host-key-other")),
    (r"authentication failed|\bauth error\b|(?i:wrong password)", say("node-password-wrong")),
    (r"expected socks version 5", say("node-no-socks")),
    (r"unexpected (?:HTTP response )?status(?: code)?: (.+)", _status),
    (r"\b(?:tls|x509): (.+)", _tls),
    (r"(?i)reality", say("tls-failure", reason="REALITY verification failed")),
    (r"connection refused", say("connection-refused")),
    (r"connection reset|broken pipe|\bEOF\b", say("node-closed")),
    (r"network is unreachable|no route to host", say("node-unreachable")),
    (r"permission denied", say("node-egress-blocked")),
    (
        r"i/o timeout|operation timed out|deadline exceeded|no recent network activity",
        say("node-silent"),
    ),
)
"""Patterns of errors and their meanings, the more specific ones first."""


def plain(error: str) -> Sentence:
    """Return why a node's connection failed: in plain words if they are known, else `error`."""
    for pattern, words in _PLAIN:
        if found := re.search(pattern, error):
            return words(found) if callable(words) else words
    return as_sentence(error)


def refusal(error: str) -> Sentence:
    """Return why the engine refused a document: `error` without the stages it went through, and in
    terms of JSON instead of Go.
    """
    if stages := _STAGES.match(error):
        field = f"{stages[1]}: " if stages[1] else ""
        error = field + error[stages.end() :]
    if unknown := _UNKNOWN_FIELD.search(error):
        return say("engine-field-unknown", field=unknown[1])
    return as_sentence(_WRONG_TYPE.sub(r"wrong value (\1)", error))
