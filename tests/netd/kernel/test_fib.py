"""Routes and policy rules as messages: decoding reverses encoding."""

from ipaddress import IPv4Address, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from egressd.model.routing import PolicyRule, RouteEntry
from egressd.netd.kernel import fib
from egressd.netd.kernel.netlink import attribute
from egressd.planner.registry import ROUTE_PROTOCOL

INDEXES = {"lo": 1, "lan0": 2, "eth0.100": 3, "l2tp_headoffice": 70_000}
NAMES = {index: name for name, index in INDEXES.items()}

u32 = st.integers(0, 0xFFFF_FFFF)
tables = st.integers(1, 0xFFFF_FFFF)
devices = st.sampled_from(sorted(INDEXES))
networks = st.builds(
    lambda address, length: IPv4Network((address >> (32 - length) << (32 - length), length)),
    u32,
    st.integers(0, 32),
)

routes = st.one_of(
    st.builds(
        RouteEntry,
        table=tables,
        destination=networks,
        device=devices,
        gateway=st.none() | st.ip_addresses(v=4),
        metric=u32,
    ),
    st.builds(
        RouteEntry, table=tables, destination=networks, kind=st.just("local"), device=devices
    ),
    st.builds(
        RouteEntry, table=tables, destination=networks, kind=st.just("unreachable"), metric=u32
    ),
)
rules = st.builds(
    PolicyRule,
    family=st.sampled_from([4, 6]),
    priority=u32,
    action=st.just("lookup"),
    table=tables,
    mark=u32,
    mask=st.integers(1, 0xFFFF_FFFF),
    iif=st.just("") | devices,
    uids=st.none() | st.tuples(u32, u32),
    source=st.none() | st.ip_addresses(v=4),
) | st.builds(
    PolicyRule,
    family=st.sampled_from([4, 6]),
    priority=u32,
    action=st.just("prohibit"),
    iif=st.just("") | devices,
    uids=st.none() | st.tuples(u32, u32),
)


@given(routes)
def test_a_decoded_route_equals_the_encoded_one(route: RouteEntry) -> None:
    assert fib.decode_route(fib.encode_route(route, INDEXES), NAMES) == route


@given(rules)
def test_a_decoded_rule_equals_the_encoded_one(rule: PolicyRule) -> None:
    assert fib.decode_rule(fib.encode_rule(rule)) == rule


def test_entries_of_other_programs_are_not_ours() -> None:
    route = bytearray(
        fib.encode_route(
            RouteEntry(table=7, destination=IPv4Network("0.0.0.0/0"), device="lo"), INDEXES
        )
    )
    assert route[5] == ROUTE_PROTOCOL
    route[5] = 3  # RTPROT_BOOT, ip-route(8)'s
    assert fib.decode_route(bytes(route), NAMES) is None

    rule = PolicyRule(priority=5, table=7)
    header, ours = fib.encode_rule(rule)[:12], attribute(21, bytes([ROUTE_PROTOCOL]))
    assert ours in fib.encode_rule(rule)
    assert fib.decode_rule(fib.encode_rule(rule).replace(ours, attribute(21, b"\x03"))) is None
    assert fib.decode_rule(header) is None


def test_a_route_with_a_deleted_interface_differs_from_every_wanted_route() -> None:
    route = RouteEntry(table=7, destination=IPv4Network("10.0.0.0/8"), device="lan0")
    assert fib.decode_route(fib.encode_route(route, INDEXES), {}) != route


def test_scopes_are_those_of_ip_route() -> None:
    def scope(**fields: object) -> int:
        route = RouteEntry(table=1, destination=IPv4Network("0.0.0.0/0"), **fields)  # type: ignore[arg-type]
        return fib.encode_route(route, INDEXES)[6]

    assert scope(device="lan0") == 253
    assert scope(device="lan0", gateway=IPv4Address("192.0.2.1")) == 0
    assert scope(kind="local", device="lo") == 254
    assert scope(kind="unreachable") == 0
