"""Flattening, held against a plain longest-prefix search over `ipaddress`."""

from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from egressd.planner.flatten import Span, flatten, merge, overlaps, spans

BLOCK = int(IPv4Address("10.0.0.0"))

networks = st.builds(
    lambda offset, length: IPv4Network(
        ((BLOCK + offset) >> (32 - length) << (32 - length), length)
    ),
    st.integers(0, 1023),
    st.integers(20, 32),
)


def bounds(text: str) -> tuple[int, int]:
    first, last = text.split("-")
    return int(IPv4Address(first)), int(IPv4Address(last))


def by_longest_prefix(rules: dict[IPv4Network, int], address: int) -> int | None:
    covering = [n for n in rules if IPv4Address(address) in n]
    return rules[max(covering, key=lambda n: n.prefixlen)] if covering else None


@given(st.dictionaries(networks, st.integers(1, 3), max_size=12))
def test_every_address_gets_the_value_of_its_longest_prefix(rules: dict[IPv4Network, int]) -> None:
    ranges = [(*bounds(text), value) for text, value in flatten(rules).items()]
    for address in range(BLOCK, BLOCK + 1024):
        hits = [value for first, last, value in ranges if first <= address <= last]
        expected = by_longest_prefix(rules, address)
        assert hits == ([] if expected is None else [expected])


@given(st.dictionaries(networks, st.integers(1, 3), max_size=12))
def test_ranges_are_sorted_disjoint_and_joined(rules: dict[IPv4Network, int]) -> None:
    ranges = [(*bounds(text), value) for text, value in flatten(rules).items()]
    for (_, last, value), (first, _, following) in pairwise(ranges):
        assert last < first
        assert last + 1 < first or value != following


def test_a_network_inside_a_wider_one_splits_its_range() -> None:
    rules = {IPv4Network("10.0.0.0/8"): 1, IPv4Network("10.1.0.0/16"): 2}
    assert flatten(rules) == {
        "10.0.0.0-10.0.255.255": 1,
        "10.1.0.0-10.1.255.255": 2,
        "10.2.0.0-10.255.255.255": 1,
    }


def test_the_whole_address_space_is_one_range() -> None:
    assert flatten({IPv4Network("0.0.0.0/0"): 7}) == {"0.0.0.0-255.255.255.255": 7}


def test_merging_joins_neighbours_and_drops_contained_networks() -> None:
    listed = ["10.0.0.0/25", "10.0.0.128/25", "10.0.0.7/32", "10.2.0.0/16"]
    assert merge(map(IPv4Network, listed)) == ("10.0.0.0-10.0.0.255", "10.2.0.0-10.2.255.255")


@given(*[st.dictionaries(networks, st.integers(1, 3), max_size=12)] * 2)
def test_common_ranges_have_the_values_of_both_lists(
    rules: dict[IPv4Network, int], others: dict[IPv4Network, int]
) -> None:
    def value(found: list[Span], address: int) -> int | None:
        hits = [span.value for span in found if span.first <= address <= span.last]
        assert len(hits) <= 1
        return hits[0] if hits else None

    first, second = spans(rules), spans(others)
    common = list(overlaps(first, second))
    for address in range(BLOCK, BLOCK + 1024):
        both = value(first, address), value(second, address)
        found = value([a for a, _ in common], address), value([b for _, b in common], address)
        assert found == (both if None not in both else (None, None))
