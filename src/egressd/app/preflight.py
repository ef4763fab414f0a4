"""The readiness of a machine: each thing that egressd would lack here, its cost, and its cure.

It reads files of the kernel and of the system, changes nothing, and needs neither a running service
nor the network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from egressd.model.findings import MachineFinding, Weight
from egressd.model.wording import Sentence, say

FAST_PATH_LINUX: Final = (6, 0)
"""The oldest version of Linux with the fast path."""
LEAST_LINUX: Final = (6, 1)
"""The oldest tested version of Linux: Debian 12's."""
LEAST_MEMORY_KIB: Final = 900_000
"""KiB of memory that README.md asks for: 1 GB, less the kernel's own part."""
LEAST_DISK_BYTES: Final = 200 * 2**20
"""Bytes of free space for database, backups and the log of changes."""
FIRST_DATE_S: Final = 1_735_689_600
"""Seconds of the wall clock, 2025-01-01: an earlier time is that of a clock without a battery."""
DHCP_PORT: Final = 67


@dataclass(frozen=True)
class Modules:
    """Kernel modules for one function; the kernel has them built in, loaded, or on disk."""

    names: tuple[str, ...]
    weight: Weight
    cost: Sentence


_MODULES: Final = (
    Modules(
        ("nf_tables", "nft_ct", "nft_nat", "nft_masq", "nft_fib_inet", "nft_numgen"),
        "blocking",
        say("modules-cost-rules"),
    ),
    Modules(
        ("nft_tproxy", "nft_socket"),
        "blocking",
        say("modules-cost-engine"),
    ),
    Modules(
        ("sch_htb", "sch_tbf", "sch_fq_codel", "ifb", "act_mirred"),
        "limiting",
        say("modules-cost-limits"),
    ),
    Modules(("ppp_generic", "pppox"), "limiting", say("modules-cost-lines")),
    Modules(("l2tp_core", "l2tp_netlink", "l2tp_ppp"), "limiting", say("modules-cost-l2tp")),
    Modules(("ppp_mppe",), "limiting", say("modules-cost-pptp")),
    Modules(("esp4", "xfrm_user"), "limiting", say("modules-cost-ipsec")),
)


class Look:
    """The files of a machine."""

    def __init__(self, root: Path = Path("/"), release: str = "") -> None:
        """`release` is the kernel's, as uname(1) prints it; by default the running kernel's."""
        self._root = root
        self.release = release or os.uname().release

    def text(self, name: str) -> str:
        """Return a file's text; empty if it cannot be read."""
        with suppress(OSError):
            return (self._root / name).read_text(errors="replace")
        return ""

    def exists(self, name: str) -> bool:
        """True if there is such a file."""
        return (self._root / name).exists()

    @property
    def linux(self) -> tuple[int, int]:
        """The kernel's version."""
        found = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def modules(self) -> frozenset[str]:
        """Return the modules that the kernel has or can load; empty if that is not known.

        A kernel without module support has no list, nor does a container.
        """
        folder = f"lib/modules/{self.release}"
        listed = [*self.text(f"{folder}/modules.dep").splitlines()]
        listed += self.text(f"{folder}/modules.builtin").splitlines()
        names = {re.sub(r"\.ko.*", "", Path(line.partition(":")[0]).name) for line in listed}
        if not names:
            return frozenset()
        with suppress(OSError):
            names.update(path.name for path in (self._root / "sys/module").iterdir())
        return frozenset(name.replace("-", "_") for name in names)

    def udp_ports(self) -> set[int]:
        """Return the UDP ports that programs are bound to (proc(5), /proc/net/udp)."""
        rows = self.text("proc/net/udp").splitlines()[1:]
        return {int(row.split()[1].rpartition(":")[2], 16) for row in rows if len(row.split()) > 1}


def kernel(look: Look) -> Iterator[MachineFinding]:
    """Yield what the kernel lacks."""
    if look.linux < LEAST_LINUX:
        yield MachineFinding(
            weight="note",
            subject="kernel",
            text=say("kernel-old", release=look.release),
            cost=say("kernel-old-cost"),
            cure=say("kernel-old-cure"),
        )
    if look.linux < FAST_PATH_LINUX or not look.exists("sys/kernel/btf/vmlinux"):
        yield MachineFinding(
            weight="limiting",
            subject="fast path",
            text=say("no-btf"),
            cost=say("no-btf-cost"),
            cure=say("no-btf-cure"),
        )
    present = look.modules()
    if not present:
        yield MachineFinding(
            weight="note",
            subject="kernel modules",
            text=say("modules-unknown", release=look.release),
            cost=say("modules-unknown-cost"),
            cure=say("modules-unknown-cure"),
        )
        return
    for group in _MODULES:
        if missing := [name for name in group.names if name not in present]:
            yield MachineFinding(
                weight=group.weight,
                subject="kernel modules",
                text=say("modules-missing", names=tuple(missing)),
                cost=group.cost,
                cure=say("modules-cure"),
            )


def roles(
    lans: Sequence[str], wans: Sequence[str], missing: Sequence[str]
) -> Iterator[MachineFinding]:
    """Yield what is missing among the interfaces, given their present roles."""
    if not lans:
        yield MachineFinding(
            weight="blocking",
            subject="LAN",
            text=say("no-lan-here"),
            cost=say("no-lan-here-cost"),
            cure=say("no-lan-here-cure"),
        )
    if not wans:
        yield MachineFinding(
            weight="blocking",
            subject="WAN",
            text=say("no-wan-here"),
            cost=say("no-wan-here-cost"),
            cure=say("no-wan-here-cure"),
        )
    for name in missing:
        yield MachineFinding(
            weight="blocking",
            subject="interfaces",
            text=say("interface-named", name=name),
            cost=say("interface-named-cost"),
            cure=say("interface-named-cure"),
        )


def one_arm(lans: Sequence[str], wans: Sequence[str]) -> Iterator[MachineFinding]:
    """Yield a finding if an interface is LAN and WAN: see the chain `from_elsewhere`."""
    if both := [name for name in lans if name in wans]:
        yield MachineFinding(
            weight="note",
            subject="one-arm use",
            text=say("one-arm", names=tuple(both)),
            cost=say("one-arm-cost"),
            cure=say("one-arm-cure"),
        )


def ports(taken: set[int], wanted: dict[int, str], is_running: bool) -> Iterator[MachineFinding]:
    """Yield the ports that another program has taken. egressd's own are no obstacle."""
    if is_running:
        return
    for port, purpose in sorted(wanted.items()):
        if port in taken:
            yield MachineFinding(
                weight="blocking",
                subject="ports",
                text=say("port-taken", port=port, purpose=purpose),
                cost=say("port-taken-cost"),
                cure=say("port-taken-cure", port=port),
            )


def resolvers(look: Look) -> Iterator[MachineFinding]:
    """Yield a finding if the system names no resolver that clients could be sent to. The
    configuration may name others.
    """
    servers = re.findall(r"^nameserver\s+(\S+)", look.text("etc/resolv.conf"), re.MULTILINE)
    if not [server for server in servers if _is_elsewhere(server)]:
        yield MachineFinding(
            weight="limiting",
            subject="resolvers",
            text=say("no-resolver"),
            cost=say("no-resolver-cost"),
            cure=say("no-resolver-cure"),
        )


def system(look: Look, is_running: bool) -> Iterator[MachineFinding]:
    """Yield what the rest of the system lacks."""
    if DHCP_PORT not in look.udp_ports():
        yield MachineFinding(
            weight="note",
            subject="DHCP",
            text=say("no-dhcp"),
            cost=say("no-dhcp-cost"),
            cure=say("no-dhcp-cure"),
        )
    found = re.search(r"^MemTotal:\s+(\d+) kB", look.text("proc/meminfo"), re.MULTILINE)
    if found and int(found[1]) < LEAST_MEMORY_KIB:
        yield MachineFinding(
            weight="note",
            subject="memory",
            text=say("little-memory", mib=int(found[1]) // 1024),
            cost=say("little-memory-cost"),
            cure=say("little-memory-cure"),
        )
    if look.text("proc/sys/net/ipv4/ip_forward").strip() == "1" and not is_running:
        yield MachineFinding(
            weight="note",
            subject="forwarding",
            text=say("forwards-already"),
            cost=say("forwards-already-cost"),
            cure=say("forwards-already-cure"),
        )


def clock(now_s: float) -> Iterator[MachineFinding]:
    """Yield a finding if the wall clock is wrong for certain."""
    if now_s < FIRST_DATE_S:
        yield MachineFinding(
            weight="limiting",
            subject="time",
            text=say("clock-wrong"),
            cost=say("clock-wrong-cost"),
            cure=say("clock-wrong-cure"),
        )


def disk(free_bytes: int, folder: Path) -> Iterator[MachineFinding]:
    """Yield a finding if the data folder's file system is nearly full."""
    if free_bytes < LEAST_DISK_BYTES:
        yield MachineFinding(
            weight="limiting",
            subject="disk",
            text=say("little-disk", mib=free_bytes // 2**20, folder=str(folder)),
            cost=say("little-disk-cost"),
            cure=say("little-disk-cure"),
        )


def _is_elsewhere(server: str) -> bool:
    try:
        return not ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return False
