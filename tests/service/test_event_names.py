"""netd's events with the operator's names."""

from __future__ import annotations

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.messages import Event
from egressd.model.nouns import Node
from egressd.model.wording import Value
from egressd.service.event_names import named


def node(node_id: int, name: str) -> Edit:
    made = Node(
        id=node_id, name=name, protocol="socks5", config_json="{}", group="asia", created_at=""
    )
    return Edit("nodes", node_id, made)


STATE = DesiredState().with_edits(
    [
        node(7, "tokyo"),
        node(12, "osaka"),
        Edit("numbers", "Group_asia", 3),
        Edit("numbers", "Interface:wan1", 3),
    ],
    1,
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("new flows go by node:12, not by node:7", "new flows go by osaka, not by tokyo"),
        ("group:3 has node:71", "Group_asia has node:71"),
        ("group:30 and node:7x", "group:30 and node:7x"),
        ("the line l2tp_1 is online", "the line l2tp_1 is online"),
    ],
)
def test_keys_in_events_become_names(text: str, told: str) -> None:
    values: dict[str, Value] = {"node": text, "others": (text, "x"), "number": 1}
    event = Event(topic="group", subject="group:3", text=text, code="elected", values=values)
    assert named(event, STATE) == Event(
        topic="group",
        subject="Group_asia",
        text=told,
        code="elected",
        values={"node": told, "others": (told, "x"), "number": 1},
    )
