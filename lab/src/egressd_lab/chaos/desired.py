"""The configuration that egressd has accepted, and the exits that it allows to each client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from egressd_lab.device import Api
from egressd_lab.nodes import PASSWORD

GROUP: Final = "Group_"
INTERFACE: Final = "Interface:"
_LINE: Final = "l2tp_"


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a device, as its API returns it."""

    rules: dict[str, str] = {}
    """Client address -> target."""
    nodes: dict[str, tuple[str, str]] = {}
    """Node name -> server address, group."""
    services: dict[str, int] = {}
    """Proxy service name -> port."""
    lines: dict[str, tuple[str, bool]] = {}
    """VPN line's name -> password, and whether it is enabled."""
    listed: tuple[str, str] = ("", "")
    """The whitelist's domains and addresses."""

    def with_rule(self, address: str, target: str) -> Desired:
        """Return the configuration with this rule."""
        return self._with("rules", {**self.rules, address: target})

    def without_rule(self, address: str) -> Desired:
        """Return the configuration without this client's rule."""
        return self._with("rules", _without(self.rules, address))

    def with_node(self, name: str, server: str, group: str) -> Desired:
        """Return the configuration with this node."""
        return self._with("nodes", {**self.nodes, name: (server, group)})

    def without_node(self, name: str) -> Desired:
        """Return the configuration without this node."""
        return self._with("nodes", _without(self.nodes, name))

    def with_service(self, name: str, port: int) -> Desired:
        """Return the configuration with this proxy service."""
        return self._with("services", {**self.services, name: port})

    def without_service(self, name: str) -> Desired:
        """Return the configuration without this proxy service."""
        return self._with("services", _without(self.services, name))

    def with_line(self, name: str, password: str, *, is_enabled: bool) -> Desired:
        """Return the configuration with this VPN line."""
        return self._with("lines", {**self.lines, name: (password, is_enabled)})

    def without_line(self, name: str) -> Desired:
        """Return the configuration without this VPN line."""
        return self._with("lines", _without(self.lines, name))

    def with_list(self, listed: tuple[str, str]) -> Desired:
        """Return the configuration with this whitelist."""
        return self._with("listed", listed)

    def exits(self, client: str, wans: Mapping[str, str]) -> frozenset[str]:
        """Return the addresses that a client may be seen with outside.

        `wans`: interface -> address, also of VPN lines.
        """
        target = self.rules.get(client, "REJECT")
        if target == "DIRECT":
            return frozenset({wans["wan1"]})
        if target.startswith(INTERFACE):
            name = target.removeprefix(INTERFACE)
            is_down = name.startswith(_LINE) and self.lines.get(name) != (PASSWORD, True)
            return frozenset({wans[name]} if name in wans and not is_down else ())
        if target.startswith(GROUP):
            wanted = target.removeprefix(GROUP)
            return frozenset(server for server, group in self.nodes.values() if group == wanted)
        return frozenset({self.nodes[target][0]} if target in self.nodes else ())

    def _with(self, field: str, value: object) -> Desired:
        return msgspec.structs.replace(self, **{field: value})


def read(api: Api) -> Desired:
    """Return the configuration that the API reports. Raises Failed."""
    whitelist = api.get("/whitelist")
    return Desired(
        rules={rule["ip"]: rule["target_node"] for rule in api.get("/rules")["data"]},
        nodes={node["name"]: _server_and_group(node) for node in api.get("/nodes")["data"]},
        services={s["name"]: s["port"] for s in api.get("/proxy-services")["data"]},
        lines={
            line["name"]: (line["password"], line["is_enabled"])
            for line in api.get("/vpn-lines")["data"]
        },
        listed=(whitelist["domains"], whitelist["ips"]),
    )


def _server_and_group(node: dict[str, Any]) -> tuple[str, str]:
    return json.loads(node["config_json"])["server"], node["group"]


def _without(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}
