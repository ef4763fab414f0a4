"""The faults of nodes: of drafts, of rows of imports and of stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from egressd.formats.config_json import FIELD, read_config
from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import ChangeIp, NodeDraft
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.names import node_name_problem, parse_target
from egressd.model.nouns import Node
from egressd.service import checks, servers
from egressd.service.dial_chains import relay_problems
from egressd.service.looks import Looks
from egressd.service.servers import ServerSurroundings


def looks_of(state: DesiredState) -> Looks:
    """Return the names of nodes and targets that a new node's must not look like."""
    return Looks("node", there=state.nodes_like, is_target=True)


def draft_problems(
    state: DesiredState,
    edits: Sequence[Edit],
    draft: NodeDraft,
    around: ServerSurroundings,
    own_id: int | None = None,
) -> Iterator[Fault]:
    """Yield every fault of a draft, and of the state after `edits`, which add the draft."""
    faults = list(config_problems(draft, around))
    labels = list(label_problems(draft))
    yield from (*labels, *faults)
    if not labels:
        yield from _new_label_problems(state, draft, own_id)
    if state.node_by_name.get(draft.name, own_id) != own_id:
        yield fault("name", "name-taken", thing="node", name=draft.name)
    if not faults:
        after = state.with_edits(edits, state.revision)
        yield from relay_problems(after, [draft.name], "config_json.dialer-proxy")


def _new_label_problems(
    state: DesiredState, draft: NodeDraft, own_id: int | None
) -> Iterator[Fault]:
    """Yield why users could confuse a new name, or the name of a new group, with others."""
    before = "" if own_id is None else state.nodes[own_id].name
    if draft.name != before:
        yield from looks_of(state).problems(draft.name, before)
    yield from checks.new_group("group", draft.group, state)


def field_problems(draft: NodeDraft, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield every fault that can be found without the state."""
    yield from (*label_problems(draft), *config_problems(draft, around))


def label_problems(draft: NodeDraft | Node) -> Iterator[Fault]:
    """Yield every fault of a node's name and group that can be found without the state."""
    if problem := node_name_problem(draft.name):
        yield problem
    yield from checks.group("group", draft.group)


def config_problems(draft: NodeDraft | Node, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield every fault of a node's protocol and configuration."""
    try:
        config = read_config(draft.protocol, draft.config_json)
    except Invalid as invalid:
        yield from invalid.faults
    else:
        yield from (problem.inside(FIELD) for problem in servers.own_problems(config, around))


def change_ip_problems(
    state: DesiredState,
    wanted: ChangeIp,
    name: str,
    known_via: str | None,
    around: ServerSurroundings,
) -> Iterator[Fault]:
    """Yield every fault of the page by which the node `name` gets another address. `known_via` is a
    target that may be gone.
    """
    yield from change_url_problems(wanted, around)
    via = wanted.change_ip_via
    if not via or via == known_via:
        return
    kind = parse_target(via).kind
    if kind in ("group", "reject") or via == name:
        yield fault("change_ip_via", "change-ip-via")
    else:
        yield from checks.target("change_ip_via", via, state)


def change_url_problems(node: ChangeIp | Node, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield the faults of the page's URL, which must lead outside."""
    url = node.change_ip_url
    if not url:
        return
    if problems := [*checks.page_url("change_ip_url", url)]:
        yield from problems
    elif around.near_address(host := urlsplit(url).hostname or ""):
        yield fault("change_ip_url", "alert-url-own", host=host)


def stored_change_ip_problems(node: Node, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield every fault of a stored page that can be found without the state."""
    yield from change_url_problems(node, around)
    if node.change_ip_via:
        yield from checks.stored_target("change_ip_via", node.change_ip_via)


def led_here_problems(node: Node, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield the fault that a node leads to this device, as far as its configuration can be read."""
    with suppress(Invalid):
        config = read_config(node.protocol, node.config_json)
        yield from (problem.inside(FIELD) for problem in servers.own_problems(config, around))


def those_led_here(nodes: Iterable[Node], around: ServerSurroundings) -> Iterator[Fault]:
    """Yield a fault for each node that leads to this device."""
    for node in nodes:
        for problem in led_here_problems(node, around):
            yield fault("", "node-leads-here", name=node.name, problem=problem.sentence)


def row_server_problems(
    draft: NodeDraft, around: ServerSurroundings, *, private: bool
) -> list[Fault]:
    """Return why the list may not name a row's server; empty if it may."""
    config = read_config(draft.protocol, draft.config_json)
    problems = [*servers.own_problems(config, around)]
    return problems if problems or private else [*servers.inner_problems(config, around)]
