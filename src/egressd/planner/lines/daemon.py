"""What is run for a line: the program, the files it reads, and what it must not see."""

from __future__ import annotations

from typing import Any

import msgspec

from egressd.planner.lines import pppd, xl2tpd
from egressd.planner.lines.dial import Dial, check


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """What is run for a line, in a folder of its own that is also the working directory."""

    argv: tuple[str, ...]
    files: dict[str, str]
    """Name in the folder -> content. Secrets are here, and nowhere else."""
    covers: dict[str, str]
    """Folder in the folder -> the system's folder that the daemon sees it in place of."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("argv", self.argv), ("files", sorted(self.files)), ("covers", self.covers)]

    def __repr__(self) -> str:
        return f"Daemon({', '.join(f'{k}={v!r}' for k, v in self.__rich_repr__())})"


def daemon(dial: Dial) -> Daemon:
    """What to run for this attempt. Raises Invalid when the line cannot be dialled."""
    check(dial.line)
    if dial.line.type == "pptp":
        return Daemon(
            argv=pppd.ARGV,
            files={pppd.FILE: pppd.pptp_options(dial)},
            # Call managers of two lines to one server meet in /run/pptp and end each other.
            covers={"ppp": "/etc/ppp", "pptp": "/run/pptp"},
        )
    return Daemon(
        argv=xl2tpd.ARGV,
        files={
            pppd.FILE: pppd.l2tp_options(dial),
            xl2tpd.FILE: xl2tpd.configuration(dial),
        },
        # pppd would read the system's options first and write its resolv.conf there.
        covers={"ppp": "/etc/ppp"},
    )
