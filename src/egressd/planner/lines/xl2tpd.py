"""xl2tpd's configuration of a line. Each line has its own daemon.

A daemon with several lines to one server mixes them up, and a newline or ``[`` in a value would add
keys or open a section (``parse_config`` in file.c, whose lines end at 1,023 bytes and strings at
99). No text from outside stands in this file, only addresses and numbers.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.lines import pppd
from egressd.planner.lines.dial import Dial

FILE: Final = "xl2tpd.conf"

XL2TPD: Final = "/usr/sbin/xl2tpd"

ARGV: Final = (
    XL2TPD,
    "-D",
    *("-c", FILE),
    *("-p", "xl2tpd.pid"),
    *("-C", "control"),
    *("-s", "l2tp-secrets"),
)


def configuration(dial: Dial) -> str:
    """Return a configuration that dials once at the start, and not again: the supervisor redials.

    A server counts as unreachable if a message sent at 0, 1 and 3 s is unanswered at 7 s.
    """
    return "\n".join(
        (
            "[global]",
            f"listen-addr = {dial.local}",
            f"port = {dial.local_port}",
            "max retries = 3",
            # No host may dial in: no peer is listed.
            "access control = yes",
            # A server's reason for a refusal is only logged so, when it has no words.
            "debug avp = yes",
            "[lac line]",
            f"lns = {dial.server}:{dial.line.port}",
            "autodial = yes",
            "redial = no",
            "require authentication = no",
            "pass peer = no",
            f"pppoptfile = {pppd.FILE}",
            "",
        )
    )
