"""The program to run for a line, the files it reads, and the folders it must not see."""

from __future__ import annotations

from typing import Any

import msgspec

from egressd.planner.lines import pppd, xl2tpd
from egressd.planner.lines.dial import Dial, check


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """The program of a line. It runs in a folder of its own, which is its working directory."""

    argv: tuple[str, ...]
    files: dict[str, str]
    """Name in the folder -> content. Only these files hold secrets."""
    covers: dict[str, str]
    """Name of a subfolder -> the system's folder that it replaces in the daemon's view."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("argv", self.argv), ("files", sorted(self.files)), ("covers", self.covers)]

    def __repr__(self) -> str:
        return f"Daemon({', '.join(f'{k}={v!r}' for k, v in self.__rich_repr__())})"


def daemon(dial: Dial) -> Daemon:
    """Return the daemon for this attempt. Raises Invalid when the line cannot be dialled."""
    check(dial.line)
    if dial.line.type == "pptp":
        return Daemon(
            argv=pppd.ARGV,
            files={pppd.FILE: pppd.pptp_options(dial)},
            # Call managers of two lines to one server would meet in /run/pptp and end each other.
            covers={pppd.FOLDER: "/etc/ppp", "pptp": "/run/pptp"},
        )
    return Daemon(
        argv=xl2tpd.ARGV,
        files={
            pppd.FILE: pppd.l2tp_options(dial),
            xl2tpd.FILE: xl2tpd.configuration(dial),
        },
        # pppd would first read the system's options, and would write its resolv.conf there.
        covers={pppd.FOLDER: "/etc/ppp"},
    )
