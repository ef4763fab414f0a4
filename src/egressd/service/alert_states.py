"""The states and events of the device by the names under which they are alerted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from egressd.model.alerts import ALERTS
from egressd.model.desired import DesiredState
from egressd.model.messages import Event, Status
from egressd.model.names import DIRECT
from egressd.model.wording import Sentence, say
from egressd.service.alert_book import Key

_SUBJECT_MAX: Final = 200

Texts = tuple[Sentence, Sentence]
"""The sentences for the beginning and the end of a state."""


def event_alert(event: Event) -> str | None:
    """Return the name of the alert that an event is; None if it is none."""
    for name, source in ALERTS.items():
        if source.topic and (source.topic, source.code) == (event.topic, event.code):
            return name
    return None


def states_of(
    names: Collection[str], seen: Status, state: DesiredState, own: Iterable[Sentence]
) -> dict[Key, Texts]:
    """Return the states of `names` that last now. `own` are the problems of this box itself."""
    found: dict[Key, Texts] = {}
    problems = tuple(own)
    for name in names:
        source = ALERTS.get(name)
        if source is None:
            continue
        match source.state:
            case "nodes":
                lasting = _nodes(seen, state)
            case "lines":
                lasting = _lines(seen, state)
            case "wans":
                lasting = _wans(seen)
            case None:
                lasting = _problems(source.problems, problems)
        found |= {(name, subject[:_SUBJECT_MAX]): texts for subject, texts in lasting}
    return found


def is_gone(name: str, subject: str, state: DesiredState) -> bool:
    """Return True if a node or a line was deleted, or a line disabled: that its state has ended
    does not mean that it works again.
    """
    source = ALERTS.get(name)
    match None if source is None else source.state:
        case "nodes":
            return int(subject.removeprefix("node:")) not in state.nodes
        case "lines":
            line = state.lines.get(state.line_by_name.get(subject, 0))
            return line is None or not line.is_enabled
        case _:
            return False


def _nodes(seen: Status, state: DesiredState) -> Iterator[tuple[str, Texts]]:
    for key, reason in seen.failing.items():
        node = state.nodes.get(int(key.removeprefix("node:")))
        if node is not None:
            begin = say("some-fail", names=node.name, n=1, reason=reason)
            yield key, (begin, say("some-answer", names=node.name, n=1))


def _lines(seen: Status, state: DesiredState) -> Iterator[tuple[str, Texts]]:
    for name, status in seen.lines.items():
        line = state.lines.get(state.line_by_name.get(name, 0))
        if line is not None and line.is_enabled and not status.is_online:
            begin = say("line-offline", name=name, reason=status.reason)
            yield name, (begin, say("alert-line-online", name=name))


def _wans(seen: Status) -> Iterator[tuple[str, Texts]]:
    for name in dict.fromkeys((*seen.wans, DIRECT)):
        reason = seen.egress_problems.get(name) or seen.dead_ends.get(name)
        if reason:
            begin = say("egress-fails", name=name, reason=reason)
            yield name, (begin, say("egress-works", name=name))


def _problems(codes: Collection[str], own: Iterable[Sentence]) -> Iterator[tuple[str, Texts]]:
    for problem in own:
        if problem.code in codes:
            yield _subject(problem), (problem, say("over", problem=problem))


def _subject(problem: Sentence) -> str:
    """Return what a problem is about: its values change while it lasts."""
    values = problem.values
    return (
        f"{problem.code} {values.get('name') or values.get('folder') or values.get('network', '')}"
    )
