"""A member of a site lets clients through only while its lease runs, whatever becomes of netd.

P1 of the promises, for members of a site. netd runs alone, the test is its api. Clients of every
kind flood, talk and download; each upstream is captured, and so the time of each packet is known.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import msgspec
import pytest

from egressd.model.errors import Failed
from egressd.model.messages import Refused, RenewLease
from egressd.model.plan import Plan
from egressd.planner.registry import MARK_DIRECT
from egressd_lab.capture import Capture
from egressd_lab.client import Connection, Download
from egressd_lab.lab import Lab
from egressd_lab.observed import Flow
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, LabSpec
from tests.lab.leased import TERM_MS, Member, boot_ms
from tests.lab.whitelisted import save, set_device
from tests.support.device import SERVER, eventually, send
from tests.support.engine import is_stopped
from tests.support.fast_path import passed, talk
from tests.support.programs import socks

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
LISTED: Final = "203.0.113.11"
PROXY_PORT: Final = 1080
DNS_PORT: Final = 53
LATE_NS: Final = 300_000_000
"""Nanoseconds after the end of a lease from which on no packet may leave."""
DIRECT, WAN2, NODE, GROUP, WHITELIST, UNRULED, WANS = range(1, 8)
"""Numbers of the clients."""
KERNEL: Final = (DIRECT, WAN2, UNRULED, WANS)
"""Clients that the kernel routes."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss", "socks5-udp"), clients=7)) as lab:
        lab.start_egressd()
        ss, socks5 = lab.nodes["ss"], lab.nodes["socks5-udp"]
        lab.api.post("/nodes", ss.draft())
        lab.api.post("/nodes", socks5.draft("g"))
        send(lab, DIRECT, "DIRECT")
        send(lab, WAN2, "Interface:wan2")
        send(lab, NODE, "ss")
        send(lab, GROUP, "Group_g")
        wans = {"name": "wans", "members": ["Interface:wan2", "Interface:wan1"]}
        assert lab.api.ask("POST", "/ops/groups", wans | {"strategy": "fallback"}).status == 201
        send(lab, WANS, "Group_wans")
        send(lab, WHITELIST, "REJECT")
        save(lab, ips=LISTED, node="DIRECT")
        set_device(lab, unmanaged="DIRECT")
        body = {"name": "s", "outbound_interface": "wan2", "port": PROXY_PORT, "is_enabled": True}
        lab.api.post("/proxy-services", {**body, "username": "u", "password": "secret-1"})
        eventually(lambda: all(check() for check in reaching(lab).values()), 30)
        yield lab


@pytest.fixture(scope="module")
def member(lab: Lab) -> Iterator[Member]:
    member = Member(lab)
    try:
        yield member
    finally:
        member.kill()


def by_service(lab: Lab) -> str:
    """Return the address that an echo server saw a datagram come from by the proxy service."""
    argv = [str(LAN_ADDRESS), str(PROXY_PORT), "u", "secret-1", SERVER, "7"]
    host = lab.client(UNRULED).host
    return host.run("/usr/bin/python3", socks.__file__, *argv, check=False).stdout.strip()


def reaching(lab: Lab) -> dict[str, Callable[[], bool]]:
    """Return for each kind of client a check that it reaches a server by its egress."""

    def http(client: int, exit_: str, url: str = WEB) -> Callable[[], bool]:
        return lambda: lab.client(client).http(url, timeout=1).seen == exit_

    def dns(client: int) -> Callable[[], bool]:
        resolver = str(LAN_ADDRESS)
        return lambda: bool(lab.client(client).dns("www.test", resolver, timeout=1).addresses)

    wan1, wan2 = lab.wan(1).address, lab.wan(2).address
    return {
        "DIRECT": http(DIRECT, wan1),
        "Interface": http(WAN2, wan2),
        "node": http(NODE, lab.nodes["ss"].address),
        "group": http(GROUP, lab.nodes["socks5-udp"].address),
        "group of WANs": http(WANS, wan2),
        "whitelist": http(WHITELIST, wan1, f"http://{LISTED}/"),
        "no rule": http(UNRULED, wan1),
        "proxy service": lambda: by_service(lab) == wan2,
        "DNS": dns(DIRECT),
        "DNS by a node": dns(NODE),
    }


def all_reach(lab: Lab) -> bool:
    return len(reached(lab)) == len(reaching(lab))


def reached(lab: Lab) -> list[str]:
    """Return the kinds of clients that reach their servers."""
    checks = reaching(lab)
    with ThreadPoolExecutor(len(checks)) as pool:
        found = zip(checks, pool.map(lambda check: check(), checks.values()), strict=True)
        return [name for name, is_reached in found if is_reached]


class Traffic:
    """Floods, open connections and downloads of the clients, and captures of every upstream."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab = lab
        self._own = {wan.address for wan in lab.wans}
        links = [wan.far for wan in lab.wans]
        links += [node.link for node in lab.nodes.values()]
        self._captures: list[Capture] = []
        for link in links:
            self._captures.append(stack.enter_context(lab.internet.capture(link)))
            self._captures[-1].prove()
        self.talks: dict[int, Connection] = {}
        self.downloads: dict[int, Download] = {}
        for client in (DIRECT, WAN2, NODE, GROUP, UNRULED, WANS):
            self.talks[client] = lab.client(client).connect()
            self.downloads[client] = lab.client(client).download(f"{WEB}drip/100000")
            stack.callback(self.downloads[client].stop)
        self.service = lab.client(WHITELIST).host.socket(str(LAN_ADDRESS), PROXY_PORT)
        stack.callback(self.service.close)
        self.service.settimeout(5)
        socks.negotiate(self.service, "u", "secret-1")
        socks.request(self.service, socks.CONNECT, SERVER, 80)
        self.service.sendall(b"GET /drip/100000 HTTP/1.1\r\nHost: a\r\n\r\n")
        self.tokens = {client: new_token() for client in range(1, 8)}
        self.floods = [
            lab.client(client).flood(
                token,
                kind=kind,
                rate=100,
                address=LISTED if client == WHITELIST else SERVER,
            )
            for client, token in self.tokens.items()
            for kind in ("udp", "icmp", "tcp")
        ]
        for flood in self.floods:
            stack.callback(_ended, flood.stop)

    def flows(self) -> list[Flow]:
        """Return the flows that came from the device."""
        found = (flow for capture in self._captures for flow in capture.flows(outgoing=False))
        return [flow for flow in found if flow.source in self._own and flow.protocol != "arp"]

    def after(self, moment_ns: int) -> list[Flow]:
        return [flow for flow in self.flows() if flow.last_ns > moment_ns]

    def after_without_checks(self, moment_ns: int) -> list[Flow]:
        """Return the flows after a moment, but for netd's own questions to resolvers."""
        resolvers = set(RESOLVERS.values())
        return [
            flow
            for flow in self.after(moment_ns)
            if not (flow.port == DNS_PORT and flow.destination in resolvers)
        ]

    def received(self) -> dict[int, int]:
        """Return the bytes of each download."""
        return {client: each.progress().received for client, each in self.downloads.items()}

    def from_service(self) -> bool:
        """True if the proxy service has data for its caller, which is then read."""
        self.service.settimeout(0.2)
        try:
            return bool(self.service.recv(1 << 16))
        except TimeoutError:
            return False


def _ended(stop: Callable[[], object]) -> None:
    with suppress(Failed):
        stop()


@contextmanager
def traffic(lab: Lab) -> Iterator[Traffic]:
    with ExitStack() as stack:
        yield Traffic(lab, stack)


def at(until_ms: int) -> int:
    """Return a moment of CLOCK_BOOTTIME in nanoseconds of the captures' clock."""
    return time.time_ns() + (until_ms - boot_ms()) * 1_000_000


def wait_until(moment_ns: int) -> None:
    time.sleep(max(0.0, (moment_ns - time.time_ns()) / 1e9))


def assert_shut(open_: Traffic, end_ns: int, *, has_checks: bool = False) -> None:
    """Wait for the end of the lease; assert that nothing leaves later and no client receives.

    `has_checks`: netd runs, and checks resolvers.
    """
    wait_until(end_ns + LATE_NS)
    while open_.from_service():
        assert time.time_ns() < end_ns + 10 * LATE_NS, "the proxy service goes on"
    before = open_.received()
    sent = [flood.report().sent for flood in open_.floods]
    assert reached(open_.lab) == [], "new flows"
    time.sleep(1)
    assert all(flood.report().sent > n + 50 for flood, n in zip(open_.floods, sent, strict=True))
    found = open_.after_without_checks if has_checks else open_.after
    assert found(end_ns + LATE_NS) == []
    assert open_.received() == before, "downloads"
    assert not open_.from_service()


def assert_goes_on(open_: Traffic, clients: tuple[int, ...]) -> None:
    """Assert that connections and downloads from before continue."""
    for client in clients:
        assert open_.talks[client].exchange("still here", timeout=20).ok, client
    before = open_.received()
    eventually(lambda: all(open_.received()[each] > before[each] for each in clients), 20)


def test_control_without_a_lease_nothing_passes_and_with_one_all_clients(
    lab: Lab, member: Member
) -> None:
    assert reached(lab) == []
    assert member.api.status().lease_ms == 0
    with member.renewing():
        eventually(lambda: all_reach(lab), 20)
        left = member.api.status().lease_ms
        assert left is not None
        assert 0 < left <= TERM_MS


def test_without_a_lease_the_router_and_other_lan_hosts_answer(lab: Lab, member: Member) -> None:
    eventually(lambda: member.api.status().lease_ms == 0)
    assert lab.client(DIRECT).ping(str(LAN_ADDRESS)).ok
    assert lab.client(NODE).ping(str(LAN_ADDRESS)).ok
    assert not lab.client(DIRECT).ping(SERVER).ok


@pytest.mark.parametrize("way", ["frozen", "killed"])
def test_p1_nothing_leaves_after_the_lease_of_a_netd_that_is(
    lab: Lab, member: Member, way: str
) -> None:
    with ExitStack() as stack:
        renewals = stack.enter_context(member.renewing())
        eventually(lambda: all_reach(lab), 20)
        open_ = stack.enter_context(traffic(lab))
        for client in (DIRECT, WAN2, WANS):
            ups = passed(lab, client).up_packets
            talk(open_.talks[client])
            assert passed(lab, client).up_packets > ups, "the fast path carries it"
        before = open_.received()
        eventually(lambda: all(n > before[each] for each, n in open_.received().items()))
        renewals.stop()
        until_ms = member.api.renew()
        netd = member.netd.pid
        os.kill(netd, signal.SIGSTOP if way == "frozen" else signal.SIGKILL)
        stopped, end = time.time_ns(), at(until_ms)
        wait_until(stopped + 500_000_000)
        tokens = {flow.token for flow in open_.after(stopped)}
        outside = (DIRECT, WAN2, WHITELIST, UNRULED, WANS)
        assert {open_.tokens[each] for each in outside} <= tokens
        assert_shut(open_, end)
        if way == "frozen":
            assert is_stopped(netd)
            os.kill(netd, signal.SIGCONT)
            time.sleep(0.5)
            assert open_.after_without_checks(end + LATE_NS) == [], "netd goes on"
        else:
            member.kill()
            member.start()
            assert member.api.status().lease_ms == 0
            member.api.set_plan(member.leased)
        assert open_.after_without_checks(end + LATE_NS) == []
        stack.enter_context(member.renewing())
        assert_goes_on(open_, KERNEL)
        eventually(lambda: all_reach(lab), 20)


def test_a_change_of_the_plan_without_a_lease_opens_nothing(lab: Lab, member: Member) -> None:
    with ExitStack() as stack:
        with member.renewing():
            eventually(lambda: all_reach(lab), 20)
            open_ = stack.enter_context(traffic(lab))
        end = at(member.api.renew())
        wait_until(end + LATE_NS)
        hosts = dict(member.leased.hosts)
        for address, mark in ((lab.client(NODE).address, MARK_DIRECT), *hosts.items()):
            moved = msgspec.structs.replace(member.leased, hosts={**hosts, address: mark})
            member.api.set_plan(moved)
        stopped = _with_policy(member.leased, stopped=True)
        for plan in (stopped, member.leased):
            member.api.set_plan(plan)
        assert open_.after_without_checks(end + LATE_NS) == []
        # Until netd has the table back, sockets of the engine may send to their nodes.
        lab.router.run("nft", "flush", "ruleset")
        eventually(lambda: "unleased" in lab.router.run("nft", "list", "ruleset").stdout)
        assert_shut(open_, time.time_ns(), has_checks=True)
        problems = " ".join(map(str, member.api.status().problems))
        assert "lease" in problems


def _with_policy(plan: Plan, **settings: bool) -> Plan:
    policy = msgspec.structs.replace(plan.policy, **settings)
    return msgspec.structs.replace(plan, policy=policy)


def test_a_renewal_that_is_over_or_far_ahead_is_refused(member: Member) -> None:
    for until_ms in (boot_ms() - 1, boot_ms() + 60_000):
        answer = member.api.ask(RenewLease(until_ms))
        assert isinstance(answer, Refused)
        assert "until_ms" in answer.cause


def test_a_flushed_ruleset_keeps_a_lease_that_runs(lab: Lab, member: Member) -> None:
    until_ms = member.api.renew(9000)
    eventually(lambda: all_reach(lab), 8)
    lab.router.run("nft", "flush", "ruleset")
    eventually(lambda: "expires" in lab.router.run("nft", "list", "ruleset").stdout)
    assert lab.client(DIRECT).http(WEB).ok
    assert boot_ms() < until_ms
    eventually(lambda: member.api.status().lease_ms == 0, 15)
    assert reached(lab) == []


def test_a_device_that_an_operator_opens_needs_its_lease_too(lab: Lab, member: Member) -> None:
    member.api.set_plan(_with_policy(member.leased, opened=True))
    assert member.api.status().lease_ms == 0
    assert reached(lab) == []
    member.api.renew(9000)
    eventually(lambda: lab.client(WHITELIST).http(WEB).seen == lab.wan(1).address, 8)
    eventually(lambda: member.api.status().lease_ms == 0)
    assert reached(lab) == []
    member.api.set_plan(member.leased)
    assert reached(lab) == []


def test_a_member_that_becomes_a_box_alone_needs_no_lease(lab: Lab, member: Member) -> None:
    member.api.set_plan(member.plan)
    assert member.api.status().lease_ms is None
    eventually(lambda: all_reach(lab), 20)
    assert "lease" not in lab.router.run("nft", "list", "table", "inet", "egressd").stdout
    member.api.set_plan(member.leased)
    assert reached(lab) == []
