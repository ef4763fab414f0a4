"""Every object of egressd's nftables tables has a comment, and only where it is created."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain, permutations
from types import ModuleType

import pytest

from egressd.model.plan import Change, Patch
from egressd.netd.kernel.nft import HOLD_CHAINS, HOLD_COMMENT
from egressd.netd.kernel.tc.counts import count_script
from egressd.planner import nft, shaping
from egressd.planner.chains import (
    CHAINS,
    RETIRED,
    RETIRED_MAPS,
    answers,
    bounds,
    dns,
    engine,
    forward,
    output,
    postrouting,
    prerouting,
)
from egressd.planner.chains import input as input_hook
from egressd.planner.declared import COMMENT_MAX
from egressd.planner.shaping import NETDEV, Hook
from tests.support.configurations import CONFIGURATIONS, LAN, LEASED
from tests.support.nft_reference import hooks

COMMENTS = {
    "table inet egressd": nft.INET.comment,
    "table netdev egressd": NETDEV.comment,
    "table inet egressd_hold": HOLD_COMMENT,
    **{
        f"{sets.comment}: {name}": each.comment
        for sets in (nft.INET, NETDEV)
        for name, each in chain(sets.sets.items(), sets.maps.items())
    },
    **{f"chain {name}": each.comment for name, each in CHAINS.items()},
    **{f"chain {name} of egressd_hold": each.comment for name, each in HOLD_CHAINS.items()},
}


@pytest.mark.parametrize("name", COMMENTS)
def test_a_comment_is_short_and_plain(name: str) -> None:
    comment = COMMENTS[name]
    assert 0 < len(comment.encode()) <= COMMENT_MAX
    assert re.fullmatch(r"[ -~]+", comment), "ASCII, as any terminal shows it"
    assert not set('"\\') & set(comment)


def test_each_object_has_a_comment_of_its_own() -> None:
    assert [text for text, times in Counter(COMMENTS.values()).items() if times > 1] == []


def test_a_load_creates_each_object_with_its_comment() -> None:
    gone = {*RETIRED, *RETIRED_MAPS}
    hooked = shaping.chains([Hook(7, "lan0")], [LAN], ())
    created = 0
    for line in (nft.load(LEASED, is_gated=True) + hooked).splitlines():
        does, kind, _, _, *name = line.split()
        if does == "add" and kind in {"table", "set", "map", "chain"} and name[0] not in gone:
            created += 1
            assert re.search(r' comment "[^"]+"; \}$', line), line
    # Both tables, their sets and maps, and of speed limits two chains for each direction and one
    # for each of its hooks.
    sets = sum(len(each.names) for each in (nft.INET, NETDEV))
    assert created == 2 + sets + len(CHAINS) + 2 * (2 + 1)


def test_small_transactions_have_comments_only_where_they_create() -> None:
    """A later load would not add them: it leaves existing objects as they are."""
    for before, after in permutations(CONFIGURATIONS.values(), 2):
        assert "comment" not in nft.INET.update(before, after)
    change = Change(base=0, revision=1, hosts=Patch(put={"10.77.0.11": 1}))
    assert "comment" not in nft.host_update({}, change).script()
    counted = count_script({}, shaping.count_elements(["10.77.0.11"], ["10.77.0.0-10.77.0.255"]))
    assert "add element inet egressd sent { 10.77.0.11 }" in counted
    creations = re.findall(r"^add (?:table|set) .*", counted, re.MULTILINE)
    assert len(creations) == 1 + 4
    assert all("comment" in line for line in creations)


@pytest.mark.parametrize(
    ("module", "hook"),
    [
        (prerouting, "prerouting"),
        (dns, "prerouting"),
        (engine, "prerouting"),
        (bounds, "prerouting"),
        (input_hook, "input"),
        (forward, "forward"),
        (output, "output"),
        (answers, "output"),
        (postrouting, "postrouting"),
    ],
)
def test_the_chains_of_a_file_are_reached_from_its_hook(module: ModuleType, hook: str) -> None:
    reached = hooks()
    assert {name for name in module.CHAINS if hook not in reached[name]} == set()


def test_every_chain_is_reachable_from_a_hook() -> None:
    assert [name for name, found in hooks().items() if not found] == []


def test_configurations_fill_each_set_that_a_load_fills() -> None:
    filled = {name for wanted in CONFIGURATIONS.values() for name, c in wanted.items() if c}
    assert filled == set(CONFIGURATIONS["stopped"])
