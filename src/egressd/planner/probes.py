"""Documents that send a request the way a target's clients go: same hops, same marks."""

from __future__ import annotations

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.names import TargetName
from egressd.model.nouns import Node
from egressd.planner.compile import egress_resolvers
from egressd.planner.documents import probe_document, routed_probe_document
from egressd.planner.registry import MARK_REJECT
from egressd.planner.targets import dial_path, dial_paths, mark_of


def target_documents(
    state: DesiredState, target: TargetName, resolvers: Resolvers
) -> dict[str, str]:
    """A document without inbounds for each way of `target`, by the way's name.

    A way is a node, or for a target that the kernel routes the target itself; there is
    none for one that blocks.
    """
    if target.kind in ("node", "group"):
        nodes = (path.hops[0] for path in dial_paths(state, target))
        documents = {node.name: node_document(state, node, resolvers) for node in nodes}
        return {name: text for name, text in documents.items() if text is not None}
    mark = mark_of(state, str(target))
    if mark == MARK_REJECT:
        return {}
    servers = resolvers.all_reached_by(target.name)
    if target.kind == "interface":
        servers = egress_resolvers(state, resolvers, target.name) or servers
    return {str(target): routed_probe_document(mark, servers[0])}


def node_document(state: DesiredState, node: Node, resolvers: Resolvers) -> str | None:
    """A document that dials `node`, for a trial or a measurement; None when it has no way out."""
    path = dial_path(state, node)
    return None if path is None else probe_document(path, resolvers)
