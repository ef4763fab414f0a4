"""The targets of rotation links, as their tokens keep them.

A group is kept by its name, as rules name it. A node is kept by its id and the time of its making:
a link stays its node's under every name, and never becomes that of another node, whether that gets
the name later or has the id in the restored backup of another device.
"""

from __future__ import annotations

from typing import Final

from egressd.model.desired import DesiredState
from egressd.model.names import TargetName, parse_target
from egressd.model.nouns import Node
from egressd.model.tokens import ROTATE, ScopedToken

_BY_ID: Final = "#"
"""The first character of a node that is kept by its id, in place of a name."""


def kept_target(state: DesiredState, target: str) -> str | None:
    """Return a target, as rules name it, in the form that a token keeps; None if there is nothing
    of this name that a link could rotate.
    """
    found = parse_target(target)
    node = state.node_named(found.name) if found.kind == "node" else None
    if not _is_rotatable(state, found):
        return None
    return target if node is None else f"{_BY_ID}{node.id}@{node.created_at}"


def found_target(state: DesiredState, kept: str) -> TargetName | None:
    """Return the target that a token keeps; None if there is nothing to rotate any more."""
    if kept.startswith(_BY_ID):
        node = _node(state, kept)
        target = None if node is None else TargetName("node", node.name)
    else:
        target = parse_target(kept)
    return target if target is not None and _is_rotatable(state, target) else None


def shown_target(state: DesiredState, kept: str) -> str:
    """Return a target that a token keeps as rules name it at present, and a node that does not
    exist any more by its id.
    """
    if not kept.startswith(_BY_ID):
        return kept
    node = _node(state, kept)
    return kept.partition("@")[0] if node is None else node.name


def shown_scopes(state: DesiredState, token: ScopedToken) -> list[str]:
    """Return the scopes of a token, with the target of a link as rules name it at present."""
    if token.rotates:
        return [ROTATE + shown_target(state, token.rotates)]
    return [*token.scopes]


def _node(state: DesiredState, kept: str) -> Node | None:
    number, _, made_at = kept.removeprefix(_BY_ID).partition("@")
    node = state.nodes.get(int(number))
    return node if node is not None and node.created_at == made_at else None


def _is_rotatable(state: DesiredState, target: TargetName) -> bool:
    if target.kind == "node":
        node = state.node_named(target.name)
        return node is not None and bool(node.change_ip_url)
    return target.kind == "group" and state.group_exists(target.name)
