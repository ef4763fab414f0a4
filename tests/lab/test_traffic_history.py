"""The history of a real device: traffic that passed it, delays and states of nodes, and restarts.

Counters are read each minute, which these tests wait for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, configure, eventually, send

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]

WEB: Final = f"http://{SERVER}/"
SIZE: Final = 3_000_000
READ_S: Final = 150.0
"""Seconds for the next reading of the counters, which are read each minute."""
INTERVAL_S: Final = 6
"""Seconds between checks of the group's nodes."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    """Yield a device whose recorder has read its counters once."""
    with Lab(LabSpec(nodes=("socks5", "ss"))) as lab:
        lab.start_egressd({"exits": {"check_interval_s": 0}})
        configure(
            lab,
            delay_url=f"{WEB}generate_204",
            check_interval_s=INTERVAL_S,
            group_strategy="fallback",
        )
        for node in lab.nodes.values():
            lab.api.post("/nodes", node.draft("g"))
        send(lab, 1, "Group_g")
        send(lab, 2, "DIRECT")
        slowly(lambda: bool(states(lab, "groups/g")))
        yield lab


def slowly(check: Callable[[], bool]) -> None:
    """Wait until `check` holds, and look once a second."""

    def looked() -> bool:
        time.sleep(1)
        return check()

    eventually(looked, READ_S)


def history(lab: Lab, path: str, **query: object) -> Any:
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return lab.api.ask("GET", f"/ops/history{path}?{text}").body


def received(lab: Lab, by: str, key: str, step: str = "1h") -> int:
    """Return the bytes that a key has received in the last two hours."""
    data = history(lab, "/traffic", by=by, key=key, step=step, hours=2)["data"]
    return sum(slot["download_bytes"] for slot in data)


def received_by(lab: Lab, keys: Mapping[str, str]) -> dict[str, int]:
    return {by: received(lab, by, key) for by, key in keys.items()}


def has_more(lab: Lab, keys: Mapping[str, str], before: Mapping[str, int]) -> bool:
    return received_by(lab, keys)["client"] > before["client"]


def states(lab: Lab, path: str, **query: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = history(lab, f"/{path}", **query)["states"]
    return found


def fetch(lab: Lab, client: int) -> None:
    reply = lab.client(client).http(f"{WEB}bytes/{SIZE}", timeout=20)
    assert reply.ok


def read_again(lab: Lab) -> None:
    """Start the device anew, and wait for its first reading: traffic before is not counted."""
    lab.device.stop()
    lab.device.start()
    slowly(lambda: is_read(lab))


def is_read(lab: Lab) -> bool:
    """True if the recorder has read the counters since the start: minutes are in memory."""
    return bool(history(lab, "/traffic", key="none", step="1m", hours=1)["data"])


def test_real_traffic_counts_once_for_client_target_and_wan(lab: Lab) -> None:
    keys = {
        "client": lab.client(2).address,
        "target": "DIRECT",
        "interface": lab.wan(1).interface,
    }
    slowly(lambda: is_read(lab))
    for is_last in (False, True):
        before = received_by(lab, keys)
        fetch(lab, 2)
        slowly(partial(has_more, lab, keys, before))
        for by, total in received_by(lab, keys).items():
            # Of packets with their heads, but rounded to three digits.
            assert 0.98 * SIZE < total - before[by] < 1.2 * SIZE, by
        if is_last:
            break
        # Neither a stop nor a start counts it again, or loses it.
        before = received_by(lab, keys)
        read_again(lab)
        assert received_by(lab, keys) == before
    top = json.loads(lab.device.run("history", "top", "--json"))["data"]
    assert top[0]["key"] == keys["client"]


def test_a_failed_node_and_its_groups_new_choice_are_seen_at_once(lab: Lab) -> None:
    first, second = (node["name"] for node in lab.api.get("/nodes")["data"])

    def last(path: str) -> dict[str, str]:
        return states(lab, path)[-1]

    def delays() -> set[int | None]:
        return {slot["delay_ms"] for slot in history(lab, f"/nodes/{first}")["data"]}

    slowly(lambda: any(ms is not None for ms in delays()))
    assert last(f"nodes/{first}")["state"] == "up"
    assert (last("groups/g")["state"], last("groups/g")["node"]) == ("up", first)
    server = lab.nodes[first]
    server.program.kill()
    try:
        slowly(lambda: last(f"nodes/{first}")["state"] == "down")
        slowly(lambda: last("groups/g")["node"] == second)
        assert last("groups/g")["state"] == last(f"nodes/{second}")["state"] == "up"
    finally:
        lab.start_node(server)
    slowly(lambda: last(f"nodes/{first}")["state"] == "up")
    found = states(lab, f"nodes/{first}")
    assert [one["state"] for one in found][-3:] == ["up", "down", "up"]
    assert second in lab.device.run("history", "states", "group", "g")
    read_again(lab)
    outage = found[-2]
    assert outage in states(lab, f"nodes/{first}")
