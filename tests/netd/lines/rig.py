"""A stand-in for xl2tpd and pppd: it writes their output, and makes an interface.

The real daemons need a kernel with PPP; ``tests/vm`` tests them. Everything else is real: units,
netlink, routes, policy rules.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec

from egressd.model.messages import LineStatus
from egressd.model.nouns import Line
from egressd.netd.lines import backoff, line_controller
from egressd.netd.lines.host_environment import HostEnvironment
from egressd.netd.lines.lines import DialledLines
from egressd.planner.lines import daemon as lines_daemon
from egressd.planner.lines.daemon import Daemon
from egressd.planner.lines.dial import Dial

SERVER = "203.0.113.9"

STAND_IN = r"""
field() { sed -n "s/^$1 \"\(.*\)\"$/\1/p" options | sed 's/\\137/_/g'; }
name=$(field ifname)
trap 'echo "$name" >> ../../byes; ip link delete "$name"; exit 0' TERM
up() {
    ip link delete "$name" 2> /dev/null
    printf 'nameserver 9.9.9.9\nnameserver 8.8.8.8\n' > ppp/resolv.conf
    ip link add "$name" type ifb
    ip address add 10.9.0.2 peer 10.9.0.1 dev "$name"
    ip link set "$name" up
    printf 'local  IP address 10.9.0.2\nremote IP address 10.9.0.1\n' >> ppp.log
}
case $(field user) in
    good) up ;;
    wrong)
        echo 'MS-CHAP authentication failed: Access denied' >> ppp.log
        echo 'child_handler : pppd exited for call 1 with code 19' ;;
    held)
        [ -e ../../held ] || up
        [ ! -e ../../held ] || {
            ip link delete "$name" 2> /dev/null  # a real one goes with its pppd
            cat ../../held >> ppp.log
            exit 19
        } ;;
    dies) echo 'Modem on fire' >> ppp.log; exit 3 ;;
esac
while :; do sleep 0.05; done
"""

NETWORK = """
ip link add wan1 type ifb; ip address add 192.0.2.2/24 dev wan1; ip link set wan1 up
ip link add wan2 type ifb; ip address add 198.51.100.2/24 dev wan2; ip link set wan2 up
ip route add default via 192.0.2.1 metric 100
ip route add default via 198.51.100.1 metric 200
ip rule add from 198.51.100.2 iif lo lookup 77 priority 210
ip route add default via 198.51.100.1 table 77
"""


def line(number: int = 1, **changes: Any) -> Line:
    made = Line(
        id=number,
        type="l2tp",
        name=f"l2tp_{number}",
        server=SERVER,
        port=1701,
        username="good",
        password="p",
    )
    return msgspec.structs.replace(made, **changes)


def sh(script: str) -> str:
    done = subprocess.run(["sh", "-ec", script], check=True, capture_output=True, text=True)
    return done.stdout


class Site:
    """Lines with stand-ins, in the namespace of the process."""

    def __init__(self, run_dir: Path, *, may_dial: bool | None = True) -> None:
        self.run_dir = run_dir
        self.told: list[str] = []
        self.lines = self.dialled(may_dial=may_dial)

    def dialled(self, *, may_dial: bool | None = True) -> DialledLines:
        logins = self.run_dir / "logins.json"
        return DialledLines(self.run_dir, logins, self.told.append, may_dial=may_dial)

    async def apply(self, *wanted: Line) -> None:
        await self.lines.apply({line.name: line for line in wanted})

    async def until(
        self,
        condition: Callable[[LineStatus], bool],
        name: str = "l2tp_1",
        timeout_s: float = 8,
    ) -> LineStatus:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition(self.lines.status()[name]):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{name} is still {self.lines.status()[name]}") from None
        return self.lines.status()[name]

    async def online(self, name: str = "l2tp_1", timeout_s: float = 8) -> LineStatus:
        return await self.until(lambda status: status.is_online, name, timeout_s)

    async def state(self, state: str, name: str = "l2tp_1") -> LineStatus:
        return await self.until(lambda status: status.state == state, name)

    def folder(self, name: str = "l2tp_1") -> Path:
        return self.run_dir / "units" / name

    def pid(self, name: str = "l2tp_1") -> int:
        return int(msgspec.json.decode((self.folder(name) / "unit.json").read_bytes())["pid"])

    def byes(self) -> list[str]:
        """Return the lines that logged off from the server."""
        path = self.run_dir / "byes"
        return path.read_text().split() if path.exists() else []


def install(run_dir: Path, *, checks_means: bool = False) -> None:
    """Replace the real daemons by stand-ins. To be called once, in the child of a test."""
    script = run_dir / "stand-in"
    script.write_text(STAND_IN)

    def daemon(dial: Dial) -> Daemon:
        real = lines_daemon.daemon(dial)
        return Daemon(argv=("/bin/sh", str(script)), files=real.files, covers=real.covers)

    async def pass_by(self: HostEnvironment, line: Line) -> None:
        pass

    line_controller.daemon = daemon  # type: ignore[attr-defined]
    backoff.AT_ONCE_S = 0.6  # type: ignore[misc]  # long enough to be seen on a busy machine
    if not checks_means:
        HostEnvironment.check_means = pass_by  # type: ignore[method-assign]


@asynccontextmanager
async def opened(
    run_dir: Path, *, checks_means: bool = False, may_dial: bool | None = True
) -> AsyncIterator[Site]:
    """Yield a site on the network of `NETWORK`, ended with the block unless it was released."""
    install(run_dir, checks_means=checks_means)
    sh(NETWORK)
    site = Site(run_dir, may_dial=may_dial)
    await site.lines.find()
    await site.lines.open()
    try:
        yield site
    finally:
        await site.lines.close()


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


DIAL = Dial(
    line=Line(
        id=1, type="l2tp", name="l2tp_1", server="vpn", port=1702, username="u", password="p"
    ),
    server=IPv4Address("203.0.113.9"),
    local=IPv4Address("198.51.100.2"),
)
