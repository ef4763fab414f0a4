"""The reason for which a line is not up, from the words of its daemons. Pure.

`reasons` has the sentences of the PPP daemons; those of charon (strongSwan 5.9.8) stand here. If no
sentence is known, the reason is the daemon's last line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from egressd.model.wording import Sentence, Value, say
from egressd.netd.lines import reasons
from egressd.netd.lines.failure import AccountInUse, Cause, Declined, Failure, IkeStage, Unproved
from egressd.netd.lines.reasons import LogRule
from egressd.planner.lines.dial import Dial

_WORDS_MAX: Final = 120
_ENDED: Final = say("daemon-ended")
_UNPRINTABLE: Final = re.compile(r"[^ -~]+")

_OVER: Final = re.compile(
    r"pppd (?:exited|terminated) for call|Maximum retries exceeded|Connection \d* ?closed to"
)
_HOPELESS: Final = re.compile(
    r"^(?:LCP: timeout sending Config-Requests|local  IP address (\S+)\nremote IP address \1$)",
    re.MULTILINE,
)
_ENDINGS: Final = 3
"""Number of Terminate-Requests before a session has begun after which it is given up: pppd would
start again without end.
"""


def is_over(ppp_log: str, daemon_log: str) -> bool:
    """Return True if a line that is being dialled will not come up, though its daemons run on.

    xl2tpd runs on after pppd has ended, and pppd after a server that may start (``passive``) does
    not.
    """
    return (
        _OVER.search(daemon_log) is not None
        or _HOPELESS.search(ppp_log) is not None
        or len(reasons.ENDED.findall(ppp_log)) >= _ENDINGS
    )


def verdict(dial: Dial, *, was_online: bool, ppp_log: str, daemon_log: str) -> Failure:
    """Return the reason why a line ended: the first sentence in pppd's log, else in the unit's."""
    failure = None
    if not was_online:
        failure = _unsaid(dial, ppp_log)
    for text, rules in ((ppp_log, reasons.PPP_LOG), (daemon_log, reasons.UNIT_LOG)):
        failure = failure or _first(dial, text, rules)
    if was_online:
        return Failure(Cause.LOST, failure.reason if failure is not None else _ENDED)
    if failure is not None:
        return failure
    said = _last_words(ppp_log) or _last_words(daemon_log)
    return Failure(Cause.FAILED, say("daemon-ended-saying", said=said) if said else _ENDED)


def unfinished(dial: Dial, ppp_log: str, daemon_log: str) -> Failure:
    """Return how far a line came whose server keeps answering and never finishes."""
    told = say("line-too-slow", server=str(dial.server))
    if reasons.LOGGED_IN.search(ppp_log):
        told = reasons.NO_ADDRESS
    elif reasons.PROOF_SENT.search(ppp_log):
        told = reasons.NO_LOGIN
    elif dial.line.type == "l2tp" and not ppp_log and reasons.TUNNEL.search(daemon_log):
        told = reasons.NO_CALL
    return Failure(Cause.UNREACHABLE, told)


def _first(dial: Dial, text: str, rules: Sequence[LogRule]) -> Failure | None:
    """Return the meaning of the first known sentence."""
    mine = [rule for rule in rules if dial.line.type in rule.kinds]
    found = [(match, rule) for rule in mine if (match := rule.pattern.search(text))]
    if not found:
        return None
    match, rule = min(found, key=lambda one: one[0].start())
    words = {name: _plain(group) for name, group in match.groupdict().items()}
    line: dict[str, Value] = {"server": str(dial.server), "port": dial.line.port}
    told = say(rule.code, **{name: line[name] for name in rule.of_line}, **words)
    return Failure(rule.cause, told, "".join(words.values()))


def reconsidered(failure: Failure, server: object, *, is_proven: bool) -> Failure:
    """Return the failure in the light of earlier success of the line (`is_proven`).

    A refused login counts as an account in use if it has worked before, unless the server counts
    failed logins, or if the server says so. A server that falls silent after a secret that has
    worked counts as unreachable.
    """
    if is_proven and isinstance(failure, Unproved):
        return Failure(Cause.UNREACHABLE, _no_ipsec_server(server))
    if failure.cause not in (Cause.WRONG_PASSWORD, Cause.REFUSED):
        return failure
    is_said = reasons.IN_USE.search(failure.words) is not None
    is_locked = reasons.LOCKED.search(failure.words) is not None
    if is_said or (is_proven and failure.cause is Cause.WRONG_PASSWORD and not is_locked):
        return AccountInUse(failure.words)
    return failure


def _unsaid(dial: Dial, ppp_log: str) -> Failure | None:
    """Return the reason why a server ended a session before the login, if no sentence has it."""
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
    """Return the last line with more information than that the session is over."""
    lines = [line for line in log.splitlines() if line.strip() and not _IDLE_WORDS.match(line)]
    return _plain(lines[-1]) if lines else ""


_IDLE_WORDS: Final = re.compile(
    r"Connection terminated\.|Modem hangup|Script exec |(?:sent|rcvd) \["
)


def _plain(text: str) -> str:
    """Return a text of a daemon, which may be a server's, as printable ASCII and shortened."""
    return _UNPRINTABLE.sub(" ", text).strip()[:_WORDS_MAX]


_DNS: Final = re.compile(r"^nameserver ([0-9.]+)$", re.MULTILINE)


def resolvers(resolv_conf: str) -> tuple[str, ...]:
    """Return the DNS servers from the peer, from pppd's resolv.conf."""
    return tuple(dict.fromkeys(_DNS.findall(resolv_conf)))


# --- IPsec. -------------------------------------------------------------------------------

_NONE_TAKEN: Final = say("no-encryption-taken")
_NO_ACCESS: Final = say("ipsec-not-allowed")
_SILENT: Final = say("secret-unanswered")
_REFUSED_SECRET: Final = say("secret-refused")
_REFUSALS: Final = {
    "INVALID_ID_INFORMATION": _NO_ACCESS,
    "INVAL_ID": _NO_ACCESS,
}
_NOT_TAKEN: Final = ("NO_PROPOSAL_CHOSEN", "NO_PROP")
_BAD_SECRETS: Final = ("AUTHENTICATION_FAILED", "AUTH_FAILED", "INVALID_HASH_INFORMATION")
_NOTIFY: Final = re.compile(r"received (\w+) error notify")
_BEGUN: Final = re.compile(r"initiating Main Mode IKE_SA \S+\[(\d+)\] to ")
_DELETED: Final = re.compile(r"received DELETE for IKE_SA \S+\[(\d+)\]")
_RETRANSMIT: Final = re.compile(r"sending retransmit \d+ of request message ID (\d+), seq (\d+)")
_PROVING: Final = 3
"""The number of our message of Main Mode that is the first one encrypted with the secret's keys."""
_UNREADABLE: Final = re.compile(r"(\w+) (?:request|response) with message ID \d+ processing failed")
_NAT_PORT: Final = re.compile(r"sending packet: from \S+\[4500\] ")
_KERNEL: Final = re.compile(r"unable to (?:add SAD entry|install|add policy).*|^error installing.*")
_UNASKED: Final = ("received proposals unacceptable", "no matching proposal found")


class IkeTalk:
    """The log of charon about one attempt at the association of a line."""

    def __init__(self, dial: Dial) -> None:
        self._server = dial.server
        self._stage = IkeStage.IKE
        self._number = ""
        """charon's number of the IKE_SA that was started for the attempt."""
        self._is_proving = False
        """True once a message depended on the secret."""
        self._is_undecrypted = False
        """True between charon's two words about a packet that it cannot decrypt."""
        self._is_by_nat_port = False
        self._unanswered = ("0", 1)
        """The repeated message: its exchange (0 is Main Mode), and its number among ours."""

    def hear(self, message: str) -> Failure | None:
        """Take a message of charon. Return the failure, or None while the attempt may succeed.

        A server with another secret cannot read our third message: it answers with a packet that
        cannot be decrypted, or not at all. The same is said of a packet of Quick Mode, if a server
        goes on with the keys of an earlier association before it has answered.
        """
        if notified := _NOTIFY.search(message):
            return self._notified(notified[1])
        if _KERNEL.search(message):
            return Failure(Cause.MISSING, say("kernel-lacks-ipsec", said=_plain(message)))
        if message in _UNASKED:
            return Failure(Cause.REFUSED, say("encryption-not-offered"))
        if message == "could not decrypt payloads":
            self._is_undecrypted = True
        elif failed := _UNREADABLE.search(message):
            is_answer = self._is_undecrypted and failed[1] != "QUICK_MODE"
            self._is_undecrypted = False
            if is_answer and self._is_proving:
                return _wrong_secret()
        if ended := _DELETED.search(message):
            return self._ended() if ended[1] == self._number else None
        if message.startswith("giving up after"):
            return self._given_up()
        self._note(message)
        return None

    def _note(self, message: str) -> None:
        if begun := _BEGUN.search(message):
            self._number = begun[1]
        elif repeated := _RETRANSMIT.search(message):
            self._unanswered = (repeated[1], int(repeated[2]))
        elif message.startswith("generating ID_PROT request 0 [ ID HASH"):
            self._is_proving = True
        elif message.startswith("generating QUICK_MODE request"):
            self._stage = IkeStage.ESP
        elif _NAT_PORT.search(message):
            self._is_by_nat_port = True

    def _notified(self, what: str) -> Failure:
        if what in _BAD_SECRETS:
            return _wrong_secret()
        if what in _NOT_TAKEN:
            return Declined(Cause.REFUSED, _NONE_TAKEN, self._stage, is_said=True)
        reason = _REFUSALS.get(what) or say("ipsec-refused", notify=what)
        return Failure(Cause.REFUSED, reason)

    def _ended(self) -> Failure:
        """Return the failure after the server ended an established IKE_SA."""
        if self._stage is IkeStage.ESP:
            return Declined(Cause.REFUSED, _NONE_TAKEN, IkeStage.ESP, is_said=True)
        return Failure(Cause.REFUSED, say("server-ended-ipsec"))

    def _given_up(self) -> Failure:
        exchange, which = self._unanswered
        silent = _no_ipsec_server(self._server)
        if exchange != "0":
            return Declined(Cause.UNREACHABLE, silent, IkeStage.ESP, is_said=False)
        if which >= _PROVING:
            return Unproved(_SILENT if self._is_by_nat_port else _REFUSED_SECRET)
        if which > 1:
            return Failure(Cause.UNREACHABLE, silent)
        return Declined(Cause.UNREACHABLE, silent, IkeStage.IKE, is_said=False)


def _wrong_secret() -> Failure:
    return Failure(Cause.WRONG_SECRET, _REFUSED_SECRET)


def _no_ipsec_server(server: object) -> Sentence:
    return say("no-ipsec-server", server=str(server))


def unheard(dial: Dial, *, in_udp: bool, was_tried: bool) -> Failure:
    """Return the reason why L2TP has no answer, if no packet came by the established association.

    `in_udp`: ESP went in UDP. `was_tried`: it did so because plain ESP does not come through.
    """
    code = "no-l2tp-by-ipsec" if in_udp else "no-l2tp-by-esp"
    if was_tried:
        code = "no-l2tp-by-either"
    told = say(code, server=str(dial.server), port=dial.line.port)
    return Failure(Cause.UNREACHABLE, told)
