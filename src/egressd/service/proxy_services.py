"""Proxy services: local listeners whose traffic leaves by one interface."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from egressd.formats.proxy_services import parse_proxy_services
from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import BadRow, ImportOutcome, Outcome, ProxyServiceDraft
from egressd.model.errors import Missing, OverQuota
from egressd.model.faults import Fault, fault
from egressd.model.nouns import ProxyService
from egressd.model.wording import say
from egressd.planner.service_ports import reason_reserved
from egressd.service import checks
from egressd.service.imports import Tally, carry_out, proposed
from egressd.service.ledger import Ledger, Proposal
from egressd.service.looks import Looks
from egressd.service.ports import Clock
from egressd.service.versions import demand, revised

NAME_MAX = 64


class ProxyServices:
    """The local listeners.

    `quota` returns how many the license allows at the moment; `own_ports` are the ports that
    egressd listens on, each with its purpose; `listening` returns the TCP ports with a listener at
    the moment.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        quota: Callable[[], int],
        own_ports: Mapping[int, str],
        listening: Callable[[], Collection[int]],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._quota = quota
        self._own_ports = own_ports
        self._listening = listening

    def list(self) -> builtins.list[ProxyService]:
        """Return all services, the oldest first."""
        return sorted(self._ledger.state.services.values(), key=lambda service: service.id)

    def quota(self) -> tuple[int, int]:
        """Return the number of services that are allowed, and of those that exist, enabled or
        not.
        """
        return self._quota(), len(self._ledger.state.services)

    async def create(self, draft: ProxyServiceDraft) -> Outcome[ProxyService]:
        """Add a service. Raises Invalid, OverQuota."""

        def build(state: DesiredState) -> Proposal[ProxyService]:
            checks.refuse(self._problems(draft, state, state.services.values()))
            quota = self._quota()
            if len(state.services) >= quota:
                raise OverQuota(fault("", "quota-reached", quota=quota))
            service = self._service(draft, state.next_id("services"))
            return Proposal([Edit("services", service.id, service)], service)

        return await self._ledger.change(build)

    async def replace(self, service_id: int, draft: ProxyServiceDraft) -> Outcome[ProxyService]:
        """Give a service new fields. Raises Invalid, Missing."""

        def build(state: DesiredState) -> Proposal[ProxyService]:
            if service_id not in state.services:
                checks.refuse(field_problems(draft, self._own_ports))
            return self._replaced(state, _existing(state, service_id), draft)

        return await self._ledger.change(build)

    def get(self, service_id: int) -> ProxyService:
        """Return a service. Raises Missing."""
        return _existing(self._ledger.state, service_id)

    async def revise(
        self, service_id: int, fields: Mapping[str, Any], tags: Collection[str]
    ) -> Outcome[ProxyService]:
        """Give a service some new fields of `ProxyServiceDraft`; the others stay, even with other
        changes at the same time. `tags` are those of `versions.demand`. Raises Invalid, Missing,
        Outdated.
        """

        def build(state: DesiredState) -> Proposal[ProxyService]:
            before = _demanded(state, service_id, tags)
            return self._replaced(state, before, revised(ProxyServiceDraft, before, fields))

        return await self._ledger.change(build)

    def _replaced(
        self, state: DesiredState, before: ProxyService, draft: ProxyServiceDraft
    ) -> Proposal[ProxyService]:
        others = state.services.delete(before.id).values()
        checks.refuse(self._problems(draft, state, others, before.name))
        service = msgspec.structs.replace(before, **msgspec.structs.asdict(draft))
        return Proposal([Edit("services", service.id, service)], service)

    async def set_enabled(self, service_id: int, is_enabled: bool) -> Outcome[ProxyService]:
        """Switch a service on or off. Raises Missing, and Invalid if its port is taken by now."""

        def build(state: DesiredState) -> Proposal[ProxyService]:
            before = _existing(state, service_id)
            if is_enabled:
                checks.refuse(self._foreign_problems(state, [before]))
            service = msgspec.structs.replace(before, is_enabled=is_enabled)
            return Proposal([Edit("services", service.id, service)], service)

        return await self._ledger.change(build)

    async def set_enabled_many(self, ids: Sequence[int], is_enabled: bool) -> Outcome[int]:
        """Switch the services of `ids`, and return how many there are. Raises Invalid likewise."""

        def build(state: DesiredState) -> Proposal[int]:
            found = _services_of(state, ids)
            if is_enabled:
                checks.refuse(self._foreign_problems(state, found))
            switched = [msgspec.structs.replace(s, is_enabled=is_enabled) for s in found]
            return Proposal([Edit("services", s.id, s) for s in switched], len(found))

        return await self._ledger.change(build)

    async def delete(self, service_id: int, tags: Collection[str] = ()) -> Outcome[ProxyService]:
        """Remove a service, and return it. Raises Missing, Outdated."""

        def build(state: DesiredState) -> Proposal[ProxyService]:
            found = _demanded(state, service_id, tags)
            return Proposal([Edit("services", service_id, None)], found)

        return await self._ledger.change(build)

    async def delete_many(self, ids: Sequence[int]) -> Outcome[int]:
        """Remove the services of `ids`, and return how many there were."""

        def build(state: DesiredState) -> Proposal[int]:
            found = _services_of(state, ids)
            return Proposal([Edit("services", s.id, None) for s in found], len(found))

        return await self._ledger.change(build)

    async def import_rows(
        self, text: str, *, replace: bool, preview: bool = False
    ) -> ImportOutcome:
        """Add a service for each row of `text`; with `replace` all others are removed.

        A service whose name stays keeps its id. Rows beyond the quota are bad ones.

        With `preview` nothing is changed, and the answer is that of a real import.
        """

        def build(state: DesiredState) -> Proposal[ImportOutcome]:
            tally = Tally(preview)
            kept = {} if replace else {s.name: s for s in state.services.values()}
            wanted = self._wanted(state, text, tally, kept)
            edits = [Edit("services", s.id, s) for s in wanted.values()]
            services = state.services.values()
            stale = (Edit("services", s.id, None) for s in services if s.name not in wanted)
            return proposed(tally, edits, stale if replace else None)

        return await carry_out(self._ledger, build, preview=preview)

    def _wanted(
        self, state: DesiredState, text: str, tally: Tally, kept: Mapping[str, ProxyService]
    ) -> dict[str, ProxyService]:
        """Return the services that the rows add to those that are kept, by name."""
        wanted: dict[str, ProxyService] = {}
        quota, fresh_id = self._quota(), state.next_id("services")
        looks = Looks("proxy service", state.service_by_name)
        taken = self._taken(state, kept.values())
        for row in parse_proxy_services(text):
            if isinstance(row, BadRow):
                tally.bad(row)
                continue
            draft = row.draft
            if draft.name in kept or draft.name in wanted:
                tally.already_there()
                continue
            problems = [*field_problems(draft, self._own_ports), *_port_problems(draft.port, taken)]
            if not problems and len(kept) + len(wanted) >= quota:
                problems = [fault("", "quota-reached", quota=quota)]
            if problems:
                tally.bad(BadRow(row.line, tuple(problems)))
                continue
            before_id = state.service_by_name.get(draft.name)
            if before_id is None:
                if faults := [*looks.problems(draft.name)]:
                    tally.bad(BadRow(row.line, tuple(faults)))
                    continue
                looks.add(draft.name)
                wanted[draft.name] = self._service(draft, fresh_id)
                fresh_id += 1
            else:
                wanted[draft.name] = msgspec.structs.replace(
                    state.services[before_id], **msgspec.structs.asdict(draft)
                )
            taken[draft.port] = _service_use(draft.name)
            tally.imported += 1
        return wanted

    def _service(self, draft: ProxyServiceDraft, service_id: int) -> ProxyService:
        fields = msgspec.structs.asdict(draft)
        return ProxyService(id=service_id, created_at=self._clock(), **fields)

    def _problems(
        self,
        draft: ProxyServiceDraft,
        state: DesiredState,
        others: Iterable[ProxyService],
        own_name: str = "",
    ) -> Iterator[Fault]:
        """Yield every fault of a draft. `own_name` is the service's current name."""
        others = list(others)
        yield from field_problems(draft, self._own_ports)
        if draft.name != own_name:
            names = (other.name for other in others)
            yield from Looks("proxy service", names).problems(draft.name)
        if any(other.name == draft.name for other in others):
            yield fault("name", "name-taken", thing="proxy service", name=draft.name)
        yield from _port_problems(draft.port, self._taken(state, others))

    def _taken(self, state: DesiredState, others: Iterable[ProxyService]) -> dict[int, str]:
        """Return the ports that are taken for a service beside `others`, each with its listener."""
        foreign = dict.fromkeys(self._foreign(state), _ANOTHER_PROGRAM)
        return foreign | {other.port: _service_use(other.name) for other in others}

    def _foreign(self, state: DesiredState) -> set[int]:
        """Return the ports with a listener that is none of the services."""
        ours = {service.port for service in state.services.values() if service.is_enabled}
        return set(self._listening()) - ours

    def _foreign_problems(
        self, state: DesiredState, switched: Iterable[ProxyService]
    ) -> Iterator[Fault]:
        foreign = dict.fromkeys(self._foreign(state), _ANOTHER_PROGRAM)
        for service in switched:
            yield from _port_problems(service.port, foreign)


def field_problems(
    draft: ProxyServiceDraft | ProxyService, own_ports: Mapping[int, str]
) -> Iterator[Fault]:
    """Yield every fault of a service that can be found without the state."""
    yield from checks.text("name", draft.name, NAME_MAX, least=1)
    yield from checks.interface("outbound_interface", draft.outbound_interface)
    yield from checks.whole("port", draft.port, 1, 65535)
    if reason := reason_reserved(draft.port, own_ports):
        yield fault("port", "port-reserved", port=draft.port, reason=reason)
    for field in ("username", "password"):
        yield from checks.credential(field, getattr(draft, field))
    if ":" in draft.username:
        yield fault("username", "colon")
    if draft.password and not draft.username:
        yield fault("username", "username-needed")


def _existing(state: DesiredState, service_id: int) -> ProxyService:
    service = state.services.get(service_id)
    if service is None:
        raise Missing(fault("id", "no-such-id", thing="proxy service", id=service_id))
    return service


def _demanded(state: DesiredState, service_id: int, tags: Collection[str]) -> ProxyService:
    service = _existing(state, service_id)
    demand(service, tags, fault("", "changed-since-read", thing="proxy service", name=service.name))
    return service


def _services_of(state: DesiredState, ids: Iterable[int]) -> builtins.list[ProxyService]:
    return [state.services[key] for key in dict.fromkeys(ids) if key in state.services]


_ANOTHER_PROGRAM: Final = say("another-program")


def _service_use(name: str) -> str:
    return say("the-proxy-service", name=name)


def _port_problems(port: int, taken: Mapping[int, str]) -> Iterator[Fault]:
    if port in taken:
        yield fault("port", "port-in-use", user=taken[port], port=port)
