"""The sentences of pppd, pptp and xl2tpd about a line that is not up, and the meaning of each.

The texts are those of pppd 2.4.9 and 2.5, xl2tpd 1.3.18 and pptp 1.10.0. A pattern begins with the
daemon's own words, since a server's words are quoted in all of them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from egressd.netd.lines.failure import Cause


class Sentence(NamedTuple):
    """A sentence of a daemon, and its meaning."""

    pattern: re.Pattern[str]
    cause: Cause
    reason: str
    """The text, with ``{}`` for each group of the pattern, ``{server}`` and ``{port}``."""
    kinds: tuple[str, ...]
    """The types of line to which it applies."""


_ALL: Final = ("l2tp", "pptp")


def _rule(pattern: str, cause: Cause, reason: str, kinds: tuple[str, ...] = _ALL) -> Sentence:
    return Sentence(re.compile(f"^{pattern}", re.MULTILINE), cause, reason, kinds)


NO_LOGIN: Final = "the server does not answer the login"
NO_ADDRESS: Final = "the server gave no IP address"
NO_CALL: Final = "the L2TP server does not answer the call"
_WRONG: Final = "the server refused the user name or password"
_WRONG_SAYING: Final = "the server refused the user name or password: {}"
_NO_WAY_IN: Final = "the server takes no kind of password that this line may use"
_NO_MPPE: Final = "the kernel cannot encrypt PPTP: it has no module ppp_mppe"
NO_MS_CHAP: Final = "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted"
L2TP_MPPE: Final = "the server wants MPPE inside L2TP, which egressd does not do"
_NO_PPTP: Final = "no PPTP server answers at {server}"
_PPTP: Final = r"pptp \w+\[[^]]*\]: "
_SOON: Final = r"(?:.*\n){0,99}?"
"""The lines up to another sentence. Without the bound a log full of the first sentence would be
searched again and again."""
_XL2TPD: Final = r"xl2tpd\[\d+\]: (?:\w+ ?: )?"

# Message types (RFC 2661, 3.2): Call-Disconnect-Notify, Stop-Control-Connection-Notification.
_CDN: Final = 14
_STOP_CCN: Final = 4
_L2TP_CODES: Final = (
    (_CDN, 3, "the server closed the connection for administrative reasons"),
    (_CDN, 4, "the server has no room for the call at the moment"),
    (_CDN, 5, "the server has no room for the call"),
    (_CDN, 10, "the call was not set up in the time that the server gives"),
    (_STOP_CCN, 3, "the server has a tunnel of this line already"),
    (_STOP_CCN, 4, "the server does not let this line have a tunnel"),
    (_STOP_CCN, 5, "the server speaks another version of L2TP"),
    (_STOP_CCN, 6, "the server is being shut down"),
)
"""Message types and result codes (RFC 2661, 4.4.2) that have a meaning without text. xl2tpd logs
for them the text of the other message's table.
"""

PPP_LOG: Final[tuple[Sentence, ...]] = (
    _rule(r"(?:CHAP|PAP) authentication failed due to protocol-reject", Cause.REFUSED, _NO_WAY_IN),
    _rule(
        r"MS-CHAPv2 mutual authentication failed",
        Cause.REFUSED,
        "the server does not know the password itself, and may be another than it should be",
    ),
    _rule(r"MS-CHAP authentication failed: (.+)", Cause.WRONG_PASSWORD, _WRONG_SAYING),
    _rule(
        r"Remote message: (.+)\nPAP authentication failed",
        Cause.WRONG_PASSWORD,
        _WRONG_SAYING,
    ),
    _rule(r"(?:CHAP|PAP) authentication failed: (.+)", Cause.WRONG_PASSWORD, _WRONG_SAYING),
    _rule(r"(?:CHAP|PAP) authentication failed", Cause.WRONG_PASSWORD, _WRONG),
    _rule(
        r"(?:No response to PAP authenticate-requests|CHAP authentication timed out)",
        Cause.UNREACHABLE,
        NO_LOGIN,
    ),
    _rule(
        r"MPPE required, but MS-CHAP",
        Cause.REFUSED,
        NO_MS_CHAP,
    ),
    _rule(r"MPPE required, but kernel has no support", Cause.MISSING, _NO_MPPE),
    _rule(
        r"MPPE (?:required but (?:peer|not available)|disabled)",
        Cause.REFUSED,
        "the server does not encrypt PPTP with 128 bits (MPPE)",
    ),
    _rule(r"No response to \d+ echo-requests", Cause.LOST, "the server stopped answering"),
    _rule(
        r"Serial line is looped back",
        Cause.REFUSED,
        "what is sent to the server comes back unchanged",
    ),
    _rule(
        r"(?:Could not determine local IP address|Peer refused to agree to our IP"
        r"|IPCP: timeout sending Config-Requests)",
        Cause.REFUSED,
        NO_ADDRESS,
    ),
    _rule(
        r"local  IP address (\S+)\nremote IP address \1$",
        Cause.REFUSED,
        "the server gives both ends of the line one address, {}",
    ),
    _rule(
        r"Couldn't (?:set tty to PPP discipline|open the /dev/ppp)(.*)",
        Cause.MISSING,
        "the kernel cannot do PPP{}",
    ),
    _rule(
        r"LCP: timeout sending Config-Requests",
        Cause.UNREACHABLE,
        "the PPTP server takes the call by TCP, but no GRE comes from it: something on the way "
        "drops IP protocol 47",
        ("pptp",),
    ),
    _rule(
        r"LCP: timeout sending Config-Requests",
        Cause.UNREACHABLE,
        "the L2TP server takes the call, but no PPP comes from it",
        ("l2tp",),
    ),
    # pppd cuts a message at 1,023 bytes, and a packet's text at 255.
    _rule(r"LCP terminated by peer \(.*MPPE", Cause.REFUSED, L2TP_MPPE, ("l2tp",)),
    _rule(r"LCP terminated by peer \((.+?)\)?$", Cause.REFUSED, "the server ended the line: {}"),
    _rule(r"LCP terminated by peer", Cause.REFUSED, "the server ended the line"),
    # Before LCP is open pppd does not log it in words, and continues.
    _rule(
        r'rcvd \[LCP TermReq id=\S+ "(.*?)(?:"[^"\n]*\])?$(?!\nLCP terminated)',
        Cause.REFUSED,
        "the server ended the line: {}",
    ),
    _rule(
        r"rcvd \[LCP TermReq [^\n]*$(?!\nLCP terminated)",
        Cause.REFUSED,
        "the server ended the line",
    ),
    # What pptp says lands here, too: pppd gives its log to what it runs.
    _rule(f"{_PPTP}connect: (.*)", Cause.UNREACHABLE, f"{_NO_PPTP}: {{}}", ("pptp",)),
    _rule(f"{_PPTP}Could not open control connection", Cause.UNREACHABLE, _NO_PPTP, ("pptp",)),
    _rule(
        f"{_PPTP}(?:Negative reply received|Our outgoing call request)",
        Cause.REFUSED,
        "the PPTP server takes no call of this line",
        ("pptp",),
    ),
    _rule(
        rf"{_PPTP}Reply result code is \d+ '(.*)'",
        Cause.REFUSED,
        "the PPTP server takes no call of this line: {}",
        ("pptp",),
    ),
    # pptp has ended without an error.
    _rule(r"Modem hangup", Cause.REFUSED, "the PPTP server ended the call", ("pptp",)),
)
"""The sentences of pppd's log. Of two that match at one place the first one applies."""

UNIT_LOG: Final[tuple[Sentence, ...]] = (
    _rule(
        rf"{_XL2TPD}Connection established to {_SOON}{_XL2TPD}Maximum retries exceeded",
        Cause.UNREACHABLE,
        NO_CALL,
    ),
    _rule(
        f"{_XL2TPD}(?:Maximum retries exceeded for tunnel|recvfrom returned error)",
        Cause.UNREACHABLE,
        "no L2TP server answers at {server} port {port}",
    ),
    _rule(
        f"{_XL2TPD}No secret (?:key )?for authenticating",
        Cause.REFUSED,
        "the server wants a secret of L2TP's own, beside IPsec's, which lines do not have",
    ),
    _rule(r"unshare: (.*)", Cause.FAILED, "its daemons may not have mounts of their own: {}"),
    _rule(
        rf"{_XL2TPD}Connection closed to \S+ (?:port|serial) \d+ \((.+?)(?:\)(?:, Local: .*)?)?$",
        Cause.REFUSED,
        "the server closed the connection: {}",
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
    _rule(rf"{_XL2TPD}Connection closed to", Cause.REFUSED, "the server closed the connection"),
)
"""The sentences of the unit's log, which has the output of the daemons around pppd."""

# --- Signs of reasons without a sentence. ---------------------------------------------------

ENDED: Final = re.compile(r"^rcvd \[LCP TermReq", re.MULTILINE)
TIMED_OUT: Final = re.compile(r"^LCP: timeout sending Config-Requests", re.MULTILINE)
LOGGED_IN: Final = re.compile(r"^(?:\w+-)?(?:CHAP|PAP) authentication ", re.MULTILINE)
PROOF_SENT: Final = re.compile(r"^sent \[(?:CHAP Response|PAP AuthReq)", re.MULTILINE)
TUNNEL: Final = re.compile(f"^{_XL2TPD}Connection established to", re.MULTILINE)
PROOF_ASKED: Final = re.compile(r"^rcvd \[LCP ConfReq [^\n]*<auth ([^>\n]+)>", re.MULTILINE)
"""The authentication protocol that a server demands, as pppd logs it with ``debug``."""
MPPE_ASKED: Final = re.compile(
    rf"^rcvd \[CCP ConfReq [^\n]*<mppe{_SOON}LCP terminated by peer$", re.MULTILINE
)
EAP: Final = "the server insists on EAP, by which lines do not log in"
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
