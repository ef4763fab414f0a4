"""The states of nodes, lines and groups in use, and the delays of nodes, by netd's status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from egressd.model.desired import DesiredState
from egressd.model.messages import Status
from egressd.model.names import GROUP_PREFIX
from egressd.model.timelines import PartKey, SeenPart
from egressd.planner.compile import group_key
from egressd.planner.exits import node_key
from egressd.planner.targets import members_of, nodes_of, used_targets
from egressd.service.group_members import key_of
from egressd.service.lines import status_of

_DOWN: Final = SeenPart(is_up=False)
_UP: Final = SeenPart(is_up=True)


class PartStates:
    """Reads states and delays from netd's status, by the names of nodes, lines and groups."""

    def __init__(
        self,
        state: Callable[[], DesiredState],
        exit_delays: Callable[[], Mapping[str, int]],
    ) -> None:
        """`exit_delays` returns the milliseconds that the requests for exits took since the call
        before, by the keys of nodes' instances.
        """
        self._state = state
        self._exit_delays = exit_delays
        self._made_of: DesiredState | None = None
        self._nodes: dict[str, str] = {}
        """Name of a node in use -> the key of its instance."""
        self._groups: dict[str, tuple[str, list[str]]] = {}
        """Name of a group in use -> its key, and those of its members."""

    def states(self, seen: Status) -> dict[PartKey, SeenPart]:
        """Return the state of each node, group and line in use. A node works if netd has no reason
        against it, a group if one of its nodes works, a line if it is online.
        """
        self._look()
        bad = {
            *seen.failing,
            *seen.silent_members,
            *(key for key, its in seen.instances.items() if its.problem),
        }
        names = {key: name for name, key in self._nodes.items()}
        found: dict[PartKey, SeenPart] = {
            ("node", name): _DOWN if key in bad else _UP for name, key in self._nodes.items()
        }
        for name, (key, members) in self._groups.items():
            elected = seen.elected.get(key, "")
            elected = names.get(elected, "" if elected.startswith("node:") else elected)
            found["group", name] = SeenPart(any(each not in bad for each in members), elected)
        for line in self._state().lines.values():
            if line.is_enabled:
                is_online = status_of(line, seen.lines).is_online
                found["line", f"{line.type}/{line.name}"] = _UP if is_online else _DOWN
        return found

    def delays(self, seen: Status) -> dict[str, int]:
        """Return the milliseconds of nodes in use, by name: those of the last check of a group's
        node. Of a node that no group checks, those of its last request for its exit, once.
        """
        self._look()
        asked = self._exit_delays()
        found = {
            name: seen.delays.get(key, asked.get(key, -1)) for name, key in self._nodes.items()
        }
        return {name: ms for name, ms in found.items() if ms >= 0}

    def _look(self) -> None:
        state = self._state()
        if state is self._made_of:
            return
        self._made_of, self._nodes, self._groups = state, {}, {}
        if state.settings.stopped or state.settings.opened:
            return  # no target is in use then
        used = used_targets(state)
        self._nodes = {node.name: node_key(node.id) for node in nodes_of(state, used)}
        for target in used:
            name = target.removeprefix(GROUP_PREFIX)
            if name == target or not state.group_exists(name) or target not in state.numbers:
                continue
            members = [key_of(state, member) for member in members_of(state, name)]
            self._groups[name] = group_key(state, target), members
