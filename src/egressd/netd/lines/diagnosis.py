"""Why a line is not up, from what its daemons say. Pure.

`reasons` has the sentences of those that carry PPP; charon's, of strongSwan 5.9.8, stand here. What
is not known is told in the daemon's own last words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from egressd.netd.lines import reasons
from egressd.netd.lines.failure import Cause, Failure
from egressd.netd.lines.reasons import Rule
from egressd.planner.lines.dial import Dial

_WORDS_MAX: Final = 120
_ENDED: Final = "its daemon ended"
_UNPRINTABLE: Final = re.compile(r"[^ -~]+")

_OVER: Final = re.compile(
    r"pppd (?:exited|terminated) for call|Maximum retries exceeded|Connection \d* ?closed to"
)
_HOPELESS: Final = re.compile(
    r"^(?:LCP: timeout sending Config-Requests|local  IP address (\S+)\nremote IP address \1$)",
    re.MULTILINE,
)
_ENDINGS: Final = 3
"""After so many of a server's wishes to end a session that has not begun it is given up: pppd would
begin anew for ever."""


def is_over(ppp_log: str, daemon_log: str) -> bool:
    """Whether a line that is being dialled will not come up, though its daemons go on running.

    xl2tpd does when pppd has ended, pppd when a server that may begin (``passive``) does not.
    """
    return (
        _OVER.search(daemon_log) is not None
        or _HOPELESS.search(ppp_log) is not None
        or len(reasons.ENDED.findall(ppp_log)) >= _ENDINGS
    )


def verdict(dial: Dial, *, was_online: bool, ppp_log: str, daemon_log: str) -> Failure:
    """Why a line that is over is over: what was said first, and by pppd rather than around it."""
    failure = None
    if not was_online:
        failure = _unsaid(dial, ppp_log)
    for text, rules in ((ppp_log, reasons.PPP_LOG), (daemon_log, reasons.UNIT_LOG)):
        failure = failure or _first(dial, text, rules)
    if was_online:
        return Failure(Cause.LOST, str(failure or _ENDED))
    if failure is not None:
        return failure
    said = _last_words(ppp_log) or _last_words(daemon_log)
    return Failure(Cause.FAILED, f"its daemon ended: {said}" if said else _ENDED)


def _first(dial: Dial, text: str, rules: Sequence[Rule]) -> Failure | None:
    """What the first sentence that is known says."""
    mine = [rule for rule in rules if dial.line.type in rule.kinds]
    found = [(match, rule) for rule in mine if (match := rule.pattern.search(text))]
    if not found:
        return None
    match, rule = min(found, key=lambda one: one[0].start())
    words = [_plain(group) for group in match.groups()]
    told = rule.reason.format(*words, server=dial.server, port=dial.line.port)
    return Failure(rule.cause, told, "".join(words))


def is_in_use(failure: Failure, *, is_proven: bool) -> bool:
    """Whether a refusal of the login may be due to an earlier session of the account: it
    is for a login that has worked, or the server says so."""
    if failure.cause not in (Cause.WRONG_PASSWORD, Cause.REFUSED):
        return False
    is_said = reasons.IN_USE.search(failure.words) is not None
    return is_said or (is_proven and failure.cause is Cause.WRONG_PASSWORD)


def _unsaid(dial: Dial, ppp_log: str) -> Failure | None:
    """Why a server ended a session before the login without saying so."""
    if dial.line.type == "l2tp" and reasons.MPPE_ASKED.search(ppp_log):
        return Failure(Cause.REFUSED, reasons.L2TP_MPPE)
    is_ended = any(found.search(ppp_log) for found in (reasons.ENDED, reasons.TIMED_OUT))
    asked = reasons.PROOF_ASKED.findall(ppp_log)
    if not (asked and is_ended) or reasons.LOGGED_IN.search(ppp_log):
        return None
    if asked[-1] == "eap":
        return Failure(Cause.REFUSED, reasons.EAP)
    if dial.line.type == "pptp" and asked[-1] != "chap MS-v2":
        return Failure(Cause.REFUSED, reasons.NO_MS_CHAP)
    return None


def _last_words(log: str) -> str:
    """The last line that tells more than that it is over."""
    lines = [line for line in log.splitlines() if line.strip() and not _IDLE_WORDS.match(line)]
    return _plain(lines[-1]) if lines else ""


_IDLE_WORDS: Final = re.compile(
    r"Connection terminated\.|Modem hangup|Script exec |(?:sent|rcvd) \["
)


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
