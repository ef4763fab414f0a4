"""Keeps the judgement of clients up to date, with its times, and reports changes of it.

It is fed with netd's status, pushed or requested. Each change of state of a WAN, a node, a target
(groups included) and of netd's problems becomes an event, with names in it; lines have events of
their own (`egressd.netd.lines.news`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.messages import Event, Status
from egressd.model.names import DIRECT
from egressd.model.wording import NONE, Sentence, Value, say
from egressd.service import bounds
from egressd.service.judgement import (
    Blocked,
    EgressIndex,
    Verdict,
    blocked,
    judge_all,
    judge_unruled,
    listed,
    others_blocked,
    sentence,
    shape,
)
from egressd.service.ports import Clock

_TOLD_MAX: Final = 20
"""Events of one topic that are reported at a time: there may be thousands of nodes."""
_SUBJECTS_MAX: Final = 20
"""Names that an event's values hold."""
_NOTHING: Final[Mapping[str, Value]] = {}


class Notice(msgspec.Struct, frozen=True):
    """An event, with additional facts for the log."""

    event: Event
    is_bad: bool
    """True if the state has become worse."""
    key: str = ""
    """netd's key of the subject, as in netd's own log."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement at one moment."""

    verdicts: dict[str, Verdict]
    since: dict[str, str]
    """Target -> the time since which its clients have been blocked."""
    unruled: Verdict
    """The verdict on clients without a rule."""
    blocked: tuple[Blocked, ...]
    problems: tuple[Sentence, ...]
    """All problems of the device."""


class Judge:
    """Judges, keeps the last judgement and reports changes. `notify` gets each notice once."""

    def __init__(
        self,
        state: Callable[[], DesiredState],
        resolvers: Callable[[], Resolvers],
        notify: Callable[[Notice], None],
        clock: Clock,
    ) -> None:
        self._state = state
        self._resolvers = resolvers
        self._notify = notify
        self._clock = clock
        self._index = EgressIndex(DesiredState(), resolvers())
        self.forget()

    def forget(self) -> None:
        """Start over: every present problem is reported once more."""
        self._since: dict[str, str] = {}
        self._reasons: dict[str, Sentence] = {}
        """Target -> the last reported reason why its clients are blocked."""
        self._egress_problems: dict[str, Sentence] = {}
        self._failing: dict[str, Sentence] = {}
        self._problems: tuple[Sentence, ...] = ()
        self._reached: set[tuple[str, Sentence]] = set()
        """Pairs of a source that has reached a bound, and the sentence about it."""

    @property
    def index(self) -> EgressIndex:
        """The egresses of nodes, in the current configuration."""
        state = self._state()
        if self._index.state.nodes is not state.nodes:
            self._index = EgressIndex(state, self._resolvers())
        self._index.state, self._index.resolvers = state, self._resolvers()
        return self._index

    def take(self, seen: Status) -> Picture:
        """Judge everything by netd's status, and report differences from before."""
        state = self._state()
        verdicts = judge_all(state, self.index, seen)
        unruled = judge_unruled(state, seen)
        if seen.state != "restoring":  # otherwise hardly anything is known
            self._note_exits(seen)
            self._note_nodes(state, seen)
            self._note_targets(state, verdicts)
        found = blocked(state, verdicts, self._since)
        reached = bounds.told(state, seen)
        self._note_problems(seen.problems)
        self._note_reached(reached)
        return Picture(
            verdicts=verdicts,
            since=dict(self._since),
            unruled=unruled,
            blocked=found,
            problems=(
                *(each.text for each in found),
                *others_blocked(state, verdicts, unruled),
                *_wan_problems(seen),
                *seen.problems,
                *(bounds.sentence(text, sources) for text, sources in reached.items()),
            ),
        )

    def since(self, target: str) -> str:
        """Return the time since which the target's clients have been blocked; empty if they are
        not.
        """
        return self._since.get(target, "")

    def _note_targets(self, state: DesiredState, verdicts: Mapping[str, Verdict]) -> None:
        now = self._clock()
        reasons = {
            target: verdict.reason
            for target, verdict in verdicts.items()
            if verdict.reason and state.target_uses.get(target, 0)
        }
        worse: dict[tuple[str, Sentence], list[str]] = {}
        for target, reason in reasons.items():
            if shape(self._reasons.get(target, "")) != shape(reason):
                worse.setdefault((verdicts[target].cause, reason), []).append(target)
        better = [t for t in self._reasons if t not in reasons and t in verdicts]
        self._since = {target: self._since.get(target, now) for target in reasons}
        self._reasons = reasons
        notices = []
        for (cause, reason), targets in worse.items():
            clients = sum(state.target_uses[target] for target in targets)
            text = sentence(clients, sorted(targets), cause, reason)
            code = "nameless" if cause == "names" else "blocked"
            about: dict[str, Value] = {"cause": cause, "reason": reason, "clients": clients}
            notices.append(_notice("target", targets, text, code, about, is_bad=True))
        if better:
            clients = sum(state.target_uses.get(target, 0) for target in better)
            text = say("clients-out-again", n=clients, targets=listed(sorted(better)))
            notices.append(
                _notice("target", better, text, "unblocked", {"clients": clients}, is_bad=False)
            )
        self._tell_some("target", notices)

    def _note_exits(self, seen: Status) -> None:
        reasons = _exit_reasons(seen)
        known = {*seen.wans, DIRECT, *self._egress_problems}
        notices = []
        for name in sorted(known & {*seen.egress_problems}):
            before, reason = self._egress_problems.get(name, NONE), reasons.get(name, NONE)
            if reason and reason != before:
                text = say("egress-fails", name=name, reason=reason)
                notices.append(
                    _notice("wan", [name], text, "fails", {"reason": reason}, is_bad=True)
                )
            elif before and not reason:
                text = say("egress-works", name=name)
                notices.append(_notice("wan", [name], text, "works", is_bad=False))
        self._egress_problems = {
            name: reasons.get(name, NONE) for name in known & {*seen.egress_problems}
        }
        self._tell_some("wan", notices)

    def _note_nodes(self, state: DesiredState, seen: Status) -> None:
        worse: dict[Sentence, list[str]] = {}
        for key, reason in seen.failing.items():
            if shape(self._failing.get(key, "")) != shape(reason):
                worse.setdefault(reason, []).append(key)
        better = [key for key in self._failing if key not in seen.failing]
        self._failing = dict(seen.failing)
        notices = []
        for reason, keys in worse.items():
            text = say("some-fail", names=_names(state, keys), n=len(keys), reason=reason)
            names = _nodes(state, keys)
            notices.append(
                _notice("node", names, text, "fails", {"reason": reason}, is_bad=True, keys=keys)
            )
        if gone := [key for key in better if _node_id(key) in state.nodes]:
            text = say("some-answer", names=_names(state, gone), n=len(gone))
            names = _nodes(state, gone)
            notices.append(_notice("node", names, text, "works", is_bad=False, keys=gone))
        self._tell_some("node", notices)

    def _note_problems(self, problems: tuple[Sentence, ...]) -> None:
        before, now = set(map(shape, self._problems)), set(map(shape, problems))
        fresh = [text for text in problems if shape(text) not in before]
        over = [text for text in self._problems if shape(text) not in now]
        self._problems = problems
        self._tell_some(
            "problem",
            [
                *(problem_notice("", text, is_over=False) for text in fresh),
                *(problem_notice("", text, is_over=True) for text in over),
            ],
        )

    def _note_reached(self, reached: Mapping[Sentence, list[str]]) -> None:
        now = {(source, text) for text, those in reached.items() for source in those or [""]}
        notices = []
        for source, text in sorted(now - self._reached):
            said = bounds.sentence(text, [source] if source else [])
            notices.append(problem_notice(source, said, is_over=False))
        for source, text in sorted(self._reached - now):
            said = bounds.sentence(text, [source] if source else [])
            notices.append(problem_notice(source, said, is_over=True))
        self._reached = now
        self._tell_some("problem", notices)

    def _tell_some(self, topic: str, notices: list[Notice]) -> None:
        for notice in notices[:_TOLD_MAX]:
            self._notify(notice)
        if len(notices) > _TOLD_MAX:
            more = len(notices) - _TOLD_MAX
            text = say("more-changed", n=more)
            self._notify(_notice(topic, (), text, "more", {"number": more}, is_bad=True))


def _wan_problems(seen: Status) -> Iterable[Sentence]:
    reasons = _exit_reasons(seen)
    for name in seen.wans:
        if reason := reasons.get(name):
            yield say("wan-fails", name=name, reason=reason)


def _exit_reasons(seen: Status) -> dict[str, Sentence]:
    """Return interface or ``DIRECT`` -> why it does not work."""
    return {
        name: why or seen.dead_ends.get(name, NONE) for name, why in seen.egress_problems.items()
    }


def _notice(
    topic: str,
    subjects: Iterable[str],
    text: Sentence,
    code: str,
    about: Mapping[str, Value] = _NOTHING,
    *,
    is_bad: bool,
    keys: Iterable[str] = (),
) -> Notice:
    """Return a notice about `subjects`; the event's values are they and `about`."""
    subjects, keys = list(subjects), list(keys)
    subject = subjects[0] if len(subjects) == 1 else ""
    key = keys[0] if len(keys) == 1 else ""
    values = {"subjects": tuple(sorted(subjects)[:_SUBJECTS_MAX]), **about}
    event = Event(topic=topic, subject=subject, text=str(text), code=code, values=values)
    return Notice(event, is_bad, key)


def problem_notice(source: str, text: Sentence, *, is_over: bool) -> Notice:
    """Return a notice of one of the device's problems, of `source` if it is of one."""
    code = "over" if is_over else "problem"
    said = say("over", problem=text) if is_over else text
    sources = [source] if source else []
    return _notice("problem", sources, said, code, {"problem": text}, is_bad=not is_over)


def _node_id(key: str) -> int:
    return int(key.removeprefix("node:"))


def _nodes(state: DesiredState, keys: Iterable[str]) -> list[str]:
    nodes = (state.nodes.get(_node_id(key)) for key in keys)
    return [node.name if node else key for node, key in zip(nodes, keys, strict=True)]


def _names(state: DesiredState, keys: list[str]) -> str:
    return listed(sorted(_nodes(state, keys)))
