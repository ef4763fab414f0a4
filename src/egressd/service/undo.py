"""The log of changes, and undoing one of them, as a change like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState
from egressd.model.errors import Failed, Missing, Obstructed
from egressd.model.faults import Fault, fault
from egressd.model.undo import (
    CHANGES_KEPT,
    INVERSES_MAX,
    SECRETS,
    SHOWN_MAX,
    Obstacle,
    PastChange,
    Reversal,
    name_of,
    reversals,
    summary,
    traced,
    undoing,
    undone_by,
)
from egressd.model.wording import Coded, Coding, Sentence, say, together
from egressd.service.change_warnings import consequences
from egressd.service.journal import Journal
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import ChangeLog
from egressd.service.restored import RestoreChecks, name_problems

Kind = Literal[
    "node",
    "rule",
    "line",
    "proxy_service",
    "alert_channel",
    "group",
    "subscription",
    "whitelist",
    "settings",
    "other",
]
Shown = str | int | bool | list[str] | None

_ALL: Final = 2 * CHANGES_KEPT + 64
"""More rows than the log has: changes, as many undos, and those that are not deleted yet."""
OBJECTS_SHOWN: Final = 100
"""Objects of one change that are shown."""
_HIDDEN: Final = "***"
KINDS: Final[Mapping[str, Kind]] = {
    "nodes": "node",
    "rules": "rule",
    "lines": "line",
    "services": "proxy_service",
    "alert_channels": "alert_channel",
    "groups": "group",
    "subscriptions": "subscription",
    "whitelist": "whitelist",
    "settings": "settings",
}
"""Table -> its word in answers."""
_MB: Final = 1024 * 1024


class ChangedField(msgspec.Struct, frozen=True, kw_only=True):
    """A field that a change has set."""

    name: str
    before: Annotated[
        Shown, Meta(description="A secret is `***`, a long text cut. Null without an object.")
    ] = None
    after: Annotated[Shown, Meta(description="The same for what it is afterwards.")] = None


class ChangedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a change has made, changed or deleted."""

    kind: Kind
    id: Annotated[int | None, Meta(description="Null for the whitelist and the settings.")]
    name: Annotated[str, Meta(description="The address of a rule.")]
    action: Literal["created", "changed", "deleted"]
    fields: list[ChangedField]


class ListedChange(Coding, frozen=True, kw_only=True):
    """An accepted change."""

    at: Annotated[str, Meta(description="The time, such as `2026-11-20T22:58:40Z`.")]
    who: Annotated[
        str, Meta(description="`token`, `session` and its id, or `egressd` for the device itself.")
    ]
    source: str
    what: Annotated[str, Meta(description="Method and path of the request.")]
    text: Annotated[Sentence, Meta(description="The text of the answer.")]
    text_coded: Annotated[Coded | None, Meta(description="The same for programs.")] = None
    revision: Annotated[
        int | None, Meta(description="Null for a change of something else than the configuration.")
    ] = None
    undoes: Annotated[int | None, Meta(description="The change that this one undoes.")] = None
    undone_by: Annotated[int | None, Meta(description="The change that undoes this one.")] = None
    can_undo: Annotated[
        bool, Meta(description="True if its inverse is kept, and it is not undone.")
    ] = False


class ChangeDetails(ListedChange, frozen=True, kw_only=True):
    """A change of the configuration, field by field."""

    total: Annotated[int, Meta(description="All objects.")]
    objects: Annotated[
        list[ChangedObject],
        Meta(description=f"The first {OBJECTS_SHOWN}; none if its inverse is not kept any more."),
    ]


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of undoing a change."""

    revision: int | None
    """The change that it is itself; None for a dry run."""
    text: Sentence
    """The effect in short."""
    objects: list[ChangedObject]
    total: int
    notes: tuple[Sentence, ...]


class _InTheWay(Exception):
    """A change cannot be undone."""

    def __init__(self, obstacles: Sequence[Obstacle]) -> None:
        super().__init__()
        self.obstacles = obstacles


class Undo:
    """The changes that were made, and undoing them."""

    def __init__(
        self,
        ledger: Ledger,
        log: ChangeLog,
        journal: Journal,
        *,
        quota: Callable[[], int],
        checks: RestoreChecks,
    ) -> None:
        """`quota` returns how many proxy services the license allows at the moment."""
        self._ledger = ledger
        self._log = log
        self._journal = journal
        self._quota = quota
        self._checks = checks

    async def latest(self, limit: int) -> list[ListedChange]:
        """Return the latest changes, the last one first: those of the configuration, of all boxes
        of a site, and those that this box has recorded of other things. Raises Failed.
        """
        recorded = await self._journal.latest(limit)
        try:
            past: Sequence[PastChange] = await self._log.past_changes(limit)
        except Failed:  # the site's database is away: this box's own record is here
            past = []
        texts = {_identity(each): each.text for each in recorded}
        undone = undone_by(past)
        logged = [_listed(each, undone, texts.get(_identity(each))) for each in past]
        return _merged(logged, recorded)[:limit]

    async def show(self, revision: int) -> ChangeDetails:
        """Return a change, field by field. Raises Missing, Failed."""
        change, undone = await self._find(revision)
        inverse = await self._log.inverse(revision) or ()
        return ChangeDetails(
            **msgspec.structs.asdict(_listed(change, undone)),
            total=len(inverse),
            objects=objects(inverse),
        )

    async def undo(self, revision: int, *, dry_run: bool = False) -> Undone:
        """Undo a change, as a change of its own; with `dry_run` return what that would do. Raises
        Missing, Obstructed, and Failed as every change does.
        """
        _, undone = await self._find(revision)
        if revision in undone:
            raise Obstructed(fault("", "undo-done", revision=revision, by=undone[revision]))
        inverse = await self._log.inverse(revision)
        if inverse is None:
            most = INVERSES_MAX // _MB
            raise Obstructed(fault("", "undo-without-inverse", revision=revision, n=most))

        def build(state: DesiredState) -> Proposal[Undone]:
            return self._proposal(state, inverse, revision)

        try:
            if dry_run:
                return await self._ledger.preview(build)
            outcome = await self._ledger.change(build, is_large=True)
        except _InTheWay as found:
            raise Obstructed(*await self._told(revision, found.obstacles)) from None
        return msgspec.structs.replace(
            outcome.value, revision=outcome.revision, notes=outcome.notes
        )

    def _proposal(
        self, state: DesiredState, inverse: Iterable[Reversal], revision: int
    ) -> Proposal[Undone]:
        edits, obstacles = undoing(state, inverse)
        if obstacles:
            raise _InTheWay(obstacles)
        if not edits:
            raise Obstructed(fault("", "undo-nothing", revision=revision))
        wanted = state.with_edits(edits, state.revision)
        quota = max(self._quota(), len(state.services))
        if len(wanted.services) > quota:
            raise Obstructed(fault("", "undo-over-quota", number=len(wanted.services), quota=quota))
        # It was accepted once, perhaps by an older egressd.
        problems = [
            *self._checks.problems(wanted, state, older=True),
            *name_problems(wanted, state),
        ]
        if problems:
            raise Obstructed(*(fault("", "undo-unfit", problem=each) for each in problems))
        done = reversals(state, edits)
        value = Undone(
            revision=None,
            text=together(summary(state, edits)),
            objects=objects(done),
            total=len(done),
            notes=consequences(state, wanted, edits),
        )
        return Proposal(edits, value, undoes=revision)

    async def _find(self, revision: int) -> tuple[PastChange, dict[int, int]]:
        past = await self._log.changes_about(revision)
        if not past:
            raise Missing(fault("revision", "no-such-change", revision=revision))
        return past[0], undone_by(past)

    async def _told(self, revision: int, obstacles: Sequence[Obstacle]) -> list[Fault]:
        """Return what stands in the way, with the changes that are why."""
        wanted = {(each.table, each.key) for each in obstacles if each.holder is None}
        causes: dict[tuple[str, int | str], int] = {}
        for later in await self._log.past_changes(_ALL):
            if later.revision <= revision or causes.keys() >= wanted:
                break
            for each in await self._log.inverse(later.revision) or ():
                if (each.table, each.key) in wanted:
                    causes.setdefault((each.table, each.key), later.revision)
        return [_fault(each, causes.get((each.table, each.key))) for each in obstacles]


def _fault(obstacle: Obstacle, cause: int | None) -> Fault:
    if obstacle.holder is not None:
        return fault("", "undo-taken", object=obstacle.label, holder=obstacle.holder)
    by = say("a-later-change") if cause is None else say("change-n", n=cause)
    if obstacle.fields:
        return fault("", "undo-changed", object=obstacle.label, by=by, fields=obstacle.fields)
    return fault(
        "", "undo-gone" if obstacle.is_gone else "undo-touched", object=obstacle.label, by=by
    )


def _listed(
    change: PastChange, undone: Mapping[int, int], text: Sentence | None = None
) -> ListedChange:
    by = undone.get(change.revision)
    return ListedChange(
        at=change.at,
        who=change.who,
        source=change.source,
        what=change.what,
        text=text or change.text,
        revision=change.revision,
        undoes=change.undoes,
        undone_by=by,
        can_undo=change.has_inverse and by is None,
    )


def _identity(change: PastChange | ListedChange | ChangeRecord) -> tuple[int | None, str, str, str]:
    """Return what tells a change from all others. A revision alone does not: a box that has joined
    a site has counted its own ones before.
    """
    return change.revision, change.who, change.source, change.what


def _of_record(record: ChangeRecord, oldest: int) -> ListedChange:
    """Return a change that the log does not have, whose oldest revision is `oldest`."""
    is_older = record.revision is not None and record.revision < oldest
    return ListedChange(
        at=record.at,
        who=record.who,
        source=record.source,
        what=record.what,
        text=record.text,
        revision=record.revision if is_older or oldest == 0 else None,
    )


def _merged(logged: Sequence[ListedChange], recorded: Sequence[ChangeRecord]) -> list[ListedChange]:
    """Return the changes of the log, and what is recorded beside them, the latest first. Each stays
    in its own order, whatever the clock did, and within a second that of the record counts.
    """
    known = {_identity(each) for each in logged}
    oldest = min((each.revision or 0 for each in logged), default=0)
    others: list[tuple[ChangeRecord, int]] = []
    """Each with the last revision that is recorded before it."""
    before = 0
    for record in reversed(recorded):
        if record.revision is not None and _identity(record) in known:
            before = record.revision
        else:
            others.append((record, before))
    merged: list[ListedChange] = []
    waiting = list(logged)[::-1]
    for record, before in reversed(others):
        while waiting and (
            waiting[-1].at > record.at
            or (waiting[-1].at == record.at and (waiting[-1].revision or 0) > before)
        ):
            merged.append(waiting.pop())
        merged.append(_of_record(record, oldest))
    return [*merged, *waiting[::-1]]


def objects(inverse: Iterable[Reversal]) -> list[ChangedObject]:
    """Return the first objects of a change, with their fields."""
    return [_object(each) for each, _ in zip(inverse, range(OBJECTS_SHOWN), strict=False)]


def _object(each: Reversal) -> ChangedObject:
    after: Mapping[str, Any] = each.after or {}
    name = name_of(each.before) or str(after.get("name") or after.get("ip", ""))
    is_single = each.table in ("whitelist", "settings")
    return ChangedObject(
        kind=KINDS.get(each.table, "other"),
        id=None if is_single else int(each.key),
        name="" if is_single else name.removesuffix("/32"),
        action="created" if each.before is None else "deleted" if each.after is None else "changed",
        fields=list(_fields(each)),
    )


def _fields(each: Reversal) -> Iterator[ChangedField]:
    secret = SECRETS.get(each.table)
    before, after = _flat(traced(each.before) or {}), _flat(each.after or {})
    for name in {**before, **after}:
        if name != "id" and before.get(name) != after.get(name):
            is_secret = secret is None or name in secret
            yield ChangedField(
                name=name,
                before=_shown(before.get(name), is_secret=is_secret),
                after=_shown(after.get(name), is_secret=is_secret),
            )


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, those of a field with fields as ``alerts.on``."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    return flat


def _shown(value: Any, *, is_secret: bool) -> Shown:
    """Return a value of a trace as it is shown."""
    if value is None:
        return None
    if is_secret:
        return _HIDDEN if value else ""
    if isinstance(value, list) and value and isinstance(value[0], int):
        if len(value) == 3 and isinstance(value[1], str):
            return f"{value[2]}…"  # of a long text
        return [str(each) for each in value]
    if isinstance(value, str) and len(value) > SHOWN_MAX:
        return f"{value[:SHOWN_MAX]}…"
    shown: Shown = value
    return shown
