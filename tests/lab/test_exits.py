"""Exits are asked through each target itself, by a real node and real WANs, and never by another
path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.lab.five import heard
from tests.support.device import SERVER, add_nodes, eventually, send

pytestmark = pytest.mark.lab

PAGE: Final = f"http://{SERVER}/page"
FIRST_S: Final = 60.0
"""Seconds for the first answers: requests begin 20 s after the start."""
SOON_S: Final = 30.0
"""Seconds for the answer of a changed node, which is asked within 5 s; the time-out is 8 s."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5", "http"))) as lab:
        lab.internet.put_page("ip={ip}\nloc=JP\n")
        lab.start_egressd({"exits": {"url": PAGE, "check_interval_s": 3600}})
        add_nodes(lab)
        for client, target in {1: "socks5", 2: "Interface:wan2", 3: "DIRECT"}.items():
            send(lab, client, target)
        eventually(lambda: all(each["ip"] for each in listed(lab).values()), FIRST_S)
        yield lab


def listed(lab: Lab) -> dict[str, dict[str, Any]]:
    found = lab.api.ask("GET", "/ops/exits").body["data"]
    return {each["name"]: each for each in found}


def lead_to(lab: Lab, server: str) -> None:
    """Make the node ``socks5`` the lab's node `server`; it is asked again then."""
    (node,) = [each for each in lab.api.get("/nodes")["data"] if each["name"] == "socks5"]
    lab.api.put(f"/nodes/{node['id']}", lab.nodes[server].draft() | {"name": "socks5"})


def test_each_target_shows_the_address_that_far_ends_see(lab: Lab) -> None:
    found = listed(lab)
    assert {name: each["ip"] for name, each in found.items()} == {
        "socks5": lab.nodes["socks5"].address,
        "Interface:wan2": lab.wan(2).address,
        "DIRECT": lab.wan(1).address,
    }
    assert {each["country"] for each in found.values()} == {"JP"}
    assert all(each["error"] == "" for each in found.values())
    shown = json.loads(lab.device.run("exits", "--json"))
    assert {each["name"] for each in shown["data"]} == found.keys()
    assert lab.nodes["socks5"].address in lab.device.run("exits")


def test_a_changed_address_is_an_event_and_has_a_new_time(lab: Lab) -> None:
    before = listed(lab)["socks5"]
    with ExitStack() as mend, heard(lab) as five:
        mend.callback(lead_to, lab, "socks5")
        lead_to(lab, "http")
        address = lab.nodes["http"].address
        five.await_news(f"socks5 leaves by {address}, and left by {before['ip']}", SOON_S)
        now = listed(lab)["socks5"]
        assert (now["ip"], now["error"]) == (address, "")
        assert now["changed_at"] > before["changed_at"]
        mend.close()
        five.await_news(f"socks5 leaves by {before['ip']}, and left by {address}", SOON_S)


@pytest.mark.parametrize(
    ("page", "has_end", "code"),
    [
        ("ip={ip}\n" + "x=" + "a" * 65536, True, "exit-page-long"),
        ("ip={ip}\x1b[2J\n", True, "exit-page-form"),
        ("ip={ip}\n", False, "timed-out-at"),
        ("ip=127.0.0.1\n", True, "exit-page-address"),
    ],
    ids=["64-kb", "control-characters", "no-end", "loopback"],
)
def test_hostile_pages_are_refused_and_change_nothing(
    lab: Lab, page: str, has_end: bool, code: str
) -> None:
    before = listed(lab)["socks5"]
    with ExitStack() as mend, heard(lab) as five:
        mend.callback(settled, lab)
        lab.internet.put_page(page, has_end=has_end)
        lead_to(lab, "http")
        eventually(lambda: listed(lab)["socks5"]["error"] != "", SOON_S)
        found = listed(lab)["socks5"]
        assert found["error_coded"]["code"] == code
        assert (found["ip"], found["changed_at"]) == (before["ip"], before["changed_at"])
        assert [each for each in five.events if each["topic"] == "exit"] == []


def settled(lab: Lab) -> None:
    """Have the node lead to its own server again, and wait for its answer."""
    lab.internet.put_page("ip={ip}\nloc=JP\n")
    lead_to(lab, "socks5")
    eventually(lambda: listed(lab)["socks5"]["error"] == "", SOON_S)


def test_a_dead_node_is_asked_by_no_other_path(lab: Lab) -> None:
    before = listed(lab)["socks5"]
    with ExitStack() as mend:
        mend.callback(settled, lab)
        mend.callback(lab.nodes["http"].program.start)
        lab.nodes["http"].program.stop(10)
        mark = lab.internet.mark()
        lead_to(lab, "http")
        eventually(lambda: listed(lab)["socks5"]["error"] != "", SOON_S)
        assert listed(lab)["socks5"]["ip"] == before["ip"]
        assert lab.internet.seen(since=mark, text="/page") == []
    # The positive control: the answer of a node that lives is seen.
    assert lab.internet.seen(since=mark, text="/page") != []
