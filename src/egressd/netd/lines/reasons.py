"""The sentences of pppd, pptp and xl2tpd about a line that is not up, and the meaning of each.

The texts are those of pppd 2.4.9 and 2.5, xl2tpd 1.3.18 and pptp 1.10.0. A pattern begins with the
daemon's own words, since a server's words are quoted in all of them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from egressd.model.wording import say
from egressd.netd.lines.failure import Cause


class LogRule(NamedTuple):
    """A sentence of a daemon, and its meaning."""

    pattern: re.Pattern[str]
    """Its named groups are values of the meaning."""
    cause: Cause
    code: str
    """The meaning: a key of `model.sentences`."""
    kinds: tuple[str, ...]
    """The types of line to which it applies."""
    of_line: tuple[str, ...]
    """The values of the meaning that are the line's: ``server`` and ``port``."""


_ALL: Final = ("l2tp", "pptp")


def _rule(
    pattern: str,
    cause: Cause,
    code: str,
    kinds: tuple[str, ...] = _ALL,
    *,
    of_line: tuple[str, ...] = (),
) -> LogRule:
    return LogRule(re.compile(f"^{pattern}", re.MULTILINE), cause, code, kinds, of_line)


NO_LOGIN: Final = say("login-unanswered")
NO_ADDRESS: Final = say("no-address-given")
NO_CALL: Final = say("l2tp-call-unanswered")
_PPTP: Final = r"pptp \w+\[[^]]*\]: "
_SOON: Final = r"(?:.*\n){0,99}?"
"""The lines up to another sentence. Without the bound a log full of the first sentence would be
searched again and again."""
_XL2TPD: Final = r"xl2tpd\[\d+\]: (?:\w+ ?: )?"

# Message types (RFC 2661, 3.2): Call-Disconnect-Notify, Stop-Control-Connection-Notification.
_CDN: Final = 14
_STOP_CCN: Final = 4
_L2TP_CODES: Final = (
    (_CDN, 3, "closed-by-operator"),
    (_CDN, 4, "no-room-now"),
    (_CDN, 5, "no-room"),
    (_CDN, 10, "call-too-slow"),
    (_STOP_CCN, 3, "tunnel-exists"),
    (_STOP_CCN, 4, "tunnel-not-allowed"),
    (_STOP_CCN, 5, "other-l2tp-version"),
    (_STOP_CCN, 6, "server-shuts-down"),
)
"""Message types and result codes (RFC 2661, 4.4.2) that have a meaning without text. xl2tpd logs
for them the text of the other message's table.
"""

PPP_LOG: Final[tuple[LogRule, ...]] = (
    _rule(
        r"(?:CHAP|PAP) authentication failed due to protocol-reject", Cause.REFUSED, "no-login-kind"
    ),
    _rule(
        r"MS-CHAPv2 mutual authentication failed",
        Cause.REFUSED,
        "server-unproved",
    ),
    _rule(
        r"MS-CHAP authentication failed: (?P<said>.+)",
        Cause.WRONG_PASSWORD,
        "login-refused-saying",
    ),
    _rule(
        r"Remote message: (?P<said>.+)\nPAP authentication failed",
        Cause.WRONG_PASSWORD,
        "login-refused-saying",
    ),
    _rule(
        r"(?:CHAP|PAP) authentication failed: (?P<said>.+)",
        Cause.WRONG_PASSWORD,
        "login-refused-saying",
    ),
    _rule(r"(?:CHAP|PAP) authentication failed", Cause.WRONG_PASSWORD, "login-refused"),
    _rule(
        r"(?:No response to PAP authenticate-requests|CHAP authentication timed out)",
        Cause.UNREACHABLE,
        "login-unanswered",
    ),
    _rule(
        r"MPPE required, but MS-CHAP",
        Cause.REFUSED,
        "no-ms-chap",
    ),
    _rule(r"MPPE required, but kernel has no support", Cause.MISSING, "kernel-lacks-mppe"),
    _rule(
        r"MPPE (?:required but (?:peer|not available)|disabled)",
        Cause.REFUSED,
        "no-mppe",
    ),
    _rule(r"No response to \d+ echo-requests", Cause.LOST, "server-stopped-answering"),
    _rule(
        r"Serial line is looped back",
        Cause.REFUSED,
        "looped-back",
    ),
    _rule(
        r"(?:Could not determine local IP address|Peer refused to agree to our IP"
        r"|IPCP: timeout sending Config-Requests)",
        Cause.REFUSED,
        "no-address-given",
    ),
    _rule(
        r"local  IP address (?P<address>\S+)\nremote IP address (?P=address)$",
        Cause.REFUSED,
        "one-address-given",
    ),
    _rule(
        r"Couldn't (?:set tty to PPP discipline|open the /dev/ppp(?: device)?): (?P<said>.*)",
        Cause.MISSING,
        "kernel-lacks-ppp",
    ),
    _rule(
        r"LCP: timeout sending Config-Requests",
        Cause.UNREACHABLE,
        "no-gre",
        ("pptp",),
    ),
    _rule(
        r"LCP: timeout sending Config-Requests",
        Cause.UNREACHABLE,
        "no-ppp",
        ("l2tp",),
    ),
    # pppd cuts a message at 1,023 bytes, and a packet's text at 255.
    _rule(r"LCP terminated by peer \(.*MPPE", Cause.REFUSED, "mppe-in-l2tp", ("l2tp",)),
    _rule(r"LCP terminated by peer \((?P<said>.+?)\)?$", Cause.REFUSED, "server-ended-line-saying"),
    _rule(r"LCP terminated by peer", Cause.REFUSED, "server-ended-line"),
    # Before LCP is open pppd does not log it in words, and continues.
    _rule(
        r'rcvd \[LCP TermReq id=\S+ "(?P<said>.*?)(?:"[^"\n]*\])?$(?!\nLCP terminated)',
        Cause.REFUSED,
        "server-ended-line-saying",
    ),
    _rule(
        r"rcvd \[LCP TermReq [^\n]*$(?!\nLCP terminated)",
        Cause.REFUSED,
        "server-ended-line",
    ),
    # What pptp says lands here, too: pppd gives its log to what it runs.
    _rule(
        f"{_PPTP}connect: (?P<said>.*)",
        Cause.UNREACHABLE,
        "no-pptp-server-saying",
        ("pptp",),
        of_line=("server",),
    ),
    _rule(
        f"{_PPTP}Could not open control connection",
        Cause.UNREACHABLE,
        "no-pptp-server",
        ("pptp",),
        of_line=("server",),
    ),
    _rule(
        f"{_PPTP}(?:Negative reply received|Our outgoing call request)",
        Cause.REFUSED,
        "pptp-call-refused",
        ("pptp",),
    ),
    _rule(
        rf"{_PPTP}Reply result code is \d+ '(?P<said>.*)'",
        Cause.REFUSED,
        "pptp-call-refused-saying",
        ("pptp",),
    ),
    # pptp has ended without an error.
    _rule(r"Modem hangup", Cause.REFUSED, "pptp-call-ended", ("pptp",)),
)
"""The sentences of pppd's log. Of two that match at one place the first one applies."""

UNIT_LOG: Final[tuple[LogRule, ...]] = (
    _rule(
        rf"{_XL2TPD}Connection established to {_SOON}{_XL2TPD}Maximum retries exceeded",
        Cause.UNREACHABLE,
        "l2tp-call-unanswered",
    ),
    _rule(
        f"{_XL2TPD}(?:Maximum retries exceeded for tunnel|recvfrom returned error)",
        Cause.UNREACHABLE,
        "no-l2tp-server",
        of_line=("server", "port"),
    ),
    _rule(
        f"{_XL2TPD}No secret (?:key )?for authenticating",
        Cause.REFUSED,
        "l2tp-secret-wanted",
    ),
    _rule(r"unshare: (?P<said>.*)", Cause.FAILED, "no-own-mounts"),
    _rule(
        rf"{_XL2TPD}Connection closed to \S+ (?:port|serial) \d+ "
        r"\((?P<said>.+?)(?:\)(?:, Local: .*)?)?$",
        Cause.REFUSED,
        "server-closed-saying",
    ),
    *(
        _rule(
            rf"{_XL2TPD}message type {kind} {_SOON}"
            rf"{_XL2TPD}peer closing for reason {code} \(.*\), error = \d+ \(\)$",
            Cause.REFUSED,
            meaning,
        )
        for kind, code, meaning in _L2TP_CODES
    ),
    _rule(rf"{_XL2TPD}Connection closed to", Cause.REFUSED, "server-closed"),
)
"""The sentences of the unit's log, which has the output of the daemons around pppd."""

# --- Signs of reasons without a sentence. ---------------------------------------------------

ENDED: Final = re.compile(r"^rcvd \[LCP TermReq", re.MULTILINE)
TIMED_OUT: Final = re.compile(r"^LCP: timeout sending Config-Requests", re.MULTILINE)
LOGGED_IN: Final = re.compile(
    r"^(?:(?:\w+-)?(?:CHAP|PAP) authentication |sent \[IPCP )", re.MULTILINE
)
"""pppd speaks IPCP after the login alone. A log of endless IPCP has lost its beginning."""
PROOF_SENT: Final = re.compile(r"^sent \[(?:CHAP Response|PAP AuthReq)", re.MULTILINE)
TUNNEL: Final = re.compile(f"^{_XL2TPD}Connection established to", re.MULTILINE)
PROOF_ASKED: Final = re.compile(r"^rcvd \[LCP ConfReq [^\n]*<auth ([^>\n]+)>", re.MULTILINE)
"""The authentication protocol that a server demands, as pppd logs it with ``debug``."""
MPPE_ASKED: Final = re.compile(
    rf"^rcvd \[CCP ConfReq [^\n]*<mppe{_SOON}LCP terminated by peer$", re.MULTILINE
)
EAP: Final = say("eap-only")
NO_MS_CHAP: Final = say("no-ms-chap")
L2TP_MPPE: Final = say("mppe-in-l2tp")
IN_USE: Final = re.compile(
    r"already (?:logged|connected|online|active)|\bin use\b|simultaneous|concurrent|another session"
    # Other limits are excluded.
    r"|^(?!.*(?:attempt|fail|wrong|invalid|data|traffic|volume|quota|byte|\d ?[kmg]b|bandwidth"
    r"|\brate\b|(?<!same )time\b|timeout|hours|days?\b|month|expire|credit|balance))"
    r".*(?:(?:too many|multiple|maximum|max|no (?:free|more)|limit|exceed).*(?:sessions?|logins?"
    r"|logons?|connections?|users?)\b|(?:session|login|logon|connection|user).*(?:limit|exceed|max))",
    re.IGNORECASE,
)
"""The words with which servers refuse a second session of an account."""
LOCKED: Final = re.compile(r"attempt|failed log|login failures|locked", re.IGNORECASE)
"""The words with which a server that counts failed logins refuses even the right one."""
