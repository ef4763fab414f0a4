"""The operator's names for what netd knows by its number only, in netd's events for example."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from egressd.model.desired import DesiredState
from egressd.model.messages import Event
from egressd.model.names import GROUP_PREFIX
from egressd.model.wording import Sentence

_KEY: Final = re.compile(r"\b(?:node|group):\d+\b")
"""The pattern of keys that `planner.compile` makes."""


def named(event: Event, state: DesiredState) -> Event:
    """Return `event` with names in place of keys; a key remains if there is no such node or
    group.
    """

    def name(found: re.Match[str]) -> str:
        return instance_name(found[0], state)

    def words(value: object) -> object:
        match value:
            case Sentence():
                return value
            case str():
                return _KEY.sub(name, value)
            case tuple():
                return tuple(_KEY.sub(name, each) for each in value)
            case _:
                return value

    return msgspec.structs.replace(
        event,
        subject=_KEY.sub(name, event.subject),
        text=_KEY.sub(name, event.text),
        values={key: words(value) for key, value in event.values.items()},
    )


def instance_name(key: str, state: DesiredState) -> str:
    """Return the operator's name for what an engine instance serves; its key if there is none."""
    kind, _, digits = key.partition(":")
    if not digits.isdecimal():
        return key
    number = int(digits)
    if kind == "group":
        groups = (n for n, i in state.numbers.items() if i == number and n.startswith(GROUP_PREFIX))
        return next(groups, key)
    node = state.nodes.get(number) if kind == "node" else None
    service = state.services.get(number) if kind == "service" else None
    found = node or service
    return key if found is None else found.name
