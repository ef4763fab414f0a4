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
from typing import Final, Literal

Weight = Literal["blocking", "limiting", "note"]
"""Blocking: clients stay blocked, or the service does not start. Limiting: a function is missing.
Note: worth knowing before the start."""

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
class MachineFinding:
    """One thing that the machine lacks."""

    weight: Weight
    subject: str
    text: str
    cost: str
    cure: str


@dataclass(frozen=True)
class Modules:
    """Kernel modules for one function; the kernel has them built in, loaded, or on disk."""

    names: tuple[str, ...]
    weight: Weight
    cost: str


_MODULES: Final = (
    Modules(
        ("nf_tables", "nft_ct", "nft_nat", "nft_masq", "nft_fib_inet", "nft_numgen"),
        "blocking",
        "netd cannot write its rules, and every client stays blocked",
    ),
    Modules(
        ("nft_tproxy", "nft_socket"),
        "blocking",
        "the engine cannot receive traffic: clients of nodes, groups and resolvers are blocked",
    ),
    Modules(
        ("sch_htb", "sch_tbf", "sch_fq_codel", "ifb", "act_mirred"),
        "limiting",
        "speed limits are not enforced",
    ),
    Modules(("ppp_generic", "pppox"), "limiting", "VPN lines cannot be dialled"),
    Modules(("l2tp_core", "l2tp_netlink", "l2tp_ppp"), "limiting", "no L2TP lines"),
    Modules(("ppp_mppe",), "limiting", "no PPTP lines with encryption"),
    Modules(("esp4", "xfrm_user"), "limiting", "no L2TP lines with IPsec"),
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
            "note",
            "kernel",
            f"Linux {look.release} is older than 6.1, the oldest tested version",
            "functions may be missing",
            "apt install linux-image-amd64 (arm64: linux-image-arm64), and boot it",
        )
    if look.linux < FAST_PATH_LINUX or not look.exists("sys/kernel/btf/vmlinux"):
        yield MachineFinding(
            "limiting",
            "fast path",
            "the kernel has no BTF (/sys/kernel/btf/vmlinux), or is older than 6.0",
            "all packets take the slow path: less throughput for known flows",
            "a kernel with CONFIG_DEBUG_INFO_BTF=y, such as Debian's",
        )
    present = look.modules()
    if not present:
        yield MachineFinding(
            "note",
            "kernel modules",
            f"/lib/modules/{look.release} has no list of modules",
            "it is not known what the kernel can do; netd reports it when it starts",
            "none is needed if the service runs without problems",
        )
        return
    for group in _MODULES:
        if missing := [name for name in group.names if name not in present]:
            yield MachineFinding(
                group.weight,
                "kernel modules",
                f"the kernel has no {', '.join(missing)}",
                group.cost,
                "a kernel with these modules, such as Debian's linux-image-amd64 or -arm64",
            )


def roles(
    lans: Sequence[str], wans: Sequence[str], missing: Sequence[str]
) -> Iterator[MachineFinding]:
    """Yield what is missing among the interfaces, given their present roles."""
    if not lans:
        yield MachineFinding(
            "blocking",
            "LAN",
            "no interface is a LAN",
            "there is no client",
            "give the LAN's interface a private address, or set [lan] interfaces",
        )
    if not wans:
        yield MachineFinding(
            "blocking",
            "WAN",
            "no interface has a default route",
            "no traffic leaves, except by lines",
            "configure the uplink, or set [wan] interfaces and [wan] gateways",
        )
    for name in missing:
        yield MachineFinding(
            "blocking",
            "interfaces",
            f"the configuration names {name}, which this machine does not have now",
            "its clients are blocked until it is there",
            "correct [lan] or [wan] interfaces, or plug it in",
        )


def ports(taken: set[int], wanted: dict[int, str], is_running: bool) -> Iterator[MachineFinding]:
    """Yield the ports that another program has taken. egressd's own are no obstacle."""
    if is_running:
        return
    for port, purpose in sorted(wanted.items()):
        if port in taken:
            yield MachineFinding(
                "blocking",
                "ports",
                f"another program listens at TCP port {port}, which is for {purpose}",
                "the api does not start",
                f"stop it (ss -ltnp 'sport = :{port}'), or change [api] in the configuration",
            )


def system(look: Look, is_running: bool) -> Iterator[MachineFinding]:
    """Yield what the rest of the system lacks."""
    servers = re.findall(r"^nameserver\s+(\S+)", look.text("etc/resolv.conf"), re.MULTILINE)
    if not [server for server in servers if _is_elsewhere(server)]:
        yield MachineFinding(
            "limiting",
            "resolvers",
            "/etc/resolv.conf names no server that is not on this machine",
            "names are asked at [dns] domestic instead",
            "set [dns] device to resolvers that clients can reach",
        )
    if DHCP_PORT not in look.udp_ports():
        yield MachineFinding(
            "note",
            "DHCP",
            "no DHCP server runs here (UDP port 67)",
            "clients use this machine only if they have it as their gateway",
            "docs/deployment.md has files for dnsmasq; or set the gateway on your DHCP server",
        )
    found = re.search(r"^MemTotal:\s+(\d+) kB", look.text("proc/meminfo"), re.MULTILINE)
    if found and int(found[1]) < LEAST_MEMORY_KIB:
        yield MachineFinding(
            "note",
            "memory",
            f"the machine has {int(found[1]) // 1024} MiB",
            "large configurations and imports may need more; 1 GB is recommended",
            "[engine] workers = 1 saves a worker's memory",
        )
    if look.text("proc/sys/net/ipv4/ip_forward").strip() == "1" and not is_running:
        yield MachineFinding(
            "note",
            "forwarding",
            "this machine forwards packets now",
            "once egressd runs, clients without a rule are blocked",
            "read docs/deployment.md, Before the first start; make rules at once",
        )


def clock(now_s: float) -> Iterator[MachineFinding]:
    """Yield a finding if the wall clock is wrong for certain."""
    if now_s < FIRST_DATE_S:
        yield MachineFinding(
            "limiting",
            "time",
            "the clock shows a year before 2025",
            "TLS to nodes fails, and the console's certificate is not valid yet",
            "apt install systemd-timesyncd, or set the clock (date)",
        )


def disk(free_bytes: int, folder: Path) -> Iterator[MachineFinding]:
    """Yield a finding if the data folder's file system is nearly full."""
    if free_bytes < LEAST_DISK_BYTES:
        yield MachineFinding(
            "limiting",
            "disk",
            f"{free_bytes // 2**20} MiB are free for {folder}",
            "changes are refused once it is full; what is in force stays in force",
            "free at least 200 MiB",
        )


def _is_elsewhere(server: str) -> bool:
    try:
        return not ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return False
