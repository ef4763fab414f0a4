"""Nodes: the upstream proxies."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from egressd.formats.config_json import FIELD, parse_dns_servers, with_settings
from egressd.formats.default_names import automatic_names
from egressd.formats.nodes import NODE_IMPORT_TYPES, parse_nodes
from egressd.formats.share_links import render_link
from egressd.model.bounds import DELAY_TIMEOUT_MAX_MS
from egressd.model.delays import Delay
from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import BadRow, ChangeIp, ImportOutcome, NodeBatch, NodeDraft, Outcome
from egressd.model.errors import Invalid, Missing
from egressd.model.faults import Fault, fault
from egressd.model.instances import NodePath
from egressd.model.messages import Probe
from egressd.model.names import DNS_PROFILES, node_name_problem
from egressd.model.nouns import Node
from egressd.model.wording import say, together
from egressd.planner.nodes import fault_of, lost_by_engine, settings_of
from egressd.planner.targets import dial_path, dial_problem
from egressd.service import checks
from egressd.service.dial_chains import relay_problems, unknown_relay
from egressd.service.imports import Tally, carry_out, proposed
from egressd.service.ledger import Ledger, Proposal
from egressd.service.node_problems import (
    change_ip_problems,
    draft_problems,
    field_problems,
    looks_of,
    row_server_problems,
    those_led_here,
)
from egressd.service.number_allocation import fresh_node_ids, numbered
from egressd.service.ports import Clock, Netd
from egressd.service.renames import rename_node
from egressd.service.servers import Around, ServerSurroundings
from egressd.service.versions import demand, revised

_NO_PAGE: Final = ChangeIp()

DialledBy = Callable[[DesiredState, Node], NodePath | None]
"""A function of a state and a node: the path that dials the node; None if its relay is missing."""


class Nodes:
    """The use cases of upstream proxies, and the measurement of their delays."""

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        clock: Clock,
        *,
        node_path: DialledBy,
        around: Around,
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._clock = clock
        self._path = node_path
        self._around = around

    def list(self) -> builtins.list[Node]:
        """Return all nodes, the oldest first."""
        return sorted(self._ledger.state.nodes.values(), key=lambda node: node.id)

    async def create(self, draft: NodeDraft, change_ip: ChangeIp = _NO_PAGE) -> Outcome[Node]:
        """Add a node that the engine accepts. Raises Invalid."""
        around = self._around()

        def build(state: DesiredState) -> Proposal[Node]:
            node = Node(
                id=next(fresh_node_ids(state)),
                created_at=self._clock(),
                **msgspec.structs.asdict(draft),
                **msgspec.structs.asdict(change_ip),
            )
            edit = Edit("nodes", node.id, node)
            problems = [*draft_problems(state, [edit], draft, around)]
            problems += change_ip_problems(state, change_ip, draft.name, None, around)
            checks.refuse(problems)
            return Proposal([edit], node)

        await self._try(build(self._ledger.state))
        return _with_loss(await self._ledger.change(build))

    async def replace(self, node_id: int, draft: NodeDraft) -> Outcome[Node]:
        """Give a node new fields; a new name moves the references to it.

        Raises Invalid, Missing.
        """
        around = self._around()

        def build(state: DesiredState) -> Proposal[Node]:
            if node_id not in state.nodes:
                checks.refuse(field_problems(draft, around))
            return self._replaced(state, _existing(state, node_id), draft, around)

        return await self._replace(node_id, build)

    def get(self, node_id: int) -> Node:
        """Return a node. Raises Missing."""
        return _existing(self._ledger.state, node_id)

    async def revise(
        self, node_id: int, fields: Mapping[str, Any], tags: Collection[str]
    ) -> Outcome[Node]:
        """Give a node some new fields of `NodeDraft` and `ChangeIp`; the others stay, even with
        other changes at the same time. `tags` are those of `versions.demand`. Raises Invalid,
        Missing, Outdated.
        """
        around = self._around()
        own = {name: fields[name] for name in ChangeIp.__struct_fields__ if name in fields}
        shared = {name: value for name, value in fields.items() if name not in own}

        def build(state: DesiredState) -> Proposal[Node]:
            before = _demanded(state, node_id, tags)
            change_ip = revised(ChangeIp, before, own)
            asked = msgspec.structs.replace(before, **msgspec.structs.asdict(change_ip))
            proposal = self._replaced(state, asked, revised(NodeDraft, before, shared), around)
            # A target that is gone since may stay.
            known = before.change_ip_via if "change_ip_via" not in own else None
            checks.refuse(change_ip_problems(state, change_ip, before.name, known, around))
            return proposal

        return await self._replace(node_id, build)

    async def _replace(
        self, node_id: int, build: Callable[[DesiredState], Proposal[Node]]
    ) -> Outcome[Node]:
        """Make a change of a node, which the engine tries first if it is dialled otherwise then."""
        proposal = build(self._ledger.state)
        before, after = _existing(self._ledger.state, node_id), proposal.value
        if (before.protocol, before.config_json) != (after.protocol, after.config_json):
            await self._try(proposal)
        return _with_loss(await self._ledger.change(build))

    def _replaced(
        self, state: DesiredState, before: Node, draft: NodeDraft, around: ServerSurroundings
    ) -> Proposal[Node]:
        node = msgspec.structs.replace(before, **msgspec.structs.asdict(draft))
        edits = [Edit("nodes", node.id, node)]
        if node.name != before.name and node_name_problem(node.name) is None:
            edits += rename_node(state, before.name, node.name, self._clock())
        checks.refuse(draft_problems(state, edits, draft, around, own_id=before.id))
        return Proposal(edits, node)

    async def delete(self, node_id: int, tags: Collection[str] = ()) -> Outcome[Node]:
        """Remove a node, and return it. Raises Missing, Outdated."""

        def build(state: DesiredState) -> Proposal[Node]:
            return Proposal([Edit("nodes", node_id, None)], _demanded(state, node_id, tags))

        return await self._ledger.change(build)

    async def delete_many(self, ids: Sequence[int]) -> Outcome[int]:
        """Remove the nodes of `ids`, and return how many there were."""

        def build(state: DesiredState) -> Proposal[int]:
            found = [node_id for node_id in dict.fromkeys(ids) if node_id in state.nodes]
            return Proposal([Edit("nodes", node_id, None) for node_id in found], len(found))

        return await self._ledger.change(build)

    async def update_many(self, batch: NodeBatch) -> Outcome[int]:
        """Change the group, the egress or the DNS of several nodes. Raises Invalid."""
        resolvers, around = _batch_resolvers(batch), self._around()

        def build(state: DesiredState) -> Proposal[int]:
            found = [state.nodes[key] for key in dict.fromkeys(batch.ids) if key in state.nodes]
            problems = [*_unserved(found, batch, resolvers)]
            problems += checks.new_group("group", batch.group or "", state)
            if batch.dialer_proxy and state.node_named(batch.dialer_proxy) is None:
                problems.append(unknown_relay(batch.dialer_proxy))
            checks.refuse(problems)
            nodes = [_with_batch(node, batch, resolvers) for node in found]
            checks.refuse(those_led_here(nodes, around))
            edits = [Edit("nodes", node.id, node) for node in nodes]
            if batch.dialer_proxy:
                after = state.with_edits(edits, state.revision)
                # Each sentence once for the relay, not for each node that would dial through it.
                checks.refuse(dict.fromkeys(relay_problems(after, [n.name for n in nodes])))
            return Proposal(edits, len(found))

        return await self._ledger.change(build)

    def links(self) -> builtins.list[tuple[str, str, tuple[str, ...]]]:
        """Return each node's name, its share link, and the fields that the link cannot express. The
        link of a faulty node is empty, and the third item is the fault.
        """
        links: builtins.list[tuple[str, str, tuple[str, ...]]] = []
        for node in self.list():
            if fault := fault_of(node):
                links.append((node.name, "", (fault,)))
            else:
                link = render_link(node.name, node.protocol, node.config_json)
                links.append((node.name, link.text, link.lost))
        return links

    async def import_rows(
        self,
        kind: str,
        text: str,
        *,
        replace: bool,
        group: str,
        auto_name: bool,
        start_index: int,
        private_servers: bool = False,
        preview: bool = False,
    ) -> ImportOutcome:
        """Add a node for each row of `text`; with `replace` all others are removed.

        `kind` is one of the API's import types. With `auto_name` the nodes are numbered from
        `start_index`; without, the second node of a name in the text gets a number. A node whose
        name stays keeps its id, so that its clients are not interrupted if its configuration stays,
        too. Servers must be on the internet; with `private_servers` they may be anywhere but on
        this device. Raises Invalid.

        With `preview` nothing is changed, and the answer is that of a real import.
        """
        checks.refuse(checks.one_of("type", kind, NODE_IMPORT_TYPES))
        checks.refuse(checks.group("group", group))
        around = self._around()

        def build(state: DesiredState) -> Proposal[ImportOutcome]:
            checks.refuse(checks.new_group("group", group, state))
            kept = {} if replace else state.node_by_name
            looks = looks_of(state)
            in_use: Container[str] = {} if replace else looks
            names = automatic_names(kind, start_index, in_use) if auto_name else None
            tally = Tally(preview)
            wanted: dict[str, Node] = {}
            now, fresh_ids = self._clock(), fresh_node_ids(state)
            for row in parse_nodes(kind, text, group=group, names=names):
                if isinstance(row, BadRow):
                    tally.bad(row)
                    continue
                name = row.draft.name
                if name in wanted or name in kept:
                    tally.already_there()
                    there = None if name in wanted else state.node_named(name)
                    tally.fates.skipped(row.line, there, name, row.draft)
                    if preview:
                        tally.note(row.line, say("node-there-already", name=name))
                    continue
                if reasons := row_server_problems(row.draft, around, private=private_servers):
                    tally.bad(BadRow(row.line, tuple(reasons)))
                    continue
                fields = msgspec.structs.asdict(row.draft)
                before = state.node_named(name)
                if before is None:
                    if problems := [*looks.problems(name)]:
                        tally.bad(BadRow(row.line, tuple(problems)))
                        continue
                    looks.add(name)
                    wanted[name] = Node(id=next(fresh_ids), created_at=now, **fields)
                else:
                    wanted[name] = msgspec.structs.replace(before, **fields)
                tally.imported += 1
                tally.fates.stored(row.line, before, wanted[name])
                lost = lost_by_engine(wanted[name])
                if notes := (*row.notes, lost) if lost else row.notes:
                    tally.note(row.line, together(notes))
            edits = [Edit("nodes", node.id, node) for node in wanted.values()]
            if not replace:
                return proposed(tally, edits)
            gone = [node for node in state.nodes.values() if node.name not in wanted]
            tally.removed = tuple(node.name for node in gone)
            return proposed(tally, edits, [Edit("nodes", node.id, None) for node in gone])

        return await carry_out(self._ledger, build, preview=preview)

    async def delay(self, name: str, url: str | None, timeout_ms: int) -> Delay:
        """Return the delay of a request through the node; -1 with the reason when it fails.

        If `url` is None, the device's own URL is used. Raises Invalid, Missing, and Failed without
        netd.
        """
        url = self._checked_url(url, timeout_ms)
        state = self._ledger.state
        node = state.node_named(name)
        if node is None:
            raise Missing(fault("name", "no-such-node", name=name))
        return (await self._measure(state, [node], url, timeout_ms))[name]

    async def delay_all(self, url: str | None, timeout_ms: int) -> dict[str, int]:
        """Return the delay of every node, by name; -1 where it fails. Raises Invalid, Failed."""
        url = self._checked_url(url, timeout_ms)
        delays = await self._measure(self._ledger.state, self.list(), url, timeout_ms)
        return {name: delay.delay for name, delay in delays.items()}

    def _checked_url(self, url: str | None, timeout_ms: int) -> str:
        url = self._ledger.state.settings.delay_url if url is None else url
        checks.refuse(
            (
                *checks.url("url", url),
                *checks.whole("timeout", timeout_ms, 1, DELAY_TIMEOUT_MAX_MS),
            )
        )
        return url

    async def _measure(
        self, state: DesiredState, nodes: Iterable[Node], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        results: dict[str, Delay] = {}
        probes = []
        around = self._around()
        for node in nodes:
            path, dialled = self._path(state, node), dial_path(state, node)
            if dialled is not None and (reasons := [*those_led_here(dialled.hops[-1:], around)]):
                results[node.name] = Delay(delay=-1, error=reasons[0].sentence)
            elif path is None:
                reason = dial_problem(state, node) or say("node-interface-unknown")
                results[node.name] = Delay(delay=-1, error=reason)
            else:
                probes.append(Probe(name=node.name, path=path))
        if probes:
            results |= await self._netd.delays(probes, url, timeout_ms)
        return results

    async def _try(self, proposal: Proposal[Node]) -> None:
        """Have the engine start the proposed node once. Raises Invalid with the engine's reason."""
        state = self._ledger.state
        after = state.with_edits(numbered(state, proposal.edits), state.revision)
        path = self._path(after, proposal.value)
        if path is None:
            return  # its relay's own relay is gone: the node blocks, and there is nothing to start
        (reason,) = await self._netd.try_paths([path])
        if reason:
            raise Invalid(fault(FIELD, "engine-refuses", reason=reason))


def _with_loss(outcome: Outcome[Node]) -> Outcome[Node]:
    """Add a note on the parts of the node's configuration that the engine in force cannot do."""
    lost = lost_by_engine(outcome.value)
    if not lost:
        return outcome
    return msgspec.structs.replace(outcome, notes=(*outcome.notes, lost))


def _existing(state: DesiredState, node_id: int) -> Node:
    node = state.nodes.get(node_id)
    if node is None:
        raise Missing(fault("id", "no-such-id", thing="node", id=node_id))
    return node


def _demanded(state: DesiredState, node_id: int, tags: Collection[str]) -> Node:
    node = _existing(state, node_id)
    demand(node, tags, fault("", "changed-since-read", thing="node", name=node.name))
    return node


def _batch_resolvers(batch: NodeBatch) -> tuple[str, ...] | None:
    """Return the batch's DNS servers. Raises Invalid with every fault that can be found without the
    state.
    """
    problems: builtins.list[Fault] = []
    servers: tuple[str, ...] | None = None
    if batch.group is not None:
        problems += checks.group("group", batch.group)
    if batch.interface_name:
        problems += checks.interface("interface_name", batch.interface_name)
        if batch.dialer_proxy:
            problems.append(fault("interface_name", "both-given", other="dialer_proxy"))
    if batch.dialer_proxy and (problem := node_name_problem(batch.dialer_proxy, "dialer_proxy")):
        problems.append(problem)
    if batch.node_dns_profile:
        problems += checks.one_of("node_dns_profile", batch.node_dns_profile, DNS_PROFILES)
    if batch.node_dns_servers is not None:
        try:
            servers = parse_dns_servers(batch.node_dns_servers)
        except Invalid as invalid:
            problems += (problem.at("node_dns_servers") for problem in invalid.faults)
    if batch.node_dns_profile == "custom" and not (batch.node_dns_servers or "").strip(", \r\n\t"):
        problems.append(fault("node_dns_servers", "dns-servers-needed", profile="node_dns_profile"))
    checks.refuse(problems)
    return servers


def _unserved(
    nodes: Iterable[Node], batch: NodeBatch, servers: tuple[str, ...] | None
) -> Iterator[Fault]:
    """Yield the fault that nodes keep the profile ``custom``, and would lose their servers."""
    if servers == () and batch.node_dns_profile is None:
        names = [node.name for node in nodes if settings_of(node).dns_profile == "custom"]
        if names:
            yield fault("node_dns_servers", "dns-servers-needed-by-node", name=names[0])


def _with_batch(node: Node, batch: NodeBatch, servers: tuple[str, ...] | None) -> Node:
    """Return the node with the batch's changes. An interface replaces a relay, and a relay an
    interface. Raises Invalid.
    """
    interface, relay = batch.interface_name, batch.dialer_proxy
    try:
        text = with_settings(
            node.config_json,
            interface_name="" if relay and interface is None else interface,
            dialer_proxy="" if interface and relay is None else relay,
            dns_profile=batch.node_dns_profile,
            dns_servers=servers,
        )
    except Invalid as invalid:
        raise Invalid(
            fault("", "node-unsuitable", name=node.name, reason=invalid.sentence)
        ) from None
    group = node.group if batch.group is None else batch.group
    return msgspec.structs.replace(node, config_json=text, group=group)
