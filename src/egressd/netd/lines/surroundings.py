"""What lines ask the machine they are dialled from."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, TypeVar

from egressd.model.facts import Facts, Interface
from egressd.model.nouns import Line
from egressd.netd.kernel import facts as kernel_facts
from egressd.netd.kernel.facts import Watcher
from egressd.netd.kernel.netlink import NetlinkError
from egressd.netd.lines.failure import Cause, Failure
from egressd.planner.lines import address as lines_address
from egressd.planner.lines import ipsec, pppd, xl2tpd
from egressd.planner.lines.address import Taken
from egressd.planner.lines.carrier import Carrier

T = TypeVar("T")

_PPP: Final = {pppd.PPPD: "ppp"}
_PROGRAMS: Final = {
    "l2tp": {xl2tpd.XL2TPD: "xl2tpd", **_PPP},
    "pptp": {pppd.PPTP: "pptp-linux", **_PPP},
}
_IPSEC_PROGRAMS: Final = {
    ipsec.DAEMON: "charon-systemd",
    "/usr/lib/ipsec/plugins/libstrongswan-openssl.so": "libstrongswan-standard-plugins",
}
"""File that must be there -> the Debian package that brings it."""

_AF_PPPOX: Final = 24  # linux/socket.h
_PX_PROTO_OL2TP: Final = 1  # linux/if_pppox.h
_NETLINK_XFRM: Final = 6  # linux/netlink.h
_MODULES: Final = Path("/lib/modules")
_TOOL_S: Final = 8.0
_THREADS: Final = 8  # names of servers that are resolved at the same time


class Surroundings:
    """The machine and its network as they are.

    ``on_change`` is called soon after interfaces, addresses or routes changed; ``facts`` are new
    then.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.facts = Facts()
        self.looks = 0
        """How often the machine was looked at."""
        self.taken = Taken()
        """Addresses that no line may have."""
        self._on_change = on_change
        self._watcher = Watcher(self.look)
        # Not the event loop's own threads, nor one for both: a resolver that hangs must hold up
        # nobody else, lines whose server is an address neither.
        self._resolving = ThreadPoolExecutor(_THREADS, "line-names")
        self._checking = ThreadPoolExecutor(1, "line-means")

    async def open(self) -> None:
        """Look, and begin to watch."""
        await self.look()
        await self._watcher.__aenter__()

    async def close(self) -> None:
        """Watch no more."""
        await self._watcher.__aexit__(None, None, None)
        for threads in (self._resolving, self._checking):
            threads.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """Read anew what the machine has."""
        self.facts = kernel_facts.read()
        self.looks += 1
        self._on_change()

    def link(self, name: str) -> Interface | None:
        """The interface of a line, once it is up with the addresses of both its ends."""
        interface = self.facts.interfaces.get(name)
        if interface is None or not (interface.is_up and interface.addresses and interface.peers):
            return None
        return interface

    def objection(self, name: str) -> str:
        """Why a line must not have the addresses that it has: see `lines_address.objection`."""
        return lines_address.objection(name, self.facts, self.taken)

    async def address(self, host: str, turn: int) -> IPv4Address:
        """The address of a server; of several that a name has, another each turn.

        Raises Failure.
        """
        with suppress(ValueError):
            return IPv4Address(host)
        found = await _run(self._resolving, lambda: _resolve(host))
        if not found:
            raise Failure(Cause.UNREACHABLE, f"the server's name {host} cannot be resolved")
        return found[turn % len(found)]

    def check_way(self, server: IPv4Address, carrier: Carrier) -> None:
        """Raise Failure unless packets from the carrier's address to `server` leave by it.

        So that a line is not dialled by the wrong WAN in the moment before its policy rule is
        there.
        """
        told = "there is no route"
        with suppress(NetlinkError):
            index = kernel_facts.device_towards(server, carrier.address)
            known = {found.index: found for found in self.facts.interfaces.values()}
            found = known.get(index, Interface(name=f"interface {index}", index=index))
            if found.name == carrier.interface:
                return
            told = f"they would leave by {found.name}"
            if carrier.address in (each.ip for each in found.addresses):
                told = f"{found.name} has the same address, {carrier.address}"
        raise Failure(
            Cause.NO_CARRIER, f"packets do not reach {server} by {carrier.interface}: {told}"
        )

    async def check_means(self, line: Line) -> None:
        """Raise Failure when a program or the kernel's part is missing, saying what to install."""
        # In a thread, since the kernel may have modules to load first.
        if missing := await _run(self._checking, lambda: _missing(line)):
            raise Failure(Cause.MISSING, missing)


def _run(threads: ThreadPoolExecutor, call: Callable[[], T]) -> Awaitable[T]:
    return asyncio.get_running_loop().run_in_executor(threads, call)


def _resolve(host: str) -> list[IPv4Address]:
    """The IPv4 addresses of a name. By a process, since the C library's call cannot be ended."""
    with suppress(subprocess.TimeoutExpired, ValueError):
        lines = _output(["getent", "ahostsv4", host]).stdout.decode().splitlines()
        return list(dict.fromkeys(IPv4Address(line.split()[0]) for line in lines))
    return []


def _output(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, capture_output=True, timeout=_TOOL_S)


def _missing(line: Line) -> str:
    """What must be installed before `line` can be dialled, or nothing."""
    programs = {**_PROGRAMS[line.type], **(_IPSEC_PROGRAMS if line.secret else {})}
    packages = [package for file, package in programs.items() if not Path(file).exists()]
    if packages:
        return f"programs are missing: apt install {' '.join(packages)}"
    if not _opens("/dev/ppp"):
        return _no_module("PPP", "ppp_generic")
    if line.type == "l2tp" and not _has_socket(_AF_PPPOX, socket.SOCK_DGRAM, _PX_PROTO_OL2TP):
        return _no_module("L2TP", "l2tp_ppp")
    if line.type == "pptp" and not _has_module("ppp_mppe"):
        return _no_module("PPTP's encryption", "ppp_mppe")
    if line.secret and not _has_socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_XFRM):
        return _no_module("IPsec", "xfrm_user")
    if line.secret and not _has_module("esp4"):
        return _no_module("IPsec", "esp4")
    return ""


def _no_module(what: str, module: str) -> str:
    return (
        f"the running kernel cannot do {what}: it has no module {module}; "
        "Debian's linux-image-amd64 has it"
    )


def _opens(path: str) -> bool:
    """Whether a device opens; the kernel loads its module then."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _has_socket(family: int, kind: int, protocol: int) -> bool:
    """Whether there are such sockets; the kernel loads their module then."""
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return False
    return True


def _has_module(name: str) -> bool:
    """Whether the kernel has a module or can load it, as pppd and charon have it do (kmod(8)).

    Taken to be so where netd may not look, as under ``ProtectKernelModules`` (systemd.exec(5)).
    """
    if Path("/sys/module", name).exists():
        return True
    folder = _MODULES / os.uname().release
    try:
        lists = [(folder / file).read_text() for file in ("modules.dep", "modules.builtin")]
    except PermissionError:
        return True
    except OSError:
        return False
    return any(f"/{name}.ko" in known for known in lists)
