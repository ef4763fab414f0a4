"""The classifier's place beside other programs' filters; also on kernels before 6.6.

No netd runs: each `Site.look` acts as a netd that starts, reads everything and ends.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from egressd.model.plan import Plan
from egressd.netd.kernel import fast_path, uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.ebpf.assembler import R0, Program
from egressd.netd.kernel.fast_path import FastPath, filters, hooks
from egressd.netd.kernel.fast_path.others import told
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.planner.registry import MARK_DIRECT, flow_mark
from tests.support.fast_path import CLIENT, ask_again
from tests.support.known_flows import passed_here, programs_here
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

BOTH = {"lan0", "wan1"}
SERVER, PORT = "203.0.113.10", 5000
SIZE = 2 << 20
MARK = flow_mark(MARK_DIRECT, Plan().whitelist.epoch)
SQM = (
    "tc qdisc del dev wan1 handle ffff: ingress 2>/dev/null || true;"
    "tc qdisc add dev wan1 handle ffff: ingress;"
    "tc filter add dev wan1 parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1"
    " action mirred egress redirect dev sqm"
)
MAKE_IFB = (
    "ip link add sqm type ifb; ip link set sqm up;"
    "tc qdisc add dev sqm root tbf rate 8mbit burst 32k latency 100ms"
)


def run(*command: str) -> None:
    subprocess.run(command, check=False)


class Look(NamedTuple):
    """The outcome of a look."""

    problem: str
    problems: tuple[str, ...]
    hooked: dict[str, int]


class Site(NamedTuple):
    """A router with a client behind it, whose flows have the mark of the client's rule."""

    router: Namespace
    client: Namespace
    outside: Namespace

    def look(self, *, has_tcx: bool) -> Look:
        """Do all that a starting netd does for known flows."""

        def body() -> Look:
            path = FastPath(has_tcx=has_tcx)
            path.load_previous()
            ask_again(path)
            problems = told(path.others, has_fast_path=True, limited=())
            return Look(path.problem, tuple(problems), programs_here())

        return self.router.run(body)

    def download(self) -> float:
        """Return the seconds that a download takes."""
        serving = self.outside.start(serve)
        begun = time.monotonic()
        assert self.client.run(fetch) == SIZE
        serving.result()
        return time.monotonic() - begun

    def goes_it(self) -> bool:
        """True if a download takes the fast path."""
        before = self.router.run(passed_here, CLIENT).down_bytes
        self.download()
        return self.router.run(passed_here, CLIENT).down_bytes - before > SIZE // 2

    def shown(self, interface: str = "wan1") -> str:
        """Return the kind of an interface's qdisc for filters, as in tc(8)."""
        listed = self.router.shell(f"tc qdisc show dev {interface}")
        return " ".join(
            line.split()[1] for line in listed.splitlines() if "parent ffff:fff1" in line
        )


def serve() -> None:
    with socket.create_server((SERVER, PORT)) as listener, listener.accept()[0] as connection:
        connection.sendall(bytes(SIZE))


def fetch() -> int:
    deadline = time.monotonic() + 5
    while True:
        with suppress(ConnectionRefusedError):
            opened = socket.create_connection((SERVER, PORT), timeout=20)
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with opened:
        size = 0
        while part := opened.recv(1 << 16):
            size += len(part)
        return size


@pytest.fixture
def site(namespace: Namespace) -> Iterator[Site]:
    with Namespace() as client, Namespace() as outside:
        namespace.cable("lan0", client, "eth0")
        namespace.cable("wan1", outside, "isp")
        client.shell(f"ip address add {CLIENT}/24 dev eth0; ip route add default via 10.77.0.1")
        outside.shell(f"ip address add 198.51.100.1/24 dev isp; ip address add {SERVER} dev lo")
        namespace.shell(
            "sysctl -qw net.ipv4.ip_forward=1; ip address add 10.77.0.1/24 dev lan0;"
            "ip address add 198.51.100.10/24 dev wan1; ip route add default via 198.51.100.1;"
            "nft add table ip marking;"
            "nft 'add chain ip marking f { type filter hook forward priority 0; }';"
            f"nft add rule ip marking f ct mark set {MARK};"
            "nft 'add chain ip marking n { type nat hook postrouting priority srcnat; }';"
            f"nft add rule ip marking n oifname wan1 masquerade; {MAKE_IFB}"
        )
        yield Site(namespace, client, outside)


# --- As a filter, on kernels before 6.6. ------------------------------------------------------


def test_sqm_replaces_our_qdisc_and_is_reported(site: Site) -> None:
    look = site.look(has_tcx=False)
    assert (look.problem, look.problems, set(look.hooked)) == ("", (), BOTH)
    assert site.shown() == "ingress"
    assert site.goes_it()
    site.router.shell(SQM)
    look = site.look(has_tcx=False)
    assert set(look.hooked) == {"lan0"}
    (problem,) = look.problems
    assert "traffic by wan1 takes more" in problem
    assert "tc filter show dev wan1 ingress" in problem
    assert site.download() > 1.2
    site.router.shell("tc qdisc del dev wan1 handle ffff: ingress")
    assert set(site.look(has_tcx=False).hooked) == BOTH
    assert site.goes_it()


def test_an_existing_sqm_stays(site: Site) -> None:
    site.router.shell(SQM)
    before = site.router.shell("tc filter show dev wan1 ingress")
    look = site.look(has_tcx=False)
    assert look.hooked == {}  # no other egress exists that clients could be sent to
    assert "traffic by wan1 takes more" in look.problems[0]
    assert site.download() > 1.2
    site.router.run(fast_path.close)
    assert site.router.run(programs_here) == {}
    assert site.router.shell("tc filter show dev wan1 ingress") == before
    assert site.shown("lan0") == ""


@pytest.mark.parametrize("kind", ["ingress", "clsact"])
def test_an_empty_foreign_qdisc_is_used_and_left(site: Site, kind: str) -> None:
    site.router.shell(f"tc qdisc add dev wan1 {kind}")
    assert set(site.look(has_tcx=False).hooked) == BOTH
    assert site.goes_it()
    site.router.run(fast_path.close)
    assert site.router.run(programs_here) == {}
    assert (site.shown("lan0"), site.shown()) == ("", kind)


@pytest.mark.parametrize("place", ["", "prio 1", "prio 500"])
def test_a_foreign_filter_in_our_qdisc_makes_us_leave(site: Site, place: str) -> None:
    site.look(has_tcx=False)
    site.router.shell(
        f"tc filter add dev wan1 ingress protocol ip {place} u32 match u32 0 0 flowid 1:1"
        " action mirred egress redirect dev sqm"
    )
    assert set(site.look(has_tcx=False).hooked) == {"lan0"}
    assert site.download() > 1.2
    site.router.run(fast_path.close)
    assert "mirred" in site.router.shell("tc filter show dev wan1 ingress")
    site.router.shell("tc filter del dev wan1 ingress")
    assert set(site.look(has_tcx=False).hooked) == BOTH


def test_a_shared_filter_block_is_not_touched(site: Site) -> None:
    for name in ("wan1", "sqm"):
        site.router.shell(f"tc qdisc add dev {name} ingress_block 7 ingress")
    look = site.look(has_tcx=False)
    assert look.hooked == {}
    assert "tc filter show dev wan1 ingress" in look.problems[0]
    assert site.router.shell("tc filter show block 7") == ""
    assert set(site.look(has_tcx=True).hooked) == BOTH  # TCX shares no hook with them


def test_a_deleted_qdisc_is_added_again_after_a_pause(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "REST_S", 0.5)

    def body() -> list[set[str]]:
        path, found = FastPath(has_tcx=False), []
        for command in ("true", "tc qdisc del dev wan1 handle ffff: ingress", "sleep 0.6"):
            subprocess.run(command.split(), check=True)
            for _ in range(2):
                ask_again(path)
            assert path.problem == ""
            found.append(set(programs_here()))
        return found

    assert site.router.run(body) == [BOTH, {"lan0"}, BOTH]


# --- Remains of an earlier version. -----------------------------------------------------------


def as_before() -> None:
    """Attach filters to ``clsact`` everywhere, as earlier versions did."""
    for command in ("qdisc add dev lan0 clsact", "qdisc add dev wan1 clsact"):
        subprocess.run(["tc", *command.split()], check=True)
    path = FastPath(has_tcx=False)
    filters._AS_GUEST, name = "egressd", filters._AS_GUEST
    try:
        ask_again(path)
    finally:
        filters._AS_GUEST = name
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        for name in BOTH:
            there = filters.find(kernel, socket.if_nametoindex(name))
            assert there
            assert there.name == "egressd"


@pytest.mark.parametrize("has_tcx", [True, False])
def test_the_qdisc_of_an_earlier_version_is_adopted(site: Site, has_tcx: bool) -> None:
    site.router.run(as_before)
    assert site.shown() == "clsact"
    assert site.goes_it()
    counted = site.router.run(passed_here, CLIENT)
    look = site.look(has_tcx=has_tcx)
    assert (look.problem, look.problems, set(look.hooked)) == ("", (), BOTH)
    assert {site.shown(name) for name in BOTH} == {"" if has_tcx else "ingress"}
    assert site.router.run(passed_here, CLIENT) == counted
    assert site.goes_it()
    site.router.run(fast_path.close)
    assert site.router.run(programs_here) == {}
    assert site.shown() == ""


@pytest.mark.parametrize("has_tcx", [True, False])
def test_a_foreign_filter_in_the_qdisc_of_an_earlier_version_stays(
    site: Site, has_tcx: bool
) -> None:
    site.router.run(as_before)
    site.router.shell("tc filter add dev wan1 egress protocol ip u32 match u32 0 0 flowid 1:1")
    look = site.look(has_tcx=has_tcx)
    assert set(look.hooked) == {"lan0"}
    assert "tc filter show dev wan1 egress" in look.problems[0]
    assert site.router.shell("tc filter show dev wan1 ingress") == ""
    assert "u32" in site.router.shell("tc filter show dev wan1 egress")
    assert (site.shown("lan0"), site.shown()) == ("" if has_tcx else "ingress", "clsact")


# --- Programs without a filter. ---------------------------------------------------------------


def program_of(name: str) -> int:
    """Return the descriptor of a program that leaves all packets to the next one."""
    code = Program()
    code.mov(R0, uapi.TC_ACT_UNSPEC)
    code.exit()
    return system.load(name, code.assembled())


def test_a_foreign_program_sees_incoming_packets_before_ours(site: Site) -> None:
    assert set(site.look(has_tcx=True).hooked) == BOTH

    def body() -> list[str]:
        index = socket.if_nametoindex("wan1")
        system.attach(index, program_of("theirs"))
        path = FastPath()
        path.load_previous()
        ask_again(path)
        assert path.others.commands == {}
        found = [system.name_of(each) for each in system.attached(index, uapi.BPF_TCX_INGRESS)]
        fast_path.close()
        assert programs_here() == {}
        assert len(system.attached(index, uapi.BPF_TCX_INGRESS)) == 1
        return found

    assert site.router.run(body) == ["theirs", "egressd"]


def test_a_foreign_program_for_outgoing_packets_is_reported(site: Site) -> None:
    def body() -> None:
        index, descriptor = socket.if_nametoindex("wan1"), program_of("theirs")
        attributes = system._ATTACH_ATTRIBUTES.pack(
            index, descriptor, uapi.BPF_TCX_EGRESS, 0, 0, 0, 0
        )
        system._call(uapi.BPF_PROG_ATTACH, attributes)

    site.router.run(body)
    look = site.look(has_tcx=True)
    assert look.hooked == {}
    assert "bpftool net show dev wan1" in look.problems[0]


# --- Interfaces that go. ----------------------------------------------------------------------


@pytest.mark.parametrize("call", ["attach", "detach"])
def test_an_interface_that_goes_meanwhile_leaves_the_fast_path_open(
    site: Site, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A VPN line's interface goes just when netd looks at it."""
    original = getattr(system, call)

    def late(interface: int, *others: int) -> None:
        if interface == index:
            run("ip", "link", "delete", "wan1")
        original(interface, *others)

    def body() -> tuple[str, set[str]]:
        path = FastPath()
        path.load_previous()
        if call == "detach":
            ask_again(path)
            run("ip", "link", "set", "wan1", "down")
        monkeypatch.setattr(system, call, late)
        ask_again(path)
        return path.problem, set(programs_here())

    site.look(has_tcx=True)
    index = site.router.run(socket.if_nametoindex, "wan1")
    assert site.router.run(body) == ("", {"lan0"})


def test_without_permission_for_programs_flows_are_routed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def body() -> str:
        path = FastPath()
        monkeypatch.setattr(system, "attached", refuse)
        path.load_previous()
        ask_again(path)
        with pytest.raises(PermissionError):
            fast_path.close()  # the process that blocks in netd's place must see it
        return path.problem

    assert "not permitted" in site.router.run(body)


def test_a_kernel_without_tcx_is_recognised_by_its_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(system, "attached", refuse)
    assert set(site.look(has_tcx=True).hooked) == BOTH
    assert site.shown() == "ingress"
