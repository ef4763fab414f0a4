"""Keys of clients in the history: a rule's address, or the device that the rule belongs to.

So the history of a device goes with it to another address, and the address's next owner gets
nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from egressd.model.devices import normal_mac
from egressd.model.nouns import Rule
from egressd.service.history_keys import HistoryKeys


class HistoryClients:
    """Finds the keys of rules, and renames those of rules that a device gets or loses."""

    def __init__(self, rules: Callable[[], Mapping[int, Rule]], keys: HistoryKeys) -> None:
        self._rules = rules
        self._keys = keys
        self._last: dict[int, str] = {}
        """Rule -> the key of its last traffic."""
        self._made_of: Mapping[int, Rule] | None = None
        self._macs: dict[str, str] = {}
        """Address of a rule that belongs to a device -> that device."""
        self._addresses: dict[str, str] = {}
        """The reverse."""

    def key_of(self, rule: Rule) -> str:
        """Return the key of a rule that has traffic. What it had under another key, while it was
        the address's or the device's, goes with it.
        """
        key = rule.bound_mac or rule.host
        before = self._last.get(rule.id) or (rule.host if rule.bound_mac else key)
        if before != key and (rule.bound_mac or normal_mac(before)):
            self._keys.rename("client", before, key)
        self._last[rule.id] = key
        return key

    def key_at(self, name: str) -> str:
        """Return the key of an address that is asked for."""
        self._follow()
        return self._macs.get(name, name)

    def shown(self, key: str) -> str:
        """Return the present address of a device that a rule belongs to; else `key` itself."""
        self._follow()
        return self._addresses.get(key, key)

    def _follow(self) -> None:
        rules = self._rules()
        if self._made_of is not rules:
            self._macs = {rule.host: rule.bound_mac for rule in rules.values() if rule.bound_mac}
            self._addresses = {mac: ip for ip, mac in self._macs.items()}
            self._made_of = rules
