"""``egressd lab``, and the demonstration, which must be able to fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from egressd.model.errors import Failed
from egressd_lab import netns, scenes
from egressd_lab.commands import lab as command
from egressd_lab.lab import Lab
from egressd_lab.observed import Flow
from egressd_lab.show import Show
from egressd_lab.spec import LabSpec
from egressd_lab.story import SPEC, Story


@pytest.fixture
def stage(namespaces: None) -> Iterator[Lab]:
    """Yield the demonstration's network, without egressd."""
    with Lab(SPEC) as lab:
        yield lab


@pytest.mark.lab
def test_the_demonstration_reports_a_leak(stage: Lab) -> None:
    story = Story(stage)
    assert story.control().ok
    with stage.internet.capture() as capture:
        with stage.plain_router():
            departures = story.departures()
        verdict = story.verdict(capture)
    assert not departures.ok
    right = {row.client for row in departures.rows if row.ok}
    assert right == {"client3"}  # DIRECT leaves by wan1, as all traffic does here
    assert not verdict.ok
    assert {flow.interface for flow in verdict.leaks} == {"isp1"}
    tokens = {flow.token for flow in verdict.leaks}
    assert len(tokens - {""}) == 5
    assert "" in tokens  # bare SYNs of the two clients that may not leave at all


@pytest.mark.lab
def test_the_demonstration_reports_no_leak_without_one(stage: Lab) -> None:
    story = Story(stage)
    with stage.internet.capture() as capture:
        departures = story.departures()
        assert story.verdict(capture).ok
    assert {row.client for row in departures.rows if row.ok} == {"client5", "client6"}


@pytest.mark.lab
def test_the_demonstration_succeeds(namespaces: None) -> None:
    shown = _lab_command("demo", "--json")
    story = msgspec.json.decode(shown.stdout, type=scenes.Story)
    assert [scene for scene in story.scenes if not scene.ok] == []
    assert story.ok
    kinds = [type(scene) for scene in story.scenes]
    assert kinds == list(get_args(scenes.AnyScene))
    assert story.seconds < 60


@pytest.mark.lab
def test_labs_are_listed_entered_and_removed(namespaces: None) -> None:
    runner = CliRunner()
    lab = Lab(LabSpec(nodes=()))
    try:
        lab.build()
        listed = json.loads(runner.invoke(command, ["status", "--json"]).stdout)[lab.name]
        assert listed["in_use"]
        assert {"router", "internet", "client1"} <= set(listed["namespaces"])
        lab.detach()
        listed = json.loads(runner.invoke(command, ["status", "--json"]).stdout)[lab.name]
        assert not listed["in_use"]
        inside = _lab_command("exec", "--lab", lab.name, "client1", "--", "ip", "-br", "address")
        assert "10.77.0.11/24" in inside.stdout
        refused = runner.invoke(command, ["exec", "--lab", lab.name, "nobody", "true"])
        assert isinstance(refused.exception, Failed)
        removed = runner.invoke(command, ["down", lab.name])
        assert removed.output == f"{lab.name}: removed\n"
        assert lab.name not in netns.labs()
        assert isinstance(runner.invoke(command, ["down", lab.name]).exception, Failed)
    finally:
        lab.remove()


def _lab_command(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, since ``exec`` does not return."""
    program = "from egressd_lab.commands import lab; lab()"
    return subprocess.run(
        [sys.executable, "-c", program, *argv], capture_output=True, text=True, check=False
    )


def _shown(scene: scenes.AnyScene) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        Show(console, Console(stderr=True)).play(iter([scene]))
    return captured.get()


def test_a_verdict_names_every_leak() -> None:
    leak = Flow(
        interface="isp1",
        outgoing=False,
        protocol="udp",
        source="198.51.100.2",
        destination="203.0.113.10",
        port=7,
        token="egt-000000000000",
        packets=3,
        octets=100,
        first_ns=0,
        last_ns=0,
    )
    text = _shown(scenes.Verdict(ok=False, packets=10, tokens=1, leaks=[leak]))
    assert "nothing" not in text
    for part in ("isp1", "198.51.100.2", "203.0.113.10"):
        assert part in text
    assert "What leaked: nothing." in _shown(scenes.Verdict(packets=10, tokens=1, leaks=[]))


def test_a_cut_connection_of_a_bystander_is_shown_as_a_fault() -> None:
    held = [
        scenes.Held(
            client=f"client{n}",
            target="DIRECT",
            trace="###xxx",
            received=30,
            error="ECONNRESET",
            longest_pause=0.0,
            is_subject=n == 1,
            ok=n == 1,
        )
        for n in (1, 2)
    ]
    change = scenes.Change(
        ok=False,
        client="client1",
        tick_seconds=0.1,
        event_tick=3,
        held=held,
        before="a",
        after="b",
        request_seconds=0.01,
        next_seen="192.0.2.1",
    )
    rows = [line for line in _shown(change).splitlines() if "DIRECT" in line]
    first, second = rows
    assert "✔" in first
    assert "✘ ECONNRESET" in second
