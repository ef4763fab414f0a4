"""Flows that were cut are put in the kernel's set, and in a table that is loaded in its place."""

from contextlib import closing
from typing import Final

import pytest

from egressd.netd.kernel.cut_flows import TIMEOUT_S, CutFlows
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner.chains import CUT_FLOWS_MAX
from egressd.planner.nft import with_cut
from tests.support.cut_flows import TABLE, key, keys, listed
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

AN_HOUR: Final = """\
add element inet egressd cut_flows { 10.0.0.9 . 40000 . 192.0.2.1 . 443 timeout 1h }
"""


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


def test_flows_of_the_other_box_stay_for_the_time_left(namespace: Namespace) -> None:
    def body() -> None:
        cut_flows = CutFlows()
        with closing(Nft()) as nft:
            cut_flows.adopt({key(1): 3_600_000, key(2): 90_000_000, key(3): 5})
            reload(nft, cut_flows)  # there was no table to put them in
            cut_flows.adopt({key(1): 1_800_000, key(4): 7_200_000})
            for _ in range(2):
                found = listed()
                assert found.keys() == {"10.0.0.1", "10.0.0.2", "10.0.0.4"}
                assert 3_540 < found["10.0.0.1"] <= 3_600, "it was known to end later"
                assert TIMEOUT_S - 60 < found["10.0.0.2"] <= TIMEOUT_S
                assert 7_140 < found["10.0.0.4"] <= 7_200
                nft.run("flush ruleset")
                reload(nft, cut_flows)
            cut_flows.adopt({key(4): 14_400_000})
            assert listed()["10.0.0.4"] > 14_340

    namespace.run(body)
