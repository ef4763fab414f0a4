"""The lab's proxy nodes: the programs that serve a kind without Debian 12's program for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from egressd_lab import nodes
from egressd_lab.process import PACKAGES

FOLDER = Path("/run/egressd-lab/t/node-n")
ADDRESS = "192.0.2.10"
LACKING = {
    "socks5-udp": ("danted", ("v2ray",)),
    "ss-obfs-http": ("obfs-server", (sys.executable, "ss-server")),
    "ss-obfs-tls": ("obfs-server", (sys.executable, "ss-server")),
    "ss-websocket": ("ss-v2ray-plugin", ("v2ray",)),
}
"""The program that Debian 13 lacks for a kind, and the programs that serve it there."""


def made(kind: str, monkeypatch: pytest.MonkeyPatch, *, lacking: str = "") -> nodes.Recipe:
    """Return the recipe on a machine that has every program but one."""
    monkeypatch.setattr(nodes, "is_installed", lambda program: program != lacking)
    return nodes.recipe(kind, ADDRESS, FOLDER)


@pytest.mark.parametrize("kind", nodes.RECIPES)
def test_debians_programs_are_preferred(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = made(kind, monkeypatch)
    assert set(recipe.programs) <= PACKAGES.keys()
    if kind in LACKING:
        assert LACKING[kind][0] in recipe.argv


@pytest.mark.parametrize("kind", LACKING)
def test_either_program_has_the_same_client_configuration(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = made(kind, monkeypatch)
    lacking, programs = LACKING[kind]
    other = made(kind, monkeypatch, lacking=lacking)
    assert other.programs == programs
    assert (other.protocol, other.clash) == (usual.protocol, usual.clash)


@pytest.mark.parametrize("kind", ["socks5-udp", "ss-websocket"])
def test_v2ray_leaves_name_resolution_to_the_nodes_resolver(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = made(kind, monkeypatch, lacking=LACKING[kind][0])
    document: dict[str, Any] = json.loads(recipe.files["v2ray.json"])
    assert "dns" not in document
    assert "domainStrategy" not in json.dumps(document)
    listening = document["inbounds"][0]
    assert (listening["listen"], listening["port"]) == (ADDRESS, recipe.clash["port"])
