"""Faults of engine versions: the options that a document omits, by version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from egressd.model.nouns import Node
from egressd.planner.nodes import lost_by_engine, outbound_of
from egressd.planner.options import options_of
from egressd.planner.outbounds import engine

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
EARLY_DATA: dict[str, Any] = {"network": "ws", "ws-opts": {"path": "/w?ed=2048"}}


def node(protocol: str, **fields: Any) -> Node:
    config = {"server": "192.0.2.1", "port": 443, "uuid": UUID, "password": "p", **fields}
    text = json.dumps(config)
    return Node(id=1, name="n", protocol=protocol, config_json=text, group="", created_at="")


def asks_for_early_data(given: Node) -> bool:
    return "max_early_data" in options_of(outbound_of(given))["transport"]


@pytest.mark.usefixtures("old_engine")
def test_an_old_engine_gets_no_early_data_option_with_vmess() -> None:
    early = node("vmess", **EARLY_DATA)
    transport = options_of(outbound_of(early))["transport"]
    assert transport == {"type": "ws", "path": "/w", "headers": {}}
    assert lost_by_engine(early) == engine.LOST_EARLY_DATA


@pytest.mark.usefixtures("old_engine")
@pytest.mark.parametrize("protocol", ["vless", "trojan"])
def test_an_old_engine_carries_the_early_data_of_other_protocols(protocol: str) -> None:
    early = node(protocol, **EARLY_DATA)
    assert asks_for_early_data(early)
    assert lost_by_engine(early) == ""


@pytest.mark.usefixtures("old_engine")
@pytest.mark.parametrize(
    "fields", [{}, {"network": "ws", "ws-opts": {"path": "/w"}}, {"network": "kcp"}]
)
def test_a_node_without_early_data_loses_nothing_with_an_old_engine(fields: dict[str, Any]) -> None:
    assert lost_by_engine(node("vmess", **fields)) == ""


@pytest.mark.parametrize("version", [(1, 14, 3), (1, 15, 0)])
def test_a_newer_engine_gets_the_early_data_option(
    old_engine: None, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]
) -> None:
    monkeypatch.setattr(engine, "version", lambda: version)
    early = node("vmess", **EARLY_DATA)
    assert asks_for_early_data(early)
    assert lost_by_engine(early) == ""


def test_the_version_is_that_of_the_installed_engine() -> None:
    import singbox

    assert engine.version() >= (1, 14, 2)
    assert ".".join(map(str, engine.version())) == singbox.__version__.removeprefix("v")
