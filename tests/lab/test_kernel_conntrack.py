"""One client's tracked connections are deleted among many, and counted."""

import re
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from socket import IPPROTO_TCP, IPPROTO_UDP

import pytest

from egressd.netd.kernel import conntrack, uapi
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.conntrack import TrackedFlow
from egressd.netd.kernel.cut_flows import CutFlows
from egressd.netd.kernel.netlink import NetlinkSocket, attribute, nest
from egressd.planner.chains import SETS
from egressd.planner.registry import MARK_ENGINE, egress_mark, inbound_number
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

OUTSIDE = "198.51.100.1"
ROUTER = "203.0.113.2"
LANS = Ranges(["10.1.0.0/16"])
_NEW = 1 << 8  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW


def side(
    kind: int, source: str, target: str, ports: tuple[int, int], protocol: int = IPPROTO_UDP
) -> bytes:
    """Return CTA_TUPLE_ORIG or CTA_TUPLE_REPLY of a flow."""
    addresses = (IPv4Address(source).packed, IPv4Address(target).packed)
    return nest(
        kind,
        nest(1, attribute(1, addresses[0]), attribute(2, addresses[1])),
        nest(
            2,
            attribute(1, bytes([protocol])),
            attribute(2, struct.pack(">H", ports[0])),
            attribute(3, struct.pack(">H", ports[1])),
        ),
    )


def track(
    opener: str,
    asked: str,
    port: int,
    *,
    answerer: str | None = None,
    seen_as: str | None = None,
    mark: int = 0,
    asked_port: int = 443,
    protocol: int = IPPROTO_UDP,
    tcp_state: int = 0,
) -> None:
    """Make an entry: `opener` sends to `asked`, `answerer` replies to `seen_as` (NAT)."""
    original = side(1, opener, asked, (port, asked_port), protocol)
    reply = side(2, answerer or asked, seen_as or opener, (asked_port, port), protocol)
    timeout, status = attribute(7, struct.pack(">I", 600)), attribute(3, struct.pack(">I", 0xA))
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        header = struct.pack("=BBH", socket.AF_INET, 0, 0)
        body = header + original + reply + timeout + status
        body += attribute(8, struct.pack(">I", mark))
        if protocol == IPPROTO_TCP:
            body += nest(4, nest(1, attribute(1, bytes([tcp_state]))))
        kernel.request(_NEW, body, uapi.NLM_F_CREATE | uapi.NLM_F_EXCL)


def entries(protocol: str = "udp") -> set[tuple[str, str, int]]:
    """Return the opener, destination and source port of each entry, as conntrack(8) lists them."""
    listed = subprocess.run(
        ["conntrack", "-L", "-p", protocol], check=True, capture_output=True, text=True
    ).stdout
    found = set()
    for line in listed.splitlines():
        values: dict[str, str] = {}
        for word in line.split():
            key, _, value = word.partition("=")
            values.setdefault(key, value)
        found.add((values["src"], values["dst"], int(values["sport"])))
    return found


def delete_stale(
    clients: list[str],
    is_current: Callable[[bytes, TrackedFlow], bool] = lambda _client, _flow: False,
    lans: Ranges = LANS,
) -> int:
    return conntrack.delete_stale(clients, lans, is_current, CutFlows().put)


def flows() -> None:
    for number, client in enumerate(("10.1.0.2", "10.1.0.3", "10.1.0.20", "10.1.1.2")):
        for port in (1000 + number, 2000 + number):
            track(client, OUTSIDE, port)
    track("10.1.0.2", OUTSIDE, 3000, seen_as=ROUTER)  # masqueraded
    track(OUTSIDE, ROUTER, 4000, answerer="10.1.0.2")  # a port forward to the client
    track(OUTSIDE, ROUTER, 4001, answerer="10.1.0.3")
    track("10.1.0.3", "10.1.1.2", 5000)  # between two LANs


def without(wanted: set[str], everything: set[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    return {e for e in everything if e[0] not in wanted}


@pytest.mark.parametrize(
    ("clients", "gone"),
    [
        (["10.1.0.2"], {"10.1.0.2"}),
        (["10.1.1.2"], {"10.1.1.2"}),
        (["10.1.0.0/24"], {"10.1.0.2", "10.1.0.3", "10.1.0.20"}),
        (["10.1.0.3-10.1.0.19"], {"10.1.0.3"}),
        (["10.1.0.2", "10.1.1.2"], {"10.1.0.2", "10.1.1.2"}),
        (["10.1.0.2", "10.1.0.3", "10.1.1.2"], {"10.1.0.2", "10.1.0.3", "10.1.1.2"}),
        ([f"10.1.0.{n}" for n in range(2, 20, 2)], {"10.1.0.2"}),
        (["10.9.9.9"], set()),
        (["0.0.0.0/0"], {"10.1.0.2", "10.1.0.3", "10.1.0.20", "10.1.1.2"}),
        (["198.51.100.0/24"], set()),
        ([], set()),
    ],
)
def test_only_entries_of_the_client_are_deleted(
    namespace: Namespace, clients: list[str], gone: set[str]
) -> None:
    forwards = {("10.1.0.2", 4000), ("10.1.0.3", 4001)}

    def body() -> None:
        flows()
        before = entries()
        assert len(before) == 12
        deleted = delete_stale(clients)
        left = entries()
        assert left == {
            entry
            for entry in without(gone, before)
            if not any(entry[2] == port and client in gone for client, port in forwards)
        }
        assert deleted == len(before) - len(left)

    namespace.run(body)


def test_queries_to_a_resolver_are_deleted(namespace: Namespace) -> None:
    def body() -> None:
        silent, other = "192.0.2.53", "192.0.2.54"
        track("10.1.0.2", silent, 1000, asked_port=53)
        track("10.1.0.2", other, 1001, asked_port=53)
        track("10.1.0.3", other, 1002, asked_port=53, answerer=silent, seen_as=ROUTER)
        track("10.1.0.3", silent, 1003, asked_port=53, answerer=other)
        track(ROUTER, silent, 1004)
        track("10.1.0.2", silent, 1005, asked_port=53, protocol=socket.IPPROTO_TCP)
        assert conntrack.forget_questions(IPv4Address(silent)) == 2
        assert {port for _, _, port in entries()} == {1001, 1003, 1004}
        assert conntrack.count([IPv4Network("0.0.0.0/0")]) == 4  # a query by TCP goes on

    namespace.run(body)


def test_flows_to_a_former_address_of_this_machine_are_deleted(namespace: Namespace) -> None:
    def body() -> None:
        own, other = "192.0.2.53", "192.0.2.54"
        track("10.1.0.2", own, 1000)
        track("10.1.0.2", other, 1001)
        track("10.1.0.2", own, 1002, mark=0x3000_0000)  # it was forwarded
        track("10.1.0.3", own, 1003, answerer=other)
        track("10.1.0.3", own, 1005, mark=0x1000_0001)
        track("10.1.0.3", own, 1006, mark=egress_mark(inbound_number(0)))
        assert conntrack.forget_own(IPv4Address(own)) == 2
        assert {port for _, _, port in entries()} == {1001, 1003, 1005, 1006}

    namespace.run(body)


def test_current_entries_are_kept(namespace: Namespace) -> None:
    def body() -> None:
        track("10.1.0.2", OUTSIDE, 1000, mark=0x1000_0001)
        track("10.1.0.2", OUTSIDE, 1001, mark=0x3000_0000)
        track("10.1.0.3", OUTSIDE, 1002, mark=0x1000_0001)
        track("10.1.0.4", OUTSIDE, 1003, mark=0x1000_0001)
        track(OUTSIDE, ROUTER, 4000, answerer="10.1.0.2", mark=0x2000_0007)
        asked = set()

        def is_current(client: bytes, flow: TrackedFlow) -> bool:
            asked.add((str(IPv4Address(client)), flow.mark))
            assert str(IPv4Address(flow.far)) == OUTSIDE
            far_port = 4000 if flow.mark == 0x2000_0007 else 443
            # These entries have no real NAT; test_udp_flows has flows with it.
            is_inbound = far_port == 4000
            assert flow[2:] == (socket.IPPROTO_UDP, far_port, False, is_inbound, is_inbound)
            return flow.mark == 0x3000_0000

        assert delete_stale(["10.1.0.2", "10.1.0.3"], is_current) == 3
        assert {port for _, _, port in entries()} == {1001, 1003}
        assert asked == {
            ("10.1.0.2", 0x1000_0001),
            ("10.1.0.2", 0x3000_0000),
            ("10.1.0.2", 0x2000_0007),
            ("10.1.0.3", 0x1000_0001),
        }

    namespace.run(body)


SYN_SENT, ESTABLISHED, TIME_WAIT, CLOSE = 1, 3, 7, 8  # linux/netfilter/nf_conntrack_tcp.h


def open_connections(number: int) -> None:
    """Make entries of a client's connections that the kernel routes, and of others."""
    for port in range(1000, 1000 + number):
        track(
            "10.1.0.2",
            OUTSIDE,
            port,
            mark=egress_mark(3),
            protocol=IPPROTO_TCP,
            tcp_state=ESTABLISHED,
        )
    others = {
        900: (egress_mark(3), SYN_SENT),
        901: (egress_mark(3), TIME_WAIT),
        902: (0, ESTABLISHED),  # between LANs
        1100: (egress_mark(3), CLOSE),
        1101: (MARK_ENGINE | 5, ESTABLISHED),
    }
    for port, (mark, state) in others.items():
        track("10.1.0.2", OUTSIDE, port, mark=mark, protocol=IPPROTO_TCP, tcp_state=state)


def test_open_connections_are_kept_cut_before_they_are_deleted(namespace: Namespace) -> None:
    namespace.shell(f"""
        nft 'add table inet egressd'
        nft 'add set inet egressd cut_flows {SETS["cut_flows"].declared()}'
    """)

    def body() -> str:
        open_connections(100)
        assert delete_stale(["10.1.0.2"]) == 105
        assert entries("tcp") == set()
        listing = ["nft", "list", "set", "inet", "egressd", "cut_flows"]
        return subprocess.run(listing, check=True, capture_output=True, text=True).stdout

    listed = namespace.run(body)
    ports = {int(port) for port in re.findall(r"10\.1\.0\.2 \. (\d+) \.", listed)}
    assert ports == set(range(1000, 1102))
    assert f". {OUTSIDE} . 443 timeout 1d" in listed


def test_open_connections_that_cannot_be_kept_cut_stay(namespace: Namespace) -> None:
    def body() -> None:
        open_connections(3)
        assert delete_stale(["10.1.0.2"]) == 3
        assert {port for _, _, port in entries("tcp")} == {1000, 1001, 1002, 1100, 1101}

    namespace.run(body)


def test_a_flow_is_judged_by_its_client_and_not_by_its_destination(namespace: Namespace) -> None:
    def body() -> None:
        track("10.1.0.2", OUTSIDE, 1000)
        track("10.1.0.2", "10.1.1.2", 1001)  # such as a resolver on another LAN
        track(OUTSIDE, ROUTER, 4000, answerer="10.1.0.2")
        asked = set()

        def is_current(client: bytes, _: TrackedFlow) -> bool:
            asked.add(str(IPv4Address(client)))
            return True

        assert delete_stale(["10.1.1.0/24", "198.51.100.0/24"], is_current) == 0
        assert asked == set()
        assert delete_stale(["0.0.0.0/0"], is_current) == 0
        assert asked == {"10.1.0.2"}

    namespace.run(body)


def test_flows_opened_by_clients_are_counted(namespace: Namespace) -> None:
    def body() -> None:
        assert conntrack.count([IPv4Network("10.1.0.0/16")]) == 0
        flows()
        assert conntrack.count([IPv4Network("10.1.0.0/16")]) == 10
        assert conntrack.count([IPv4Network("10.1.0.0/24")]) == 8
        assert conntrack.count([IPv4Network("10.1.0.2/32"), IPv4Network("10.1.1.0/24")]) == 5
        assert conntrack.count([]) == 0

    namespace.run(body)


def test_a_real_flow_is_deleted(namespace: Namespace) -> None:
    namespace.shell("""
        nft 'add table ip track'
        nft 'add chain ip track out { type filter hook output priority 0; }'
        nft 'add rule ip track out ct state new counter'
    """)

    def body() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
            one.sendto(b"x", ("127.0.0.2", 9))
            two = one.dup()
        with two:
            port = two.getsockname()[1]
            assert ("127.0.0.1", "127.0.0.2", port) in entries()
            assert delete_stale(["127.0.0.1"], lans=Ranges(["127.0.0.0/8"])) >= 1
            assert entries() == set()

    namespace.run(body)


def test_20_000_entries_are_deleted_quickly(namespace: Namespace) -> None:
    def body() -> tuple[float, float]:
        for client in range(200):
            for port in range(100):
                track(f"10.1.0.{client + 1}", OUTSIDE, 1000 + port)
        began = time.perf_counter()
        assert delete_stale(["10.1.0.7"]) == 100
        one = time.perf_counter()
        assert conntrack.count([IPv4Network("10.1.0.0/16")]) == 19_900
        counted = time.perf_counter()
        return one - began, counted - one

    one, counted = namespace.run(body)
    assert one < 0.5
    assert counted < 1.0
