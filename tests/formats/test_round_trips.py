"""Nodes written in other programs' configurations are read back unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.config_json import read_config
from egressd.formats.entries import PROTOCOLS
from egressd.formats.nodes import parse_nodes
from egressd.formats.rows import Accepted
from egressd.model.drafts import NodeDraft
from tests.formats.config_strategies import CONFIGS
from tests.support.nodes.corpora import options_of

pytestmark = pytest.mark.slow

WRITERS = {
    "JSON": lambda entries: json.dumps({"proxies": entries}),
    "JSON, in rows": lambda entries: "\n".join(json.dumps(e, ensure_ascii=False) for e in entries),
    "YAML": lambda entries: yaml.safe_dump({"mode": "rule", "proxies": entries, "rules": []}),
    "YAML, in brackets": lambda entries: yaml.safe_dump(
        {"proxies": entries}, default_flow_style=True, allow_unicode=True
    ),
    "YAML, an item a line": lambda entries: (
        "proxies:\n" + "".join(f"  - {json.dumps(e)}\n" for e in entries)
    ),
}


def imported(text: str) -> list[NodeDraft]:
    """Return the nodes of a text; every row must be valid."""
    rows = list(parse_nodes("others", text))
    assert all(isinstance(row, Accepted) for row in rows), rows
    return [row.draft for row in rows if isinstance(row, Accepted)]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_clash_entries_are_read_back(protocol: str, writer: str, data: st.DataObject) -> None:
    configs = data.draw(st.lists(CONFIGS[protocol], min_size=1, max_size=2))
    entries = [{"name": f"n{at}", "type": protocol, **c} for at, c in enumerate(configs)]
    drafts = imported(WRITERS[writer](entries))
    assert [draft.name for draft in drafts] == [entry["name"] for entry in entries]
    for draft, config in zip(drafts, configs, strict=True):
        before = read_config(protocol, json.dumps(config)).fields
        assert read_config(draft.protocol, draft.config_json).fields == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_sing_box_outbounds_are_read_back(protocol: str, data: st.DataObject) -> None:
    config: dict[str, Any] = data.draw(CONFIGS[protocol])
    outbound = options_of(protocol, json.dumps(config))
    (draft,) = imported(json.dumps({"outbounds": [{"tag": "n", **outbound}]}))
    assert options_of(draft.protocol, draft.config_json) == outbound
