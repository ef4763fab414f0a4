"""A device whose clients are judged."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from egressd.model.desired import DesiredState, Edit
from egressd.model.messages import Status
from egressd.model.nouns import Line, Node, Rule, Settings
from egressd.model.wording import NONE
from egressd.service.judge import Judge, Notice
from tests.support.use_cases import RESOLVERS

OPEN = {"DIRECT": NONE, "wan1": NONE, "wan2": NONE}
RUNNING = Status(state="running", revision=1, egress_problems=OPEN, networks=("10.0.0.0/24",))


def node(number: int, name: str, group: str = "", **config: Any) -> Edit:
    text = json.dumps({"server": "198.51.100.7", "port": 1080} | config)
    made = Node(
        id=number, name=name, protocol="socks5", config_json=text, group=group, created_at=""
    )
    return Edit("nodes", number, made)


def rules(*targets: str) -> list[Edit]:
    return [
        Edit("rules", number, Rule(id=number, ip=f"10.0.0.{number}/32", target_node=target))
        for number, target in enumerate(targets, 1)
    ]


def state(*edits: Edit, **settings: Any) -> DesiredState:
    made = DesiredState().with_edits(edits, 1)
    return msgspec.structs.replace(made, settings=Settings(**settings))


LINE = Line(
    id=1, type="l2tp", name="l2tp_1", server="192.0.2.1", port=1701, username="u", password="p"
)
STATE = state(
    node(1, "one", "g"),
    node(2, "two", "g", **{"interface-name": "wan2"}),
    node(3, "near", server="192.168.1.9"),
    node(4, "six", server="2001:db8::9"),
    Edit("lines", 1, LINE),
    Edit("numbers", "Interface:wan2", 2),
    *rules("DIRECT", "Interface:wan2", "one", "Group_g", "REJECT", "Interface:l2tp_1", "near"),
)


def seen(**more: Any) -> Status:
    return msgspec.structs.replace(RUNNING, **more)


class Told:
    """A judge, and its notices."""

    def __init__(self, made: DesiredState = STATE) -> None:
        self.state = made
        self.now = "1"
        self.notices: list[Notice] = []
        self.judge = Judge(
            lambda: self.state, lambda: RESOLVERS, self.notices.append, lambda: self.now
        )

    def take(self, what: Status) -> list[tuple[str, str, str]]:
        """Return topic, subject and text of the notices."""
        self.notices.clear()
        self.judge.take(what)
        return [(n.event.topic, n.event.subject, n.event.text) for n in self.notices]
