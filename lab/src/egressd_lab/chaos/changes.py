"""Random changes by the API, each with the configuration that it leads to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from egressd_lab.chaos.desired import INTERFACE, Desired
from egressd_lab.device import API_PREFIX, Answer, Api
from egressd_lab.lines import LineServer
from egressd_lab.nodes import PASSWORD, Node

TARGETS: Final = (
    "DIRECT", "REJECT", "Interface:wan1", "Interface:wan2", "Interface:wan9",
    "alpha", "beta", "roam", "Group_pair",
)  # fmt: skip
"""Targets of rules. Some lead nowhere: there is no `wan9`, and the nodes of `roam` and `pair` come
and go.
"""
_LISTS: Final = (
    ("", ""),
    ("", "203.0.113.12"),
    ("", "203.0.113.11, 203.0.113.12"),
    ("", "192.0.2.128/25"),
    ("listed.test", ""),
    ("listed.test", "203.0.113.12"),
)
"""Domains and addresses. Floods request none of them; with domains, their QUIC is inspected."""
_PORTS: Final = (18_001, 18_002, 18_003)
_REST: Final = {
    "mac": "", "comment": "", "is_enabled": True,
    "upload_limit_kbps": 0, "download_limit_kbps": 0,
}  # fmt: skip


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One request, and the configuration that it leads to if it is accepted."""

    text: str
    method: str
    path: str
    body: dict[str, Any] | None
    after: Desired
    cuts_everybody: bool = False
    """True for the whitelist: saving it closes the open connections."""

    def ask(self, api: Api, timeout: float) -> Answer:
        """Send the request. Raises Failed if no answer comes."""
        return api.ask(self.method, API_PREFIX + self.path, self.body, timeout=timeout)


class Changes:
    """Draws changes.

    `subjects` are the addresses whose rules may change; `line` is the server of the VPN line that
    may change.
    """

    def __init__(
        self,
        rng: Random,
        api: Api,
        subjects: Sequence[str],
        nodes: Mapping[str, Node],
        line: LineServer | None,
    ) -> None:
        self._rng = rng
        self._api = api
        self._subjects = subjects
        self._nodes = nodes
        self._server = line
        self._targets = TARGETS if line is None else (*TARGETS, *2 * (f"{INTERFACE}{line.line}",))

    def draw(self, now: Desired) -> Change:
        """Return a random change of `now`. Raises Failed if the API does not return the ids."""
        kinds: list[Callable[[Desired], Change]]
        kinds = [self._rule, self._node, self._service, self._whitelist]
        weights = [10, 4, 1, 1]
        if self._server is not None:
            kinds.append(partial(self._line, self._server))
            weights.append(10)
        return self._rng.choices(kinds, weights)[0](now)

    def rule(self, now: Desired, address: str, target: str) -> Change:
        """Return the change that gives a client's rule this target."""
        body = {"ip": address, "target_node": target}
        after = now.with_rule(address, target)
        if address not in now.rules:
            return _post(f"{address} gets {target}", "/rules", body, after)
        row = self._id("/rules", "ip", address)
        return Change(
            text=f"{address} moves to {target}",
            method="PUT",
            path=f"/rules/{row}",
            body={**body, **_REST},
            after=after,
        )

    def _rule(self, now: Desired) -> Change:
        address = self._rng.choice(self._subjects)
        if address in now.rules and self._rng.random() < 0.1:
            row = self._id("/rules", "ip", address)
            after = now.without_rule(address)
            return _delete(f"{address} loses its rule", f"/rules/{row}", after)
        missing = {"roam"} - now.nodes.keys()
        if not any(group == "pair" for _, group in now.nodes.values()):
            missing.add("Group_pair")
        others = [t for t in self._targets if t not in missing and t != now.rules.get(address)]
        return self.rule(now, address, self._rng.choice(others))

    def _node(self, now: Desired) -> Change:
        """Return a change of nodes: `roam` comes, goes and moves; members of the group `pair` join
        and leave.
        """
        name = self._rng.choice(("roam", "pair1", "pair2"))
        real = self._nodes["spare"]
        if name == "roam":
            group = ""
            if "roam" in now.nodes:
                real = self._nodes[self._rng.choice(("ss", "spare"))]
        else:
            group = self._rng.choice(("pair", "pair", "other"))
            real = self._nodes["ss" if name == "pair1" else "spare"]
        after = now.with_node(name, real.address, group)
        body = {**real.draft(group), "name": name}
        if name not in now.nodes:
            return _post(f"node {name} comes", "/nodes", body, after)
        row = self._id("/nodes", "name", name)
        if self._rng.random() < 0.3:
            return _delete(f"node {name} goes", f"/nodes/{row}", now.without_node(name))
        text = f"node {name} is {real.name} in group {group or '-'}"
        return Change(text=text, method="PUT", path=f"/nodes/{row}", body=body, after=after)

    def _service(self, now: Desired) -> Change:
        port = self._rng.choice(_PORTS)
        name = f"service{port}"
        if name in now.services:
            row = self._id("/proxy-services", "name", name)
            after = now.without_service(name)
            return _delete(f"{name} goes", f"/proxy-services/{row}", after)
        body = {"name": name, "outbound_interface": "wan3", "port": port}
        after = now.with_service(name, port)
        return _post(f"{name} comes", "/proxy-services", body, after)

    def _line(self, server: LineServer, now: Desired) -> Change:
        """Return a change of the line: it comes, goes, is switched, or gets a right or wrong
        password.
        """
        name = server.line
        key = {"items": [{"type": "l2tp", "name": name}]}
        draw = self._rng.random()
        if name not in now.lines:
            after = now.with_line(name, PASSWORD, is_enabled=True)
            return _post(f"line {name} comes", "/vpn-lines", server.draft(), after)
        password, is_enabled = now.lines[name]
        if draw < 0.2:
            return _delete(f"line {name} goes", "/vpn-lines", now.without_line(name), key)
        if draw < 0.6:
            return Change(
                text=f"line {name} is switched {'off' if is_enabled else 'on'}",
                method="PATCH",
                path="/vpn-lines/status",
                body={**key, "is_enabled": not is_enabled},
                after=now.with_line(name, password, is_enabled=not is_enabled),
            )
        other = "wrong" if password == PASSWORD else PASSWORD
        return Change(
            text=f"line {name} has a {'wrong' if other != PASSWORD else 'right'} password",
            method="PUT",
            path=f"/vpn-lines/l2tp/{name}",
            body={**server.draft(other), "is_enabled": is_enabled},
            after=now.with_line(name, other, is_enabled=is_enabled),
        )

    def _whitelist(self, now: Desired) -> Change:
        domains, ips = listed = self._rng.choice([one for one in _LISTS if one != now.listed])
        return Change(
            text=f"the whitelist holds {', '.join(filter(None, listed)) or 'nothing'}",
            method="PUT",
            path="/whitelist",
            body={"domains": domains, "ips": ips, "node": "DIRECT"},
            after=now.with_list(listed),
            cuts_everybody=True,
        )

    def _id(self, path: str, field: str, value: str) -> int:
        rows = self._api.get(path)["data"]
        return int(next(row["id"] for row in rows if row[field] == value))


def _post(text: str, path: str, body: dict[str, Any], after: Desired) -> Change:
    return Change(text=text, method="POST", path=path, body=body, after=after)


def _delete(text: str, path: str, after: Desired, body: dict[str, Any] | None = None) -> Change:
    return Change(text=text, method="DELETE", path=path, body=body, after=after)


def server_of(node: Node) -> str:
    """Return the server in the node's configuration, in the form of `Desired`."""
    return str(json.loads(node.draft()["config_json"])["server"])
