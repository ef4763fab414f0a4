"""Sets of addresses, held against `ipaddress`."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.kernel.ranges import Ranges

BLOCK = int(IPv4Address("10.0.0.0"))
spans = st.tuples(st.integers(0, 300), st.integers(0, 300)).map(
    lambda ends: (IPv4Address(BLOCK + min(ends)), IPv4Address(BLOCK + max(ends)))
)


@given(st.lists(spans, max_size=6))
def test_an_address_is_in_it_if_in_one_of_its_parts(
    parts: list[tuple[IPv4Address, IPv4Address]],
) -> None:
    ranges = Ranges(f"{first}-{last}" for first, last in parts)
    for number in range(BLOCK - 1, BLOCK + 302):
        address = IPv4Address(number)
        inside = any(first <= address <= last for first, last in parts)
        assert (address.packed in ranges) == inside
        assert any(address in network for network in ranges.networks()) == inside


def test_all_three_notations() -> None:
    ranges = Ranges(["10.0.0.1", "10.1.0.0/16", "10.2.0.4-10.2.0.7"])
    assert list(ranges.networks()) == [
        IPv4Network("10.0.0.1/32"),
        IPv4Network("10.1.0.0/16"),
        IPv4Network("10.2.0.4/30"),
    ]
    assert ranges.size == 1 + 65_536 + 4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "Expected 4 octets"),
        ("10.0.0.0/33", "not a valid netmask"),
        ("10.0.0.1/8", "host bits set"),
        ("10.0.0.9-10.0.0.1", "greater"),
    ],
)
def test_what_is_no_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ranges([text])
