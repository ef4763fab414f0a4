"""pppd's options file of a line.

pppd splits the file at white space, interprets quotes and backslashes, and runs the values of some
options in a shell. So a value from outside is written byte by byte as ``\\ooo`` unless it is a
letter or a digit (pppd(8), OPTIONS FILES; ``getword`` in pppd/options.c): nothing in it can end the
word it stands in.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.lines.dial import Dial

FILE: Final = "options"
LOG: Final = "ppp.log"
"""pppd's log file, in its working directory."""
FOLDER: Final = "ppp"
"""The folder that pppd sees as ``/etc/ppp``, in the same place."""
RESOLVERS: Final = f"{FOLDER}/resolv.conf"
"""The file of the DNS servers from the peer, in the form of resolv.conf(5). pppd writes it before
the interface has an address (``ipcp_up`` in pppd/ipcp.c).
"""

PPPD: Final = "/usr/sbin/pppd"
PPTP: Final = "/usr/sbin/pptp"

ARGV: Final = (PPPD, "file", FILE)
"""The command of a line whose pppd is not started by another daemon."""

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")

_COMMON: Final = (
    "nodetach",
    f"logfile {LOG}",
    # The log shows what is negotiated, from which a refusal without words is understood. Passwords
    # do not appear (hide-password is pppd's default).
    "debug",
    # LCP echoes are logged while the line is up, too.
    "debug",
    # egressd is the client: the server need not authenticate, and assigns the addresses.
    "noauth",
    "noipdefault",
    "ipcp-accept-local",
    "ipcp-accept-remote",
    "usepeerdns",
    "noipv6",
    # netd sets the routes.
    "nodefaultroute",
    # pppd tries once, then the supervisor decides.
    "maxfail 1",
    # netd judges the answers. No echo is sent on a line that receives traffic.
    "lcp-echo-interval 1",
    "lcp-echo-adaptive",
    "lcp-restart 2",
    "lcp-max-terminate 1",
    "refuse-eap",
    "novj",
    "nobsdcomp",
    "nodeflate",
    "nomp",
)
_UNITS: Final = 10_000
"""The first PPP unit of lines. Without it the kernel gives each line the lowest free unit, and a
WAN that is dialled later gets another name (``ppp1`` for ``ppp0``).
"""
_L2TP_MTU: Final = 1400
"""Bytes that fit an IPv4 packet of 1,500 bytes besides L2TP, UDP, ESP (AES, SHA-256) and NAT-T."""
_PPTP_MTU: Final = 1396
"""Bytes: 1,500 less IPv4 (20), GRE (16), PPP (4) and MPPE's overhead, as pppd counts it."""
MTU_MIN: Final = min(_L2TP_MTU, _PPTP_MTU)
"""Bytes of the largest IPv4 packet that every line carries, unless its server takes less."""

_L2TP: Final = ("noccp", f"mtu {_L2TP_MTU}", f"mru {_L2TP_MTU}")
_PPTP: Final = (
    f"mtu {_PPTP_MTU}",
    f"mru {_PPTP_MTU}",
    # MPPE's keys come from MS-CHAPv2 (RFC 3079, 3). Without it, or without MPPE, the line fails.
    "require-mppe-128",
    "refuse-pap",
    "refuse-chap",
    "refuse-mschap",
)


def l2tp_options(dial: Dial) -> str:
    """Return the options of the pppd that xl2tpd starts."""
    return _file(dial, _L2TP)


def pptp_options(dial: Dial) -> str:
    """Return the options of a pppd that runs pptp(8) as its other end."""
    # A shell runs it: the only values in it are parsed addresses.
    client = (
        f"exec {PPTP} {dial.server} --nolaunchpppd --nohostroute --loglevel 1 "
        f"--logstring pptp --localbind {dial.local}"
    )
    return _file(dial, (*_PPTP, f"pty {word(client)}"))


def _file(dial: Dial, options: tuple[str, ...]) -> str:
    named = (
        f"ifname {word(dial.line.name)}",
        f"unit {_UNITS + dial.line.id % _UNITS}",
        f"user {word(dial.line.username)}",
        f"password {word(dial.line.password)}",
    )
    return "\n".join((*named, *_COMMON, *options)) + "\n"


def word(value: str) -> str:
    """Return `value` as one word of an options file."""
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in value.encode()) + '"'
