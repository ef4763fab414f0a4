"""The facts about the machine that lines need: interfaces, names, programs, kernel modules."""

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
from egressd.model.wording import NONE, Sentence, say
from egressd.netd.kernel import machine_facts as kernel_facts
from egressd.netd.kernel.machine_facts import FactsWatcher
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
"""Required file -> the Debian package that contains it."""

_AF_PPPOX: Final = 24  # linux/socket.h
_PX_PROTO_OL2TP: Final = 1  # linux/if_pppox.h
_NETLINK_XFRM: Final = 6  # linux/netlink.h
_MODULES: Final = Path("/lib/modules")
_TOOL_S: Final = 8.0
_THREADS: Final = 8  # names of servers that are resolved at the same time


class HostEnvironment:
    """The present state of the machine and its network.

    ``on_change`` is called soon after interfaces, addresses or routes changed and ``facts`` were
    read again.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.facts = Facts()
        self.looks = 0
        """The number of times that the facts were read."""
        self.taken = Taken()
        """Addresses that no line may have."""
        self._on_change = on_change
        self._watcher = FactsWatcher(self.look)
        # Neither the event loop's own threads, nor one pool for both: a resolver that hangs must
        # not delay other work, nor lines whose server is an address.
        self._resolving = ThreadPoolExecutor(_THREADS, "line-names")
        self._checking = ThreadPoolExecutor(1, "line-means")

    async def open(self) -> None:
        """Read the facts, and start to watch them."""
        await self.look()
        await self._watcher.__aenter__()

    async def close(self) -> None:
        """Stop watching."""
        await self._watcher.__aexit__(None, None, None)
        for threads in (self._resolving, self._checking):
            threads.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """Read the facts again."""
        self.facts = kernel_facts.read()
        self.looks += 1
        self._on_change()

    def link(self, name: str) -> Interface | None:
        """Return the interface of a line, once it is up with the addresses of both its ends."""
        interface = self.facts.interfaces.get(name)
        if interface is None or not (interface.is_up and interface.addresses and interface.peers):
            return None
        return interface

    def objection(self, name: str) -> Sentence:
        """Return the reason why a line must not have its addresses (`lines_address.objection`)."""
        return lines_address.objection(name, self.facts, self.taken)

    async def address(self, host: str, turn: int) -> IPv4Address:
        """Return the address of a server; of several of a name, another one each turn.

        Raises Failure.
        """
        with suppress(ValueError):
            return IPv4Address(host)
        found = await _run(self._resolving, lambda: _resolve(host))
        if not found:
            raise Failure(Cause.UNREACHABLE, say("server-name-unresolved", host=host))
        return found[turn % len(found)]

    def check_way(self, server: IPv4Address, carrier: Carrier) -> None:
        """Raise Failure unless packets from the carrier's address to `server` leave by it.

        This keeps a line from being dialled by the wrong WAN in the moment before its policy rule
        exists.
        """
        told = say("no-route")
        with suppress(NetlinkError):
            index = kernel_facts.device_towards(server, carrier.address)
            known = {found.index: found for found in self.facts.interfaces.values()}
            found = known.get(index, Interface(name=f"interface {index}", index=index))
            if found.name == carrier.interface:
                return
            told = say("leave-by-other", name=found.name)
            if carrier.address in (each.ip for each in found.addresses):
                told = say("same-address", name=found.name, address=str(carrier.address))
        raise Failure(
            Cause.NO_CARRIER,
            say("packets-astray", server=str(server), name=carrier.interface, reason=told),
        )

    async def check_means(self, line: Line) -> None:
        """Raise Failure if a program or kernel module is missing; the reason names the package."""
        # In a thread, since the kernel may have modules to load first.
        if missing := await _run(self._checking, lambda: _missing(line)):
            raise Failure(Cause.MISSING, missing)


def _run(threads: ThreadPoolExecutor, call: Callable[[], T]) -> Awaitable[T]:
    return asyncio.get_running_loop().run_in_executor(threads, call)


def _resolve(host: str) -> list[IPv4Address]:
    """Return the IPv4 addresses of a name. A process asks, since the C library's call cannot be
    cancelled.
    """
    with suppress(subprocess.TimeoutExpired, ValueError):
        lines = _output(["getent", "ahostsv4", host]).stdout.decode().splitlines()
        return list(dict.fromkeys(IPv4Address(line.split()[0]) for line in lines))
    return []


def _output(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, capture_output=True, timeout=_TOOL_S)


def _missing(line: Line) -> Sentence:
    """Return the reason why `line` cannot be dialled before an installation, or no sentence."""
    programs = {**_PROGRAMS[line.type], **(_IPSEC_PROGRAMS if line.secret else {})}
    packages = tuple(package for file, package in programs.items() if not Path(file).exists())
    if packages:
        return say("programs-missing", packages=packages)
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
    return NONE


def _no_module(what: str, module: str) -> Sentence:
    return say("module-missing", what=what, module=module)


def _opens(path: str) -> bool:
    """Return True if a device opens. The kernel loads its module then."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _has_socket(family: int, kind: int, protocol: int) -> bool:
    """Return True if the kernel has such sockets. It loads their module then."""
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return False
    return True


def _has_module(name: str) -> bool:
    """Return True if the kernel has a module or can load it, as pppd and charon let it (kmod(8)).

    True also where netd may not look, as under ``ProtectKernelModules`` (systemd.exec(5)).
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
