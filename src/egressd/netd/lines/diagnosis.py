"""Why a line is not up, from what its daemons say. Pure.

The texts are those of pppd 2.4.9, xl2tpd 1.3.18, pptp 1.10.0 and strongSwan 5.9.8. What is not
known is told in the daemon's own last words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from egressd.planner.lines.dial import Dial


class Cause(StrEnum):
    """Why a line is down: the ``state`` of its status."""

    WRONG_PASSWORD = "wrong_password"  # noqa: S105 (a state's name)
    WRONG_SECRET = "wrong_secret"  # noqa: S105
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    LOST = "lost"
    NO_CARRIER = "no_carrier"
    MISSING = "missing"
    INVALID = "invalid"
    FAILED = "failed"


class Failure(Exception):
    """A line could not be dialled, or went down. ``str()`` says why, in plain words."""

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


_WORDS_MAX: Final = 120
_UNPRINTABLE: Final = re.compile(r"[^ -~]+")

_SILENT: Final = "the server stopped answering"
_NO_MPPE: Final = "the kernel cannot encrypt PPTP: it has no module ppp_mppe"
_Rule = tuple[re.Pattern[str], Cause, str]


def _rule(pattern: str, cause: Cause, reason: str) -> _Rule:
    return re.compile(pattern, re.MULTILINE), cause, reason


_PPP: Final[tuple[_Rule, ...]] = (
    _rule(
        r"CHAP authentication failed due to protocol-reject",
        Cause.REFUSED,
        "the server takes no kind of password that this line may use",
    ),
    _rule(
        r"MS-CHAP authentication failed: (.*)",
        Cause.WRONG_PASSWORD,
        "the server refused the user name or password: {}",
    ),
    _rule(
        r"(?:CHAP|PAP) authentication failed",
        Cause.WRONG_PASSWORD,
        "the server refused the user name or password",
    ),
    _rule(
        r"MPPE required, but MS-CHAP",
        Cause.REFUSED,
        "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted",
    ),
    _rule(r"MPPE required, but kernel has no support", Cause.MISSING, _NO_MPPE),
    _rule(
        r"MPPE required but (?:peer|not available)",
        Cause.REFUSED,
        "the server does not encrypt PPTP with 128 bits (MPPE)",
    ),
    _rule(r"No response to \d+ echo-requests", Cause.LOST, _SILENT),
    _rule(
        r"Could not determine local IP address|Peer refused to agree to our IP",
        Cause.REFUSED,
        "the server gave no IP address",
    ),
    _rule(
        r"Couldn't (?:set tty to PPP discipline|open the /dev/ppp)(.*)",
        Cause.MISSING,
        "the kernel cannot do PPP{}",
    ),
    _rule(r"LCP terminated by peer \((.*)\)", Cause.REFUSED, "the server ended the line: {}"),
    _rule(r"LCP terminated by peer", Cause.REFUSED, "the server ended the line"),
)
"""What pppd says, the telling before the general."""

_AROUND: Final[tuple[_Rule, ...]] = (
    _rule(
        r"Maximum retries exceeded for tunnel|recvfrom returned error",
        Cause.UNREACHABLE,
        "no L2TP server answers at {server} port {port}",
    ),
    _rule(
        r"warn\[open_inetsock.*connect: (.*)",
        Cause.UNREACHABLE,
        "no PPTP server answers at {server}: {}",
    ),
    _rule(
        r"Could not open control connection",
        Cause.UNREACHABLE,
        "no PPTP server answers at {server}",
    ),
    _rule(r"unshare: (.*)", Cause.FAILED, "its daemons may not have mounts of their own: {}"),
    _rule(
        r"Connection closed to \S+(?:, port \d+|, serial \d+) \((.+)\)",
        Cause.REFUSED,
        "the server closed the connection: {}",
    ),
    _rule(r"Connection closed to", Cause.REFUSED, "the server closed the connection"),
)
"""What the daemons around pppd say."""

_L2TP_OVER: Final = re.compile(
    r"pppd (?:exited|terminated) for call|Maximum retries exceeded|Connection \d* ?closed to"
)


def is_over(daemon_log: str) -> bool:
    """Whether xl2tpd has given the line up, though it goes on running."""
    return _L2TP_OVER.search(daemon_log) is not None


def verdict(dial: Dial, *, was_online: bool, ppp_log: str, daemon_log: str) -> Failure:
    """Why a line that is over is over."""
    for text, rules in ((ppp_log, _PPP), (daemon_log, _AROUND)):
        for pattern, cause, reason in rules:
            if found := pattern.search(text):
                words = [_plain(group) for group in found.groups()]
                told = reason.format(*words, server=dial.server, port=dial.line.port)
                return Failure(Cause.LOST if was_online else cause, told)
    if was_online:
        return Failure(Cause.LOST, "its daemon ended")
    said = _last_words(ppp_log) or _last_words(daemon_log)
    return Failure(Cause.FAILED, f"its daemon ended: {said}" if said else "its daemon ended")


def _last_words(log: str) -> str:
    """The last line that tells more than that it is over."""
    lines = [line for line in log.splitlines() if line.strip() and line not in _FAREWELLS]
    return _plain(lines[-1]) if lines else ""


_FAREWELLS: Final = ("Connection terminated.", "Modem hangup")


def _plain(text: str) -> str:
    """What a daemon wrote, perhaps in a server's words: printable, and not too long."""
    return _UNPRINTABLE.sub(" ", text).strip()[:_WORDS_MAX]


_DNS: Final = re.compile(r"^(?:primary|secondary) +DNS address ([0-9.]+)$", re.MULTILINE)
_ADDRESSED: Final = re.compile(r"^local +IP address", re.MULTILINE)


def resolvers(ppp_log: str) -> tuple[str, ...] | None:
    """The DNS servers that the peer handed out; None while pppd has not said."""
    if not _ADDRESSED.search(ppp_log):
        return None
    return tuple(dict.fromkeys(_DNS.findall(ppp_log)))


# --- IPsec. -------------------------------------------------------------------------------

_REFUSALS: Final = {
    "NO_PROPOSAL_CHOSEN": "the server accepts none of the IPsec encryptions offered",
    "NO_PROP": "the server accepts none of the IPsec encryptions offered",
    "INVALID_ID_INFORMATION": "the server does not let this address use L2TP over IPsec",
    "INVAL_ID": "the server does not let this address use L2TP over IPsec",
}
_BAD_SECRETS: Final = ("AUTHENTICATION_FAILED", "AUTH_FAILED", "INVALID_HASH_INFORMATION")
_NOTIFY: Final = re.compile(r"received (\w+) error notify")
_RETRANSMIT: Final = re.compile(r"sending retransmit \d+ of request message ID (\d+), seq (\d+)")
_SECRET_SENT: Final = re.compile(r"generating ID_PROT request 0 \[ ID HASH")
_PROVING: Final = 3
"""Our third message of Main Mode is the first one encrypted with keys made of the secret."""

_KERNEL: Final = re.compile(r"unable to (?:add SAD entry|install|add policy).*|^error installing.*")


def ike_verdict(dial: Dial, messages: Sequence[str]) -> Failure | None:
    """Why IPsec cannot be had, from what charon said about this line since the attempt began.

    None while there is hope. A server that does not understand our third message does not
    share our secret: it answers with what we can't decrypt, or not at all.
    """
    wrong_secret = Failure(Cause.WRONG_SECRET, "the server refused the IPsec secret")
    for message in messages:
        if notified := _NOTIFY.search(message):
            if notified[1] in _BAD_SECRETS:
                return wrong_secret
            reason = _REFUSALS.get(notified[1], f"the server refused IPsec: {notified[1]}")
            return Failure(Cause.REFUSED, reason)
        if _KERNEL.search(message):
            return Failure(
                Cause.MISSING, f"the kernel cannot do IPsec (module esp4): {_plain(message)}"
            )
    if any(map(_SECRET_SENT.search, messages)) and "could not decrypt payloads" in messages:
        return wrong_secret
    if not any(message.startswith("giving up after") for message in messages):
        return None
    is_in_main_mode, sent = _last_retransmit(messages)
    if is_in_main_mode and sent >= _PROVING:
        return wrong_secret
    return Failure(Cause.UNREACHABLE, f"no IPsec server answers at {dial.server}")


def _last_retransmit(messages: Iterable[str]) -> tuple[bool, int]:
    """Whether the message that found no answer was Main Mode's, and which of ours it was."""
    numbers = [found for message in messages if (found := _RETRANSMIT.search(message))]
    return (numbers[-1][1] == "0", int(numbers[-1][2])) if numbers else (True, 0)
