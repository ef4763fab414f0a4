"""The rules of devices' addresses, found without a walk over all rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

from egressd.model.desired import DesiredState
from egressd.model.nouns import Rule


class RuleFound(NamedTuple):
    """The rule of an address, and the CIDR of the one that covers it otherwise."""

    rule_id: int | None
    covered_by: str


NO_RULE = RuleFound(None, "")


class DeviceRules:
    """Finds the rules of addresses in the current state."""

    def __init__(self, state: Callable[[], DesiredState]) -> None:
        self._state = state
        self._made_of: Mapping[int, Rule] | None = None
        self._networks: list[tuple[int, dict[int, str]]] = []
        """Prefix length, the longest first -> the networks of enabled rules, by number."""

    def of(self, ip: str) -> RuleFound:
        """Return the rule of an address, enabled or not; else the narrowest that covers it."""
        if not ip:
            return NO_RULE
        state = self._state()
        if self._made_of is not state.rules:
            self._index(state.rules)
        rule_id = state.rule_by_ip.get(f"{ip}/32")
        if rule_id is not None:
            return RuleFound(rule_id, "")
        number = int(IPv4Address(ip))
        for length, networks in self._networks:
            shift = 32 - length
            if found := networks.get(number >> shift << shift):
                return RuleFound(None, found)
        return NO_RULE

    def _index(self, rules: Mapping[int, Rule]) -> None:
        by_length: dict[int, dict[int, str]] = {}
        for rule in rules.values():
            if not rule.is_host and rule.is_enabled:
                network = rule.network
                by_length.setdefault(network.prefixlen, {})[int(network.network_address)] = rule.ip
        self._networks = sorted(by_length.items(), reverse=True)
        self._made_of = rules
