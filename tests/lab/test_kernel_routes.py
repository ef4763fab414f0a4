"""Convergence of routes and policy rules, on the kernel and under traffic."""

import socket
import struct
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from egressd.model.routing import PolicyRule, RouteEntry
from egressd.netd.kernel.machine_facts import read
from egressd.netd.kernel.routes import Synced, sync
from egressd.planner.registry import METRIC_IPV6, METRIC_UNREACHABLE
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

ANYWHERE = IPv4Network("0.0.0.0/0")
NOTHING = Synced(added=(), replaced=(), removed=(), problems=())


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        made.shell("""
            for n in 0 1; do
                ip link add wan$n type veth peer name wan$n-end
                # The kernel would add link-local addresses and their routes some time later.
                ip link set wan$n addrgenmode none
                ip link set wan$n-end addrgenmode none
                ip link set wan$n-end up
                ip link set wan$n up
                ip address add 192.0.$n.2/24 dev wan$n
            done
        """)
        yield made


def unreachable(table: int) -> RouteEntry:
    return RouteEntry(
        table=table, destination=ANYWHERE, kind="unreachable", metric=METRIC_UNREACHABLE
    )


def default(table: int, device: str, gateway: str | None = None) -> RouteEntry:
    via = None if gateway is None else IPv4Address(gateway)
    return RouteEntry(table=table, destination=ANYWHERE, device=device, gateway=via)


def by_mark(mark: int, table: int, priority: int = 200) -> PolicyRule:
    return PolicyRule(priority=priority, mark=mark, mask=0xFFFF_FFFF, table=table)


def table(namespace: Namespace, number: int) -> list[str]:
    """Return the lines of a table as in ip-route(8), without egressd's protocol number."""
    shown = namespace.shell(f"ip route show table {number}")
    return [line.replace(" proto 230", "").strip() for line in shown.splitlines()]


def rules(namespace: Namespace, family: int = 4) -> list[str]:
    shown = namespace.shell(f"ip -{family} rule")
    return [" ".join(line.replace("proto 230", "").split()) for line in shown.splitlines()]


def test_every_kind_of_entry_is_shown_by_ip_route(namespace: Namespace) -> None:
    wanted = [
        unreachable(1001),
        default(1001, "wan0", "192.0.0.1"),
        default(1002, "wan1"),
        RouteEntry(table=100, destination=ANYWHERE, kind="local", device="lo"),
        RouteEntry(table=99, destination=IPv4Network("10.1.0.0/16"), device="wan0"),
    ]
    policy = [
        PolicyRule(priority=100, table=99),
        PolicyRule(priority=110, mark=0x1000_0000, mask=0xF000_0000, table=100),
        by_mark(0x2000_0001, 1001),
        PolicyRule(priority=300, source=IPv4Address("192.0.1.2"), table=1002),
        PolicyRule(priority=890, uids=(997, 998), action="prohibit"),
        PolicyRule(priority=900, iif="lan-to-come", action="prohibit"),
        PolicyRule(priority=900, iif="lan-to-come", action="prohibit", family=6),
        PolicyRule(priority=890, uids=(997, 997), action="prohibit", family=6),
    ]
    done = namespace.run(sync, wanted, policy)
    assert done.problems == ()
    assert set(done.added) == {*map(str, wanted), *(f"rule {rule}" for rule in policy)}
    assert table(namespace, 1001) == [
        "default via 192.0.0.1 dev wan0 onlink",
        "unreachable default metric 4294967295",
    ]
    assert table(namespace, 1002) == ["default dev wan1 scope link"]
    assert table(namespace, 100) == ["local default dev lo scope host"]
    assert table(namespace, 99) == ["10.1.0.0/16 dev wan0 scope link"]
    assert rules(namespace) == [
        "0: from all lookup local",
        "100: from all lookup 99",
        "110: from all fwmark 0x10000000/0xf0000000 lookup 100",
        "200: from all fwmark 0x20000001 lookup 1001",
        "300: from 192.0.1.2 lookup 1002",
        "890: from all uidrange 997-998 prohibit",
        "900: from all iif lan-to-come [detached] prohibit",
        "32766: from all lookup main",
        "32767: from all lookup default",
    ]
    assert rules(namespace, 6) == [
        "0: from all lookup local",
        "890: from all uidrange 997-997 prohibit",
        "900: from all iif lan-to-come [detached] prohibit",
        "32766: from all lookup main",
    ]
    assert namespace.run(sync, wanted, policy) == NOTHING


def way6(destination: str, gateway: str | None = None, device: str = "wan0") -> RouteEntry:
    return RouteEntry(
        table=1001,
        destination=IPv6Network(destination),
        device=device,
        gateway=None if gateway is None else IPv6Address(gateway),
        metric=METRIC_IPV6,
    )


NOWHERE6 = RouteEntry(
    table=1001, destination=IPv6Network("::/0"), kind="unreachable", metric=METRIC_UNREACHABLE
)


def test_ipv6_routes_of_an_egress_are_added_and_removed(namespace: Namespace) -> None:
    def shown() -> set[str]:
        lines = namespace.shell("ip -6 route show table 1001").splitlines()
        return {
            line.replace(" proto 230", "").replace(" pref medium", "").strip() for line in lines
        }

    namespace.shell("ip address add 2001:db8::2/64 dev wan0 nodad")
    policy = [
        PolicyRule(priority=200, mark=1, mask=0xFFFF_FFFF, table=1001, family=6),
        by_mark(1, 1001),
    ]
    wanted = [NOWHERE6, way6("2001:db8::/64"), way6("::/0", "2001:db8::1"), unreachable(1001)]
    nowhere = "unreachable default dev lo metric 4294967295"
    near = "2001:db8::/64 dev wan0 metric 1024"
    assert namespace.run(sync, wanted, policy).problems == ()
    assert shown() == {nowhere, near, "default via 2001:db8::1 dev wan0 metric 1024"}
    assert namespace.run(sync, wanted, policy) == NOTHING

    wanted[2] = way6("::/0", "fe80::1")
    assert namespace.run(sync, wanted, policy).replaced == (str(wanted[2]),)
    assert shown() == {nowhere, near, "default via fe80::1 dev wan0 metric 1024"}

    namespace.shell("ip link set wan0 down")
    assert shown() == {nowhere}
    namespace.shell("ip link set wan0 up")
    assert namespace.run(sync, wanted, policy).problems == ()
    assert namespace.run(sync, [unreachable(1001)], []).problems == ()
    assert shown() == set()


def test_without_ipv6_there_is_no_problem(namespace: Namespace) -> None:
    namespace.shell("echo 1 | tee /proc/sys/net/ipv6/conf/*/disable_ipv6")
    rule = PolicyRule(priority=200, mark=1, mask=0xFFFF_FFFF, table=1001, family=6)
    done = namespace.run(sync, [NOWHERE6, unreachable(1001)], [rule, by_mark(1, 1001)])
    assert done.problems == ()
    assert str(unreachable(1001)) in done.added


def test_a_rule_waits_for_its_interface(namespace: Namespace) -> None:
    floor = [PolicyRule(priority=900, iif="lan0", action="prohibit")]
    namespace.run(sync, [], floor)
    assert "900: from all iif lan0 [detached] prohibit" in rules(namespace)
    namespace.shell("ip link add lan0 type veth peer name lan0-end")
    assert "900: from all iif lan0 prohibit" in rules(namespace)
    namespace.shell("ip link delete lan0")
    assert "900: from all iif lan0 [detached] prohibit" in rules(namespace)
    assert namespace.run(sync, [], floor) == NOTHING


def test_only_differing_entries_are_changed(namespace: Namespace) -> None:
    first = [unreachable(1001), default(1001, "wan0", "192.0.0.1"), default(1002, "wan1")]
    policy = [by_mark(1, 1001), by_mark(2, 1002)]
    namespace.run(sync, first, policy)
    second = [unreachable(1001), default(1001, "wan0", "192.0.0.9"), unreachable(1003)]
    done = namespace.run(sync, second, [by_mark(1, 1001), by_mark(3, 1003)])
    assert done == Synced(
        added=(str(unreachable(1003)), f"rule {by_mark(3, 1003)}"),
        replaced=(str(default(1001, "wan0", "192.0.0.9")),),
        removed=(f"rule {by_mark(2, 1002)}", str(default(1002, "wan1"))),
        problems=(),
    )
    assert namespace.run(sync, second, [by_mark(1, 1001), by_mark(3, 1003)]) == NOTHING


def test_entries_of_other_programs_are_not_changed(namespace: Namespace) -> None:
    namespace.shell("""
        ip route add 10.3.0.0/16 dev wan0 table 1001
        ip route add default via 192.0.1.1
        ip rule add priority 200 fwmark 7 lookup 1001
        ip rule add priority 201 fwmark 1 lookup 1001
        ip rule add priority 900 iif lan0 prohibit
    """)
    floor = PolicyRule(priority=900, iif="lan0", action="prohibit")
    before = rules(namespace), table(namespace, 254)
    for policy in ([by_mark(1, 1001), floor], []):
        done = namespace.run(sync, [unreachable(1001)], policy)
        assert done.problems == ()
        assert namespace.run(sync, [unreachable(1001)], policy) == NOTHING
    assert (rules(namespace), table(namespace, 254)) == before
    assert "10.3.0.0/16 dev wan0 scope link" in table(namespace, 1001)


def test_a_link_that_was_down_gets_its_routes_again(namespace: Namespace) -> None:
    wanted = [unreachable(1001), default(1001, "wan0", "192.0.0.1")]
    namespace.run(sync, wanted, [])
    namespace.shell("ip link set wan0 down")
    assert table(namespace, 1001) == ["unreachable default metric 4294967295"]
    down = namespace.run(sync, wanted, [])
    assert not down
    assert len(down.problems) == 1
    assert "wan0" in down.problems[0]
    namespace.shell("ip link set wan0 up")
    up = namespace.run(sync, wanted, [])
    assert (up.added, up.problems) == ((str(wanted[1]),), ())
    assert len(table(namespace, 1001)) == 2


def test_routes_follow_a_recreated_and_a_renamed_interface(namespace: Namespace) -> None:
    wanted = [unreachable(1001), default(1001, "wan0")]
    namespace.run(sync, wanted, [])
    namespace.shell("""
        ip link delete wan0
        ip link add wan0 index 77 type veth peer name wan0-end
        ip link set wan0-end up
        ip link set wan0 up
    """)
    assert namespace.run(sync, wanted, []).added == (str(wanted[1]),)
    namespace.shell("ip link set wan0 down; ip link set wan0 name wan9; ip link set wan9 up")
    gone = namespace.run(sync, wanted, [])
    assert gone.problems == (f"could not add {wanted[1]}: there is no such interface",)
    assert table(namespace, 1001) == ["unreachable default metric 4294967295"]
    renamed = [unreachable(1001), default(1001, "wan9")]
    namespace.run(sync, renamed, [])
    namespace.shell("ip link property add dev wan9 altname wan0")
    assert namespace.run(sync, renamed, []) == NOTHING


def test_an_entry_refused_by_the_kernel_does_not_stop_the_others(namespace: Namespace) -> None:
    wanted = [default(1001, "wan0", "192.0.0.2"), default(1002, "wan1", "192.0.1.1")]
    done = namespace.run(sync, wanted, [by_mark(1, 1001)])
    assert done.problems == (
        "could not add default via 192.0.0.2 dev wan0 table 1001: Nexthop has invalid gateway",
    )
    assert done.added == (str(wanted[1]), f"rule {by_mark(1, 1001)}")


def test_all_our_entries_are_removed_and_no_others(namespace: Namespace) -> None:
    before = rules(namespace), rules(namespace, 6), namespace.shell("ip route show table all")
    floor = [PolicyRule(priority=900, iif="lo", action="prohibit", family=f) for f in (4, 6)]
    namespace.run(sync, [unreachable(1001), default(1001, "wan0")], [by_mark(1, 1001), *floor])
    done = namespace.run(sync, [], [])
    assert len(done.removed) == 5
    assert done.removed[0].endswith("lookup 1001")
    after = rules(namespace), rules(namespace, 6), namespace.shell("ip route show table all")
    assert after == before


@pytest.mark.parametrize(("before", "after"), [(200, 90), (90, 200)])
def test_moved_rules_are_in_force_all_the_time(
    namespace: Namespace, before: int, after: int
) -> None:
    """The prohibiting rule never stands before rules that are still to be added."""

    def at(priority: int) -> list[PolicyRule]:
        floor = PolicyRule(priority=priority + 2, iif="lan0", action="prohibit")
        return [floor, by_mark(1, 1001, priority), by_mark(2, 1002, priority + 1)]

    namespace.run(sync, [], at(before))
    done = namespace.run(sync, [], at(after))
    assert [text.endswith("prohibit") for text in done.added] == [False, False, True]
    assert [text.endswith("prohibit") for text in done.removed] == [True, False, False]


def test_foreign_rules_are_distinguished_from_ours_and_the_kernels(namespace: Namespace) -> None:
    namespace.run(sync, [], [by_mark(1, 1001)])
    assert namespace.run(read).policy_rules == ()
    namespace.shell("""
        ip rule add not fwmark 51820 lookup 51820
        ip rule add priority 50 iif docker0 lookup 7
        ip -6 rule add priority 0 lookup local
        ip -6 rule add lookup main suppress_prefixlength 0
    """)
    found = namespace.run(read).policy_rules
    assert [(rule.family, rule.priority, rule.iif) for rule in found] == [
        (4, 50, "docker0"),
        (4, 199, ""),
        (6, 0, ""),
    ]


def test_64_egresses_are_synchronised_quickly(namespace: Namespace) -> None:
    wanted = [
        entry
        for number in range(64)
        for entry in (unreachable(1000 + number), default(1000 + number, "wan0", "192.0.0.1"))
    ]
    policy = [by_mark(0x2000_0000 + number, 1000 + number) for number in range(64)]

    def body() -> tuple[float, float]:
        began = time.perf_counter()
        assert len(sync(wanted, policy).added) == 192
        added = time.perf_counter()
        assert sync(wanted, policy) == NOTHING
        return added - began, time.perf_counter() - added

    first, again = namespace.run(body)
    assert first < 2
    assert again < 0.5


# --- Under traffic. ------------------------------------------------------------------------

PORT = 7000
SERVER = "203.0.113.9"


def flood(seconds: float) -> int:
    """Send numbered datagrams to the server, about 10,000 a second, and return their number."""
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((SERVER, PORT))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                sender.send(struct.pack(">I", sent))
            except OSError:  # an ICMP error came back: the router had no route for a datagram
                continue
            sent += 1
            time.sleep(0.0001)
    return sent


def receive(seconds: float) -> set[int]:
    """Return the numbers of the datagrams that arrive."""
    found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        receiver.bind((SERVER, PORT))
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            receiver.settimeout(left)
            try:
                found.add(struct.unpack(">I", receiver.recv(4))[0])
            except TimeoutError:
                break
    return found


@pytest.fixture
def triangle() -> Iterator[tuple[Namespace, Namespace, tuple[Namespace, Namespace]]]:
    """Yield a client, a router, and two gateways that are both the server."""
    with Namespace() as client, Namespace() as router, Namespace() as one, Namespace() as two:
        client.cable("eth0", router, "lan0")
        client.shell("ip address add 10.1.0.2/24 dev eth0; ip route add default via 10.1.0.1")
        router.shell("ip address add 10.1.0.1/24 dev lan0; sysctl -qw net.ipv4.ip_forward=1")
        for number, gateway in enumerate((one, two)):
            gateway.cable("eth0", router, f"wan{number}")
            router.shell(f"ip address add 192.0.{number}.2/24 dev wan{number}")
            gateway.shell(f"ip address add 192.0.{number}.1/24 dev eth0")
            gateway.shell(f"ip address add {SERVER} dev lo")
            gateway.shell(f"ip route add default via 192.0.{number}.2")
        yield client, router, (one, two)


def flapping(seconds: float, between: bool) -> tuple[int, int]:
    """Route the client by one gateway and the other in turn, and return the turns and the changes.

    With `between` the route is removed in between, which sync must never do.
    """
    floor = PolicyRule(priority=900, iif="lan0", action="prohibit")
    end = time.monotonic() + seconds
    turns = changes = 0
    while time.monotonic() < end:
        side = turns % 2
        wanted = [unreachable(1001), default(1001, f"wan{side}", f"192.0.{side}.1")]
        policy = [
            PolicyRule(priority=200, iif="lan0", table=1001),
            PolicyRule(priority=300, mark=turns + 1, mask=0xFFFF, table=1001),
            floor,
        ]
        if between:
            changes += bool(sync([], [floor]))
        changes += bool(sync(wanted, policy))
        turns += 1
        time.sleep(0.002)
    return turns, changes


@pytest.mark.parametrize("between", [True, False])
def test_no_packet_is_lost_while_a_route_is_replaced(
    triangle: tuple[Namespace, Namespace, tuple[Namespace, Namespace]], between: bool
) -> None:
    client, router, gateways = triangle
    for side in (0, 1):  # makes the neighbours known
        way = [default(1001, f"wan{side}", f"192.0.{side}.1")]
        router.run(sync, way, [PolicyRule(priority=200, iif="lan0", table=1001)])
        receiver = gateways[side].start(receive, 0.3)
        time.sleep(0.1)
        client.run(flood, 0.05)
        assert receiver.result()
    receivers = [gateway.start(receive, 2.5) for gateway in gateways]
    flapper = router.start(flapping, 2.0, between)
    time.sleep(0.3)
    sent = client.run(flood, 1.0)
    turns, changes = flapper.result()
    arrived = [receiver.result() for receiver in receivers]
    assert changes >= turns > 100
    assert all(len(part) > 50 for part in arrived)
    lost = sent - len(arrived[0] | arrived[1])
    if between:
        assert lost > 0, "the flood would not notice"
    else:
        assert lost == 0
