"""The addresses that nodes, lines and WANs in use leave by, asked again and again.

Each is asked through itself: a page that says where it is asked from is fetched on the path of the
target's clients. A target that leads nowhere has no answer; it is not asked by another path.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from egressd.formats.exit_page import EXIT_PAGE_MAX, UnreadableExit, read_exit
from egressd.model.delays import Delay
from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.errors import Failed
from egressd.model.exits import ExitKind, KnownExit
from egressd.model.messages import Event, Probe
from egressd.model.wording import NONE, Coded, Coding, Sentence, Value, as_sentence, say
from egressd.planner.exits import ExitTarget, exit_target, exit_targets, node_key
from egressd.service.judge import Notice
from egressd.service.ledger import Ledger
from egressd.service.ports import Clock, ExitRecord, Netd

EXIT_TIMEOUT_MS: Final = 8000
ASKED_AT_ONCE: Final = 16
"""Targets that are asked at the same time."""
RETRY_S: Final = 60.0
"""Seconds until a target is asked again that netd could not ask."""
FIRST_S: Final = 20.0
"""Seconds from the start until targets are asked: lines are dialled meanwhile."""
LOOK_S: Final = 5.0
"""Seconds between looks for targets that are due."""
_SPREAD: Final = 0.1
"""The part of an interval by which it may be shorter, so that many devices do not ask at once."""
_SUBJECTS_MAX: Final = 20
"""Names that an event's values hold."""
_ORDER: Final[tuple[ExitKind, ...]] = ("direct", "wan", "line", "node")


class ExitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The page that is asked, and the time between requests."""

    url: str
    interval_s: int
    """Seconds between two answers of a target; 0 if none is asked."""


class Exit(Coding, frozen=True, kw_only=True):
    """The address that far ends see of a target's clients."""

    name: Annotated[str, Meta(description="A node's name, or the target as rules name it.")]
    kind: ExitKind
    ip: Annotated[str, Meta(description="IPv4 or IPv6; empty before the first answer.")]
    country: Annotated[str, Meta(description="ISO 3166 code; empty if unknown.")]
    seen_at: Annotated[str, Meta(description="The time of the last answer.")]
    changed_at: Annotated[str, Meta(description="The time since which the address is the same.")]
    shared_with: Annotated[
        tuple[str, ...], Meta(description="Other targets in use with the same address.")
    ]
    error: Annotated[
        Sentence, Meta(description="Why the last request had no answer; then `ip` is older.")
    ]
    error_coded: Coded | None = None


class AskedExit(NamedTuple):
    """The answer about one target: an address, or the reason why there is none."""

    ip: str
    error: Sentence = NONE


class Exits:
    """Asks for the exits of targets in use, keeps the answers, and reports changes."""

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        resolvers: Callable[[], Resolvers],
        *,
        clock: Clock,
        policy: ExitPolicy,
        record: ExitRecord,
        notify: Callable[[Notice], None],
    ) -> None:
        self.policy = policy
        self._ledger = ledger
        self._netd = netd
        self._resolvers = resolvers
        self._clock = clock
        self._record = record
        self._notify = notify
        self._known: dict[str, KnownExit] = {}
        self._saved: Mapping[str, KnownExit] = {}
        self._errors: dict[str, Sentence] = {}
        self._due: dict[str, tuple[ExitTarget, float]] = {}
        """Key -> the target as it was asked, and the time at which it is asked again."""
        self._delays: dict[str, int] = {}
        """Key -> milliseconds of the last answer that no reader has taken yet."""
        self._made_of: tuple[object, ...] = ()
        self._targets: dict[str, ExitTarget] = {}

    async def open(self) -> None:
        """Read what an earlier run has recorded."""
        self._known = dict(await self._record.load())
        self._saved = dict(self._known)

    async def follow(self) -> None:
        """Ask each target again and again, if any is to be asked. Has no end of its own."""
        clock = asyncio.get_running_loop().time
        await self.open()
        try:
            await asyncio.sleep(FIRST_S)
            while True:
                await self.ask_due(clock)
                await asyncio.sleep(LOOK_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Record the times of the last answers."""
        if self._known != self._saved:
            await self._save()

    def now(self) -> list[Exit]:
        """Return the exit of each target in use: DIRECT, WANs, lines, then nodes, by name."""
        targets = self._in_use().values()
        sharing = self._sharing(targets)
        return [
            self._shown(target, sharing)
            for target in sorted(targets, key=lambda each: (_ORDER.index(each.kind), each.name))
        ]

    def address_of(self, name: str) -> str:
        """Return the last address of a target, as rules name it; empty if its last request had no
        answer.
        """
        target = exit_target(self._ledger.state, name, self._resolvers()) if name else None
        known = None if target is None else self._known.get(target.key)
        is_old = target is not None and target.key in self._errors
        return "" if known is None or is_old else known.ip

    async def ask(self, name: str) -> AskedExit:
        """Ask for the exit of a node, a line, a WAN or DIRECT now, and keep the answer."""
        target = exit_target(self._ledger.state, name, self._resolvers())
        if target is None:
            return AskedExit("", say("target-blocks"))
        probe = Probe(name=target.key, path=target.path, read_max=EXIT_PAGE_MAX + 1)
        try:
            found = await self._netd.delays([probe], self.policy.url, EXIT_TIMEOUT_MS)
        except Failed as error:
            return AskedExit("", as_sentence(str(error)))
        now = self._in_use()
        if self._take(target, found[target.key]) and target.key in now:
            self._report_shared(now, [target])
        if reason := self._errors.get(target.key):
            return AskedExit("", reason)
        return AskedExit(self._known[target.key].ip)

    def take_delays(self) -> dict[str, int]:
        """Return the milliseconds that the answers since the last call took, by targets' keys."""
        taken, self._delays = self._delays, {}
        return taken

    async def ask_due(self, clock: Callable[[], float]) -> None:
        """Ask every target whose time has come; `clock` returns the time in seconds. Nothing is
        asked while an operator has stopped or opened the device, since no target is in use then.
        """
        settings = self._ledger.state.settings
        if not self.policy.interval_s or settings.stopped or settings.opened:
            return
        targets = self._in_use()
        self._forget_others(targets)
        due = [target for target in targets.values() if self._is_due(target, clock())]
        if not due:
            return
        until_next = self.policy.interval_s * (1 - random.uniform(0, _SPREAD))  # noqa: S311
        for first in range(0, len(due), ASKED_AT_ONCE):
            some = due[first : first + ASKED_AT_ONCE]
            if not await self._ask(some, clock() + until_next, clock() + RETRY_S):
                break
        if _addresses(self._known) != _addresses(self._saved):
            await self._save()

    async def _ask(self, targets: list[ExitTarget], due: float, retry: float) -> bool:
        """Ask some targets, and set the time of their next request. False if netd cannot ask."""
        probes = [Probe(name=t.key, path=t.path, read_max=EXIT_PAGE_MAX + 1) for t in targets]
        try:
            found = await self._netd.delays(probes, self.policy.url, EXIT_TIMEOUT_MS)
        except Failed as error:
            self._errors |= {t.key: as_sentence(str(error)) for t in targets}
            self._due |= {t.key: (t, min(due, retry)) for t in targets}
            return False
        # What has another path since then has not been asked.
        now = self._in_use()
        asked = [target for target in targets if now.get(target.key) == target]
        self._due |= {target.key: (target, due) for target in asked}
        fresh = [target for target in asked if self._take(target, found[target.key])]
        self._report_shared(now, fresh)
        return True

    def _take(self, target: ExitTarget, found: Delay) -> bool:
        """Keep an answer. True if the target has another address than before, or its first."""
        before = self._known.get(target.key)
        error = found.error
        if found.delay >= 0:
            self._delays[target.key] = found.delay
            try:
                seen = read_exit(found.page)
            except UnreadableExit as unreadable:
                error = unreadable.reason
            else:
                self._errors.pop(target.key, None)
                now = self._clock()
                is_same = before is not None and before.ip == seen.ip
                self._known[target.key] = KnownExit(
                    ip=seen.ip,
                    country=seen.country,
                    seen_at=now,
                    changed_at=before.changed_at if before is not None and is_same else now,
                )
                if before is not None and not is_same:
                    self._notify(_changed(target.name, before, self._known[target.key]))
                return not is_same
        self._errors[target.key] = error
        return False

    def _report_shared(
        self, targets: Mapping[str, ExitTarget], fresh: Iterable[ExitTarget]
    ) -> None:
        """Report each address of `fresh` that other targets have, too."""
        sharing = self._sharing(targets.values())
        for ip in dict.fromkeys(self._known[target.key].ip for target in fresh):
            if _is_remarkable(sharing[ip]):
                self._notify(_shared(ip, [target.name for target in sharing[ip]]))

    def _sharing(self, targets: Iterable[ExitTarget]) -> dict[str, list[ExitTarget]]:
        """Return address -> the targets that have it, by name. An address of a target that does
        not work now may be another's since.
        """
        sharing: dict[str, list[ExitTarget]] = {}
        for target in sorted(targets, key=lambda each: each.name):
            known = self._known.get(target.key)
            if known and target.key not in self._errors:
                sharing.setdefault(known.ip, []).append(target)
        return sharing

    def _shown(self, target: ExitTarget, sharing: Mapping[str, list[ExitTarget]]) -> Exit:
        known = self._known.get(target.key) or KnownExit(ip="", seen_at="", changed_at="")
        others = (each.name for each in sharing.get(known.ip, ()) if each is not target)
        return Exit(
            name=target.name,
            kind=target.kind,
            ip=known.ip,
            country=known.country,
            seen_at=known.seen_at,
            changed_at=known.changed_at,
            shared_with=tuple(others),
            error=self._errors.get(target.key, NONE),
        )

    def _is_due(self, target: ExitTarget, now: float) -> bool:
        asked, due = self._due.get(target.key, (None, now))
        return due <= now or (asked is not target and asked != target)

    def _in_use(self) -> dict[str, ExitTarget]:
        """Return the targets in use, made anew if what they are made of has changed."""
        state, resolvers = self._ledger.state, self._resolvers()
        made_of = (*_parts(state), resolvers)
        if len(self._made_of) != len(made_of) or not all(map(_is_same, made_of, self._made_of)):
            self._targets = exit_targets(state, resolvers)
            self._made_of = made_of
        return self._targets

    def _forget_others(self, targets: Mapping[str, ExitTarget]) -> None:
        """Forget what is not in use, but not the addresses of nodes that are there."""
        kept = targets.keys() | {node_key(number) for number in self._ledger.state.nodes}
        self._known = {key: known for key, known in self._known.items() if key in kept}
        self._errors = {key: error for key, error in self._errors.items() if key in targets}
        self._due = {key: due for key, due in self._due.items() if key in targets}

    async def _save(self) -> None:
        known = dict(self._known)
        await self._record.save(known)
        self._saved = known


def _parts(state: DesiredState) -> tuple[object, ...]:
    """Return the parts of the state that exits depend on. A state shares the unchanged ones."""
    used = frozenset(state.target_uses)
    settings = state.settings
    return (
        state.nodes,
        state.lines,
        state.services,
        state.numbers,
        state.whitelist,
        used,
        settings,
    )


def _is_same(one: object, other: object) -> bool:
    return one is other or (not isinstance(one, Mapping) and one == other)


def _addresses(known: Mapping[str, KnownExit]) -> dict[str, tuple[str, str]]:
    """Return what is recorded at once; times of answers wait, to spare the disk."""
    return {key: (each.ip, each.country) for key, each in known.items()}


def _is_remarkable(targets: Iterable[ExitTarget]) -> bool:
    """True unless it is the device's own route and the interface that it leads by."""
    kinds = [target.kind for target in targets]
    return len(kinds) > 1 and (
        "node" in kinds or sum(kind in ("wan", "line") for kind in kinds) > 1
    )


def _changed(name: str, before: KnownExit, now: KnownExit) -> Notice:
    text = say("exit-changed", name=name, ip=now.ip, before=before.ip)
    about = {"before": before.ip, "ip": now.ip, "country": now.country}
    return _notice("changed", text, [name], about, is_bad=False)


def _shared(ip: str, names: list[str]) -> Notice:
    text = say("exit-shared", names=tuple(_first(names)), n=len(names), ip=ip)
    return _notice("shared", text, names, {"ip": ip, "number": len(names)}, is_bad=True)


def _notice(
    code: str, text: Sentence, names: list[str], about: Mapping[str, Value], *, is_bad: bool
) -> Notice:
    subject = names[0] if len(names) == 1 else ""
    values = {"subjects": tuple(_first(names)), **about}
    event = Event(topic="exit", subject=subject, text=str(text), code=code, values=values)
    return Notice(event, is_bad)


def _first(names: list[str]) -> Iterator[str]:
    yield from sorted(names)[:_SUBJECTS_MAX]
