"""VPN lines: L2TP and PPTP."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from egressd.formats.config_json import dns_servers_problem
from egressd.formats.default_names import automatic_names
from egressd.formats.hosts import parse_host
from egressd.formats.lines import parse_lines
from egressd.model.bounds import COMMENT_MAX
from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import BadRow, ImportOutcome, LineDraft, Outcome
from egressd.model.errors import Missing
from egressd.model.faults import Fault, fault
from egressd.model.messages import LineStatus
from egressd.model.names import (
    AUTO,
    DNS_PROFILES,
    INTERFACE_NAME_MAX,
    LINE_TYPES,
    is_interface_name,
)
from egressd.model.nouns import Line
from egressd.model.wording import Sentence, say, together
from egressd.planner.lines.dial import PPTP_PORT, malformed
from egressd.service import checks
from egressd.service.dial_chains import carrier_problems
from egressd.service.imports import Tally, carry_out
from egressd.service.ledger import Ledger, Proposal
from egressd.service.looks import Looks
from egressd.service.ports import Clock, Netd
from egressd.service.renames import rename_interface
from egressd.service.versions import demand, revised

DEFAULT_PORTS: Final = {"l2tp": 1701, "pptp": PPTP_PORT}

_NAMES_SHOWN: Final = 3  # names in an error's text

_DISABLED: Final = LineStatus(is_online=False, state="disabled", reason=say("own-line-disabled"))
_UNKNOWN: Final = LineStatus(is_online=False, state="unknown", reason=say("line-untold"))


class Lines:
    """The VPN lines. `has_line_dns` returns True if the license lets their DNS profiles count."""

    def __init__(
        self, ledger: Ledger, netd: Netd, *, has_line_dns: Callable[[], bool], clock: Clock
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._has_line_dns = has_line_dns
        self._clock = clock

    def list(self) -> list[tuple[Line, LineStatus]]:
        """Return all lines, the oldest first, with their status; offline if netd cannot report
        it.
        """
        statuses = self._netd.lines()
        lines = sorted(self._ledger.state.lines.values(), key=lambda line: line.id)
        return [(line, status_of(line, statuses)) for line in lines]

    async def create(self, draft: LineDraft) -> Outcome[Line]:
        """Add a line, enabled. Raises Invalid."""

        def build(state: DesiredState) -> Proposal[Line]:
            checks.refuse(_problems(state, draft))
            line = _line(draft, state.next_id("lines"))
            return Proposal([Edit("lines", line.id, line)], line)

        return self._with_notes(await self._ledger.change(build))

    async def replace(self, kind: str, name: str, draft: LineDraft) -> Outcome[Line]:
        """Give a line new fields; a new name moves the references to it.

        Raises Invalid, Missing.
        """

        def build(state: DesiredState) -> Proposal[Line]:
            if _found(state, kind, name) is None:
                checks.refuse(_field_problems(draft))
            return self._replaced(state, _existing(state, kind, name), draft)

        return self._with_notes(await self._ledger.change(build))

    def get(self, line_id: int) -> tuple[Line, LineStatus]:
        """Return a line with its status. Raises Missing."""
        line = _with_id(self._ledger.state, line_id)
        return line, self.status(line)

    def status(self, line: Line) -> LineStatus:
        """Return the status of a line."""
        return status_of(line, self._netd.lines())

    async def revise(
        self, line_id: int, fields: Mapping[str, Any], tags: Collection[str]
    ) -> Outcome[Line]:
        """Give a line some new fields of `LineDraft`; the others stay, even with other changes at
        the same time. `tags` are those of `versions.demand`. Raises Invalid, Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[Line]:
            before = _demanded(state, line_id, tags)
            return self._replaced(state, before, revised(LineDraft, before, fields))

        return self._with_notes(await self._ledger.change(build))

    async def delete(self, line_id: int, tags: Collection[str] = ()) -> Outcome[Line]:
        """Remove a line, and return it. Raises Missing, Outdated."""

        def build(state: DesiredState) -> Proposal[Line]:
            return Proposal([Edit("lines", line_id, None)], _demanded(state, line_id, tags))

        return await self._ledger.change(build)

    def _replaced(self, state: DesiredState, before: Line, draft: LineDraft) -> Proposal[Line]:
        renames: builtins.list[Edit] = []
        if draft.name != before.name:
            renames += rename_interface(state, before.name, draft.name, self._clock())
        checks.refuse(_problems(state, draft, before, renames))
        line = _line(draft, before.id)
        return Proposal([Edit("lines", line.id, line), *renames], line)

    def _with_notes(self, outcome: Outcome[Line]) -> Outcome[Line]:
        notes = (*outcome.notes, *self._notes_on(outcome.value))
        return msgspec.structs.replace(outcome, notes=notes)

    def _notes_on(self, line: Line) -> Iterator[Sentence]:
        """Yield notes on settings of a stored line that have no effect."""
        if line.dns_profile != AUTO and not self._has_line_dns():
            yield say("dns-profile-unlicensed")
        if line.type == "pptp" and line.port != PPTP_PORT:
            yield say("pptp-port", port=PPTP_PORT)

    def _notes_on_all(self, lines: Iterable[Line]) -> Iterator[Sentence]:
        """Yield the notes on several lines: each note once, with the names of its first lines."""
        named: dict[Sentence, builtins.list[str]] = {}
        for line in lines:
            for note in self._notes_on(line):
                named.setdefault(note, []).append(line.name)
        for note, names in named.items():
            more = ", …" if len(names) > _NAMES_SHOWN else ""
            yield say("of-lines", names=", ".join(names[:_NAMES_SHOWN]) + more, note=note)

    async def set_enabled_many(
        self, items: Sequence[tuple[str, str]], is_enabled: bool
    ) -> Outcome[int]:
        """Switch the lines of these types and names, and return how many there are."""

        def build(state: DesiredState) -> Proposal[int]:
            found = _lines_of(state, items)
            switched = [msgspec.structs.replace(line, is_enabled=is_enabled) for line in found]
            return Proposal([Edit("lines", line.id, line) for line in switched], len(found))

        return await self._ledger.change(build)

    async def delete_many(self, items: Sequence[tuple[str, str]]) -> Outcome[int]:
        """Remove the lines of these types and names, and return how many there were."""

        def build(state: DesiredState) -> Proposal[int]:
            found = _lines_of(state, items)
            return Proposal([Edit("lines", line.id, None) for line in found], len(found))

        return await self._ledger.change(build)

    async def import_rows(
        self, kind: str, text: str, *, auto_name: bool, start_index: int, preview: bool = False
    ) -> ImportOutcome:
        """Add a line of type `kind` for each row of `text`, or update the one of that name.

        All are enabled then. An updated line keeps the fields that rows do not have: its carrier
        and its DNS. With `auto_name` they are numbered from `start_index`. Raises Invalid.

        With `preview` nothing is changed, and the answer is that of a real import.
        """
        checks.refuse(checks.one_of("type", kind, LINE_TYPES))

        def build(state: DesiredState) -> Proposal[ImportOutcome]:
            tally = Tally(preview)
            wanted: dict[str, Line] = {}
            fresh_id = state.next_id("lines")
            looks = Looks("line", state.line_by_name)
            names = automatic_names(kind, start_index, state.line_by_name)
            next_name = next(names)
            for row in parse_lines(kind, text, needs_name=not auto_name):
                if isinstance(row, BadRow):
                    tally.bad(row)
                    continue
                draft = row.draft
                if auto_name:
                    draft = msgspec.structs.replace(draft, name=next_name)
                before_id = state.line_by_name.get(draft.name)
                before = None if before_id is None else state.lines[before_id]
                if before is not None:
                    draft = msgspec.structs.replace(
                        draft,
                        interface=before.interface,
                        dns_profile=before.dns_profile,
                        dns_servers=before.dns_servers,
                    )
                problems = [*_field_problems(draft)]
                if before is None and not problems:
                    problems += looks.problems(draft.name)
                if problems:
                    tally.bad(BadRow(row.line, tuple(problems)))
                    continue
                if draft.name in wanted:
                    line_id = wanted[draft.name].id
                elif before is not None:
                    line_id = before.id
                else:
                    line_id, fresh_id = fresh_id, fresh_id + 1
                before = wanted.get(draft.name, before)
                wanted[draft.name] = _line(draft, line_id)
                tally.fates.stored(row.line, before, wanted[draft.name])
                looks.add(draft.name)
                tally.imported += 1
                if auto_name:
                    next_name = next(names)
            edits = [Edit("lines", line.id, line) for line in wanted.values()]
            return Proposal(edits, tally.outcome(*self._notes_on_all(wanted.values())))

        return await carry_out(self._ledger, build, preview=preview)


def _line(draft: LineDraft, line_id: int) -> Line:
    fields = msgspec.structs.asdict(draft)
    fields["server"] = parse_host(draft.server)
    fields["port"] = draft.port or DEFAULT_PORTS[draft.type]
    if draft.type == "pptp":
        fields["secret"] = ""
    return Line(id=line_id, **fields)


def _existing(state: DesiredState, kind: str, name: str) -> Line:
    line = _found(state, kind, name)
    if line is None:
        raise Missing(fault("name", "no-such-line", type=kind, name=name))
    return line


def _with_id(state: DesiredState, line_id: int) -> Line:
    line = state.lines.get(line_id)
    if line is None:
        raise Missing(fault("id", "no-such-id", thing="line", id=line_id))
    return line


def _demanded(state: DesiredState, line_id: int, tags: Collection[str]) -> Line:
    line = _with_id(state, line_id)
    demand(line, tags, fault("", "changed-since-read", thing="line", name=line.name))
    return line


def _found(state: DesiredState, kind: str, name: str) -> Line | None:
    line_id = state.line_by_name.get(name)
    line = None if line_id is None else state.lines[line_id]
    return line if line is not None and line.type == kind else None


def _lines_of(state: DesiredState, items: Iterable[tuple[str, str]]) -> list[Line]:
    found = (_found(state, kind, name) for kind, name in dict.fromkeys(items))
    return [line for line in found if line is not None]


def status_of(line: Line, statuses: Mapping[str, LineStatus]) -> LineStatus:
    """Return the status of a line, by the statuses that netd reported."""
    if not line.is_enabled:
        return _DISABLED
    if faults := malformed(line):
        return LineStatus(is_online=False, state="invalid", reason=together(faults))
    return statuses.get(line.name, _UNKNOWN)


def _problems(
    state: DesiredState,
    draft: LineDraft,
    before: Line | None = None,
    renames: Iterable[Edit] = (),
) -> Iterator[Fault]:
    """Yield every fault of a draft, and of the state that it leads to together with `renames`."""
    yield from _field_problems(draft)
    if before is not None and draft.type != before.type:
        yield fault("type", "line-type-fixed", type=before.type)
    own_id = None if before is None else before.id
    if before is None or draft.name != before.name:
        own = "" if before is None else before.name
        yield from Looks("line", state.line_by_name).problems(draft.name, own)
    if state.line_by_name.get(draft.name, own_id) != own_id:
        yield fault("name", "name-taken", thing="line", name=draft.name)
    fields = msgspec.structs.asdict(draft)
    probe = Line(id=state.next_id("lines") if own_id is None else own_id, **fields)
    after = state.with_edits([Edit("lines", probe.id, probe), *renames], state.revision)
    yield from carrier_problems(after, [draft.name])


def stored_problems(line: Line) -> Iterator[Fault]:
    """Yield every fault of a stored line, except those that concern others."""
    fields = msgspec.structs.asdict(line)
    del fields["id"]
    draft = LineDraft(**fields)
    problems = [*_field_problems(draft)]
    yield from problems
    if not problems and _line(draft, line.id) != line:
        yield fault("", "line-not-normal")


def _field_problems(draft: LineDraft) -> Iterator[Fault]:
    yield from checks.one_of("type", draft.type, LINE_TYPES)
    yield from _name_problems(draft)
    yield from _server_problems(draft.server)
    if draft.port:
        yield from checks.whole("port", draft.port, 1, 65535)
    if not draft.username:
        yield fault("username", "empty")
    credentials = ("username", "password", *(("secret",) if draft.type == "l2tp" else ()))
    for field in credentials:
        yield from checks.credential(field, getattr(draft, field))
        if getattr(draft, field).startswith("@/"):
            yield fault(field, "file-name")
    if draft.interface != AUTO:
        yield from checks.interface("interface", draft.interface)
    yield from checks.text("comment", draft.comment, COMMENT_MAX)
    yield from checks.one_of("dns_profile", draft.dns_profile, DNS_PROFILES)
    if problem := dns_servers_problem("dns_servers", draft.dns_servers):
        yield problem
    if draft.dns_profile == "custom" and not draft.dns_servers:
        yield fault("dns_servers", "dns-servers-needed", profile="dns_profile")


def _name_problems(draft: LineDraft) -> Iterator[Fault]:
    prefix = f"{draft.type}_"
    is_fine = is_interface_name(draft.name) and draft.name.startswith(prefix)
    if draft.type in LINE_TYPES and (not is_fine or draft.name == prefix):
        yield fault("name", "line-name", prefix=prefix, most=INTERFACE_NAME_MAX)


def _server_problems(server: str) -> Iterator[Fault]:
    try:
        is_fine = ":" not in parse_host(server)
    except ValueError:
        is_fine = False
    if not is_fine:
        yield fault("server", "ipv4-or-host")
