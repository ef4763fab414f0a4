"""The machine's interfaces and settings, read from the kernel, and events of their changes."""

import asyncio
import subprocess
import time
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path

import pytest

from egressd.model.facts import Facts, Interface, Route, Route6
from egressd.model.routing import PolicyRule, RouteEntry
from egressd.netd.kernel import machine_facts, routes, sysctl
from egressd.netd.kernel.machine_facts import FactsWatcher
from egressd.netd.kernel.netlink import NetlinkError
from tests.support.netns import Namespace, eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

SYS = Path("/proc/sys")


def shell(script: str) -> None:
    subprocess.run(["sh", "-ec", script], check=True)


def add(name: str, index: int) -> None:
    """Add an interface that is up and has a carrier."""
    shell(f"ip link add {name} index {index} type veth peer name {name}-end")
    shell(f"ip link set {name}-end up; ip link set {name} up")


def test_an_empty_namespace_has_only_the_loopback(namespace: Namespace) -> None:
    read = namespace.run(machine_facts.read)
    assert read == Facts(
        interfaces={
            "lo": Interface(
                name="lo",
                index=1,
                is_up=True,
                is_loopback=True,
                mtu=65536,
                addresses=(IPv4Interface("127.0.0.1/8"),),
                passive=(IPv4Address("127.0.0.1"),),
            )
        },
        routes=(),
    )


@pytest.mark.parametrize("name", ['a"b', "eth*", "a;b", "{x}", "$(x)", "-x", "é"])
def test_p6_an_interface_with_an_odd_name_is_ignored(namespace: Namespace, name: str) -> None:
    """Past fault: an interface called `a"b` or `eth*` became part of the ruleset's text."""

    # A private address makes it a LAN, and its name would then stand in nftables' text.
    def add_odd() -> None:
        for command in (
            ["link", "add", "name", name, "type", "bridge"],
            ["link", "set", "dev", name, "up"],
            ["address", "add", "192.168.9.1/24", "dev", name],
        ):
            subprocess.run(["ip", *command], check=True)

    namespace.run(add_odd)
    read = namespace.run(machine_facts.read)
    assert list(read.interfaces) == ["lo"]
    assert read.routes == ()


def test_interfaces_are_read(namespace: Namespace) -> None:
    namespace.shell("""
        ip link add br-lan index 20 type bridge
        ip link add port type veth peer name port-end
        ip link set port master br-lan mtu 1492
        ip link set br-lan up
        ip link set port up
        ip link set port-end up
        ip address add 192.168.7.1/24 dev br-lan
        ip address add 192.168.8.1/25 dev br-lan
        ip address add 192.168.7.3/24 dev br-lan
        ip address add 169.254.7.1/16 dev br-lan scope link
        ip address add 2001:db8::1/64 dev br-lan
        ip link add line index 30 type ifb
        ip link set line up
        ip address add 10.0.0.2 peer 10.0.0.1/32 dev line
        ip link add idle type veth peer name idle-end
        ip link set idle up
        ip link add link br-lan name above type macvlan
    """)
    for _ in range(50):  # the bridge's carrier follows its port's
        read = namespace.run(machine_facts.read).interfaces
        if read["br-lan"].is_up:
            break
        time.sleep(0.02)
    assert read["br-lan"] == Interface(
        name="br-lan",
        index=20,
        kind="bridge",
        is_up=True,
        mtu=1492,
        addresses=tuple(
            map(
                IPv4Interface,
                ("169.254.7.1/16", "192.168.7.1/24", "192.168.8.1/25", "192.168.7.3/24"),
            )
        ),
        passive=(IPv4Address("169.254.7.1"), IPv4Address("192.168.7.3")),
        addresses6=(IPv6Address("2001:db8::1"),),
    )
    assert read["port"].master == 20
    assert read["port"].kind == "veth"
    assert read["above"].parent == 20
    assert read["br-lan"].parent == 0
    assert read["line"].index == 30
    assert read["line"].is_point_to_point
    assert read["line"].addresses == (IPv4Interface("10.0.0.2/32"),)
    assert read["line"].peers == (IPv4Address("10.0.0.1"),)
    assert not read["idle"].is_up  # it has no carrier
    assert not read["idle-end"].is_up
    assert not read["idle"].is_point_to_point


def test_routes_are_read(namespace: Namespace) -> None:
    namespace.shell("""
        ip link add wan0 type veth peer name wan0-end
        ip link add wan1 type veth peer name wan1-end
        for i in wan0 wan0-end wan1 wan1-end; do ip link set $i up; done
        ip address add 192.0.2.2/24 dev wan0
        ip address add 198.51.100.2/24 dev wan1
        ip route add default via 192.0.2.1 metric 100
        ip route add default via 198.51.100.1 metric 200
        ip route add 203.0.113.0/24 nexthop via 192.0.2.7 nexthop via 198.51.100.7
        ip route add 10.9.0.0/16 dev wan1
        ip route add unreachable 10.8.0.0/16
        ip route add 10.7.0.0/16 dev wan1 table 77
    """)
    read = set(namespace.run(machine_facts.read).routes)

    def route(to: str, device: str, via: str = "", metric: int = 0) -> Route:
        gateway = IPv4Address(via) if via else None
        return Route(destination=IPv4Network(to), interface=device, gateway=gateway, metric=metric)

    assert read == {
        route("0.0.0.0/0", "wan0", "192.0.2.1", 100),
        route("0.0.0.0/0", "wan1", "198.51.100.1", 200),
        route("192.0.2.0/24", "wan0"),
        route("198.51.100.0/24", "wan1"),
        route("203.0.113.0/24", "wan0", "192.0.2.7"),
        route("203.0.113.0/24", "wan1", "198.51.100.7"),
        route("10.9.0.0/16", "wan1"),
    }


async def test_ipv6_routes_are_read_and_watched(namespace: Namespace) -> None:
    namespace.shell("""
        ip link add wan0 type veth peer name wan0-end
        for i in wan0 wan0-end; do ip link set $i up; done
        ip address add 2001:db8::2/64 dev wan0 nodad
        ip route add default via fe80::1 dev wan0 metric 512
        ip route add 2001:db8:7::/48 dev wan0 table 77
    """)

    def route(to: str, via: str = "", metric: int = 256) -> Route6:
        gateway = IPv6Address(via) if via else None
        return Route6(destination=IPv6Network(to), interface="wan0", gateway=gateway, metric=metric)

    read = set(namespace.run(machine_facts.read).routes6)
    assert read == {route("2001:db8::/64"), route("::/0", "fe80::1", 512)}

    seen = Seen()
    async with FactsWatcher(seen.look):
        shell("ip -6 route delete default")
        await eventually(lambda: set(seen.facts.routes6) == {route("2001:db8::/64")})


class Seen:
    """A watcher's callback that reads the facts, as the reconciler does."""

    def __init__(self) -> None:
        self.calls = 0
        self.facts = Facts()

    async def look(self) -> None:
        self.calls += 1
        self.facts = machine_facts.read()

    def index(self, name: str) -> int:
        interface = self.facts.interfaces.get(name)
        return 0 if interface is None else interface.index


async def test_a_recreated_interface_with_another_index_is_seen() -> None:
    seen = Seen()
    async with FactsWatcher(seen.look):
        add("lan0", 100)
        shell("ip address add 10.1.0.1/24 dev lan0")
        await eventually(lambda: seen.index("lan0") == 100)
        shell("ip link delete lan0")
        await eventually(lambda: seen.index("lan0") == 0)
        add("lan0", 200)
        await eventually(lambda: seen.index("lan0") == 200 and seen.facts.interfaces["lan0"].is_up)
        shell("ip address add 10.2.0.1/24 dev lan0")
        await eventually(lambda: seen.facts.interfaces["lan0"].addresses != ())
        assert seen.facts == machine_facts.read()


async def test_a_rename_is_seen() -> None:
    seen = Seen()
    async with FactsWatcher(seen.look):
        add("ppp0", 100)
        shell("ip link set ppp0 down; ip link set ppp0 name l2tp_office")
        await eventually(lambda: seen.index("l2tp_office") == 100)
        shell("ip link set l2tp_office up")
        shell("ip address add 10.0.0.2 peer 10.0.0.1 dev l2tp_office")
        await eventually(lambda: seen.facts.interfaces["l2tp_office"].peers != ())
        assert "ppp0" not in seen.facts.interfaces
        assert {r.interface for r in seen.facts.routes} == {"l2tp_office"}


async def test_events_arrive_within_100_ms_in_few_calls() -> None:
    seen = Seen()
    add("lan0", 100)
    async with FactsWatcher(seen.look):
        for number in range(100):
            shell(f"ip address add 10.0.{number}.1/24 dev lan0")
        began = time.monotonic()
        await eventually(lambda: seen.calls > 0)
        delay = time.monotonic() - began
        assert len(seen.facts.interfaces["lan0"].addresses) == 100
        await asyncio.sleep(0.1)
        calls = seen.calls
    assert delay < 0.1
    assert calls <= 2


async def test_a_busy_loop_catches_up_after_lost_events() -> None:
    seen = Seen()
    add("lan0", 100)
    async with FactsWatcher(seen.look):
        batch = "".join(f"route add 10.{n >> 8}.{n & 255}.0/24 dev lan0\n" for n in range(5000))
        add_all(batch)
        assert lost() > 0, "nothing was lost: the test shows nothing"
        await eventually(lambda: len(seen.facts.routes) == 5000)
        calls = seen.calls
        await asyncio.sleep(0.2)
        assert seen.calls == calls


def add_all(batch: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)


def lost() -> int:
    """Return the messages that the kernel dropped because a netlink socket's queue was full."""
    with open("/proc/self/net/netlink") as table:
        rows = [line.split() for line in table]
    column = rows[0].index("Drops")
    return sum(int(row[column]) for row in rows[1:])


async def test_a_callback_that_changes_routes_is_not_called_endlessly() -> None:
    calls = 0

    async def converge() -> None:
        nonlocal calls
        calls += 1
        known = machine_facts.read().interfaces
        wanted = [
            RouteEntry(table=1001, destination=IPv4Network("0.0.0.0/0"), device=name)
            for name in ("lan0",)
            if name in known and known[name].is_up
        ]
        routes.sync(wanted, [PolicyRule(priority=900, iif="lan0", action="prohibit")])

    async with FactsWatcher(converge):
        add("lan0", 100)
        shell("ip address add 10.1.0.1/24 dev lan0")
        await eventually(lambda: calls > 0)
        settled = 0
        while settled < calls:
            settled = calls
            await asyncio.sleep(0.5)
        assert 1 <= calls <= 10


async def test_p2_foreign_sysctls_are_reported_and_restored_in_few_calls() -> None:
    # The slow look alone would see the changes up to 10 s later.
    ip = "net/ipv4"
    wanted = {f"{ip}/ip_forward": "1"}
    wanted |= {f"{ip}/conf/{name}/rp_filter": "0" for name in ("all", "wan0")}
    foreign = dict(zip(wanted, "012", strict=True))

    def is_set() -> bool:
        return all((SYS / name).read_text().strip() == value for name, value in wanted.items())

    calls = 0

    async def converge() -> None:
        nonlocal calls
        calls += 1
        sysctl.write(wanted)

    add("wan0", 100)
    sysctl.write(wanted)
    async with FactsWatcher(converge):
        for name, value in foreign.items():
            (SYS / name).write_text(value)
            assert not is_set()
            await eventually(is_set)
        await asyncio.sleep(0.5)
        assert calls <= 6, "a change, and its healing"


def test_interfaces_and_routes_are_read_quickly(namespace: Namespace) -> None:
    def body() -> float:
        began = time.perf_counter()
        for _ in range(20):
            machine_facts.read()
        return (time.perf_counter() - began) / 20

    namespace.shell("for i in $(seq 15); do ip link add a$i type veth peer name b$i; done")
    assert namespace.run(body) < 0.02


def test_the_interface_towards_an_address_is_found_by_source(namespace: Namespace) -> None:
    namespace.shell("""
        ip link add wan0 index 20 type veth peer name wan0-end
        ip link add wan1 index 21 type veth peer name wan1-end
        for i in wan0 wan0-end wan1 wan1-end; do ip link set $i up; done
        ip address add 192.0.2.2/24 dev wan0
        ip address add 198.51.100.2/24 dev wan1
        ip route add 203.0.113.0/24 via 192.0.2.1
        ip route add 203.0.113.0/24 via 198.51.100.1 table 77
        ip rule add from 198.51.100.2 iif lo table 77
    """)
    server = IPv4Address("203.0.113.9")

    def by(destination: IPv4Address, source: str) -> int:
        return namespace.run(lambda: machine_facts.device_towards(destination, IPv4Address(source)))

    assert by(server, "192.0.2.2") == 20
    assert by(server, "198.51.100.2") == 21
    with pytest.raises(NetlinkError):
        by(IPv4Address("192.0.3.1"), "192.0.2.2")
