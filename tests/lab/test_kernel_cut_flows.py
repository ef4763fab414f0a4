"""Flows that were cut are put in the kernel's set, and in a table that is loaded in its place."""

import re
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from socket import inet_aton
from typing import Final

import pytest

from egressd.netd.kernel.cut_flows import TIMEOUT_S, CutFlows
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner.chains import CUT_FLOWS_MAX, SETS
from egressd.planner.nft import with_cut
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

TABLE: Final = f"""\
add table inet egressd
add set inet egressd cut_flows {SETS["cut_flows"].declared()}
"""
AN_HOUR: Final = """\
add element inet egressd cut_flows { 10.0.0.9 . 40000 . 192.0.2.1 . 443 timeout 1h }
"""


def keys(first: int, count: int) -> Iterator[list[bytes]]:
    """Yield the keys of so many flows, as many at once as the set takes."""
    for start in range(first, first + count, SWAPPED_MAX):
        numbers = range(start, min(start + SWAPPED_MAX, first + count))
        yield [key(number) for number in numbers]


def key(number: int) -> bytes:
    client = struct.pack(">IHH", (10 << 24) + number, 40_000, 0)
    return client + inet_aton("192.0.2.1") + struct.pack(">HH", 443, 0)


def listed() -> dict[str, int]:
    """Return the clients of the set's elements, with the seconds until each expires."""
    listing = ["nft", "list", "set", "inet", "egressd", "cut_flows"]
    text = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    found = re.findall(
        r"(10\.[\d.]+) \. 40000 \. 192\.0\.2\.1 \. 443 .*? expires ([\dhmsd]+)", text
    )
    return {client: seconds(left) for client, left in found}


def seconds(text: str) -> int:
    units = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0}
    return sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)(ms|[dhms])", text))


def reload(nft: Nft, cut_flows: CutFlows, text: str = TABLE) -> None:
    with cut_flows.held() as elements:
        nft.run(with_cut(text, elements))


def test_a_new_table_has_the_flows_for_the_time_left(namespace: Namespace) -> None:
    def body() -> None:
        with closing(Nft()) as nft:
            nft.run(TABLE + AN_HOUR)
            cut_flows = CutFlows()
            cut_flows.load_previous()  # an earlier netd's
            assert cut_flows.put([key(1)])
            nft.run("flush ruleset")
            assert not cut_flows.put([key(2)]), "there is no table"
            reload(nft, cut_flows)
            found = listed()
            assert found.keys() == {"10.0.0.1", "10.0.0.9"}
            assert TIMEOUT_S - 60 < found["10.0.0.1"] <= TIMEOUT_S
            assert 3_540 < found["10.0.0.9"] <= 3_600
            # One that is put in anew is there for the whole time.
            assert cut_flows.put([key(9)])
            nft.run("flush ruleset")
            reload(nft, cut_flows)
            assert listed()["10.0.0.9"] > TIMEOUT_S - 60

    namespace.run(body)


def test_there_is_nothing_of_an_earlier_netd_without_a_table(namespace: Namespace) -> None:
    def body() -> None:
        cut_flows = CutFlows()
        cut_flows.load_previous()
        with cut_flows.held() as elements:
            assert elements == []

    namespace.run(body)


def test_a_load_leaves_flows_that_are_in_the_set_as_they_are(namespace: Namespace) -> None:
    def body() -> None:
        cut_flows = CutFlows()
        with closing(Nft()) as nft:
            nft.run(TABLE)
            assert cut_flows.put([key(1)])
            reload(nft, cut_flows)
            assert listed().keys() == {"10.0.0.1"}

    namespace.run(body)


def test_a_full_set_is_loaded_again_whole(namespace: Namespace) -> None:
    def body() -> None:
        cut_flows = CutFlows()
        with closing(Nft()) as nft:
            nft.run(TABLE)
            # The kernel counts an element that is put in anew twice, until the transaction's end.
            assert all(map(cut_flows.put, keys(0, CUT_FLOWS_MAX - SWAPPED_MAX)))
            reload(nft, cut_flows)
            nft.run("flush ruleset")
            reload(nft, cut_flows)
            assert len(listed()) == CUT_FLOWS_MAX - SWAPPED_MAX

    namespace.run(body)


def test_no_more_flows_are_remembered_than_the_set_has_room_for(namespace: Namespace) -> None:
    def body() -> None:
        cut_flows = CutFlows()
        with closing(Nft()) as nft:
            nft.run(TABLE)
            assert all(map(cut_flows.put, keys(0, 40_000)))
            nft.run("flush set inet egressd cut_flows")  # by another program
            assert all(map(cut_flows.put, keys(40_000, 40_000)))
            nft.run("flush ruleset")
            reload(nft, cut_flows)
            found = listed()
            assert len(found) == CUT_FLOWS_MAX
            assert "10.0.0.0" not in found, "the oldest one"

    namespace.run(body)
