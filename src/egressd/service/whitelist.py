"""The whitelist: destinations with an egress of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from egressd.formats.whitelist import is_network, split_entries
from egressd.model.bounds import ROWS_MAX
from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import Outcome
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.names import parse_target
from egressd.model.nouns import Whitelist
from egressd.planner.whitelist_entries import entries_of
from egressd.service import checks
from egressd.service.group_checks import of_nodes
from egressd.service.ledger import Ledger, Proposal
from egressd.service.versions import demand


class DeviceWhitelist:
    """The one whitelist of the device."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def get(self) -> Whitelist:
        """Return the whitelist, as it was written."""
        return self._ledger.state.whitelist

    async def put(
        self, domains: str, ips: str, node: str, tags: Collection[str] = ()
    ) -> Outcome[Whitelist]:
        """Replace the whitelist. `tags`: see `versions.demand`. Raises Invalid, Outdated."""
        wanted = Whitelist(domains=domains, ips=ips, node=node)

        def build(state: DesiredState) -> Proposal[Whitelist]:
            demand(state.whitelist, tags, fault("", "whitelist-changed"))
            checks.refuse(_problems(state, wanted))
            return Proposal([Edit("whitelist", 0, wanted)], wanted)

        return await self._ledger.change(build, is_large=True)

    async def amend(self, added: Iterable[str], removed: Iterable[str]) -> Outcome[Whitelist]:
        """Append entries and remove others, given as they are written; the rest stays, even with
        other such changes at the same time. Raises Invalid.
        """
        come, gone = ([*split_entries("\n".join(each))] for each in (added, removed))

        def build(state: DesiredState) -> Proposal[Whitelist]:
            wanted = _amended(state.whitelist, come, {*gone})
            checks.refuse(_problems(state, wanted))
            return Proposal([Edit("whitelist", 0, wanted)], wanted)

        return await self._ledger.change(build, is_large=True)


def entry_problems(wanted: Whitelist) -> Iterator[Fault]:
    """Yield every fault of a whitelist except those of its target."""
    for field, text in (("domains", wanted.domains), ("ips", wanted.ips)):
        yield from checks.lines(field, text)
        if text.count(",") + text.count("\n") >= ROWS_MAX:
            yield fault(field, "too-many-entries", most=ROWS_MAX)
            return
    try:
        entries_of(wanted)  # parsed once: the planner uses the same result
    except Invalid as invalid:
        yield from invalid.faults


def _amended(saved: Whitelist, added: Iterable[str], removed: Collection[str]) -> Whitelist:
    domains, ips = (
        dict.fromkeys(entry for entry in split_entries(text) if entry not in removed)
        for text in (saved.domains, saved.ips)
    )
    for entry in added:
        (ips if is_network(entry) else domains).setdefault(entry)
    return Whitelist(domains="\n".join(domains), ips="\n".join(ips), node=saved.node)


def _problems(state: DesiredState, wanted: Whitelist) -> Iterator[Fault]:
    yield from entry_problems(wanted)
    target = parse_target(wanted.node)
    if target.kind in ("reject", "interface") or not state.target_exists(target):
        yield fault("node", "whitelist-target-missing", given=wanted.node[:100])
    yield from of_nodes("node", wanted.node, state)
