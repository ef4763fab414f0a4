"""A node's ``config_json``: a Clash/mihomo proxy entry without ``name`` and ``type``.

The text is kept as the operator wrote it. It also carries the node's egress and DNS settings, under
the keys ``interface-name``, ``dialer-proxy``, ``dns-profile`` and ``dns-servers``, so that reading
a node and writing it back keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address
from typing import Any, Final

import msgspec

from egressd.formats.clash_keys import normalised
from egressd.formats.engine_limits import refusal_of
from egressd.formats.entries import PROTOCOLS
from egressd.formats.fields import Reading, read
from egressd.formats.json_text import check_size, read_object, write_object
from egressd.formats.layers import canonical
from egressd.formats.scalars import is_off
from egressd.model.bounds import DNS_SERVERS_MAX
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.names import (
    DNS_PROFILES,
    INTERFACE_NAME_MAX,
    is_interface_name,
    node_name_problem,
)

FIELD: Final = "config_json"
"""The name of the whole text in error messages."""

SETTINGS_KEYS: Final = ("interface-name", "dialer-proxy", "dns-profile", "dns-servers")


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The egress of a node's own traffic, and the resolvers for its clients.

    ``interface_name`` and ``dialer_proxy`` (a node's name) exclude each other. An empty
    ``dns_profile`` stands for ``auto``.
    """

    interface_name: str = ""
    dialer_proxy: str = ""
    dns_profile: str = ""
    dns_servers: tuple[str, ...] = ()
    """IPv4 addresses; only used when the profile is ``custom``."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A checked configuration. ``repr`` shows no value, since some are secrets."""

    protocol: str
    fields: dict[str, Any]
    """Clash's name of each given field -> its normalised value (see `layers.canonical`)."""
    settings: NodeSettings = NodeSettings()
    unknown: tuple[str, ...] = ()
    """Keys that egressd keeps and does not use."""
    idle: tuple[str, ...] = ()
    """Keys that have no effect beside the others."""

    def __repr__(self) -> str:
        return f"NodeConfig(protocol={self.protocol!r}, fields={sorted(self.fields)})"


def read_config(protocol: str, config_json: str) -> NodeConfig:
    """Check a node's configuration. The result for a short text is cached, since one change reads
    each configuration several times.

    Raises Invalid with every fault. Each names its field, as in
    ``config_json.port must be a whole number from 1 to 65535``.
    """
    is_short = len(config_json) <= _SHORT
    return (_remembered if is_short else _read_config)(protocol, config_json)


def _read_config(protocol: str, config_json: str) -> NodeConfig:
    if protocol not in PROTOCOLS:
        problem = fault("protocol", "one-of", choices=tuple(PROTOCOLS))
        try:
            read_object(config_json, FIELD)
        except Invalid as invalid:
            raise Invalid(problem, *invalid.faults) from None
        raise Invalid(problem)
    given = read_object(config_json, FIELD)
    reading = read_entry(protocol, {k: v for k, v in given.items() if k not in SETTINGS_KEYS})
    settings, problems = _settings(given)
    problems = [*(problem.inside(FIELD) for problem in reading.problems), *problems]
    if problems:
        raise Invalid(*problems)
    return NodeConfig(
        protocol=protocol,
        fields=reading.values,
        settings=settings,
        unknown=tuple(reading.unknown),
        idle=tuple(reading.idle),
    )


_SHORT: Final = 512
"""Characters of a configuration that is cached."""
_remembered: Final = lru_cache(12_288)(_read_config)
"""The results for the nodes of the longest list, before and after a change of all: 30 MB at most.
"""


def read_entry(protocol: str, given: Mapping[str, Any]) -> Reading:
    """Check the fields of a Clash entry, except its settings. The problems name the entry's own
    fields.

    ``protocol`` must be a key of `PROTOCOLS`.
    """
    normal = normalised(protocol, given)
    reading = read_fields(protocol, normal.fields)
    reading.problems = list(dict.fromkeys((*normal.problems, *reading.problems)))
    reading.idle += normal.idle
    return reading


def read_fields(protocol: str, given: Mapping[str, Any]) -> Reading:
    """Check the fields of an entry with the table's keys, as `read_entry` does."""
    entry = PROTOCOLS[protocol]
    reading = read(entry.table, given)
    for path, value in reading.unknown.items():
        if reason := refusal_of(path, value):
            reading.problems.append(fault(path, "not-given", reason=reason))
    values = reading.values
    # To the rules a faulty field looks missing. They must not report it as missing.
    faulty = {problem.path for problem in reading.problems}
    found = (problem for rule in entry.rules for problem in rule(values))
    reading.problems += (problem for problem in found if problem.path not in faulty)
    reading.problems = list(dict.fromkeys(reading.problems))
    reading.unknown = {key: value for key, value in reading.unknown.items() if not is_off(value)}
    for rule in entry.idle:
        reading.idle += rule(values)
    reading.values = canonical(values)
    return reading


def read_settings(config_json: str) -> NodeSettings:
    """Return the egress and DNS settings inside a configuration. Raises Invalid."""
    settings, problems = _settings(read_object(config_json, FIELD))
    if problems:
        raise Invalid(*problems)
    return settings


def with_settings(
    config_json: str,
    *,
    interface_name: str | None = None,
    dialer_proxy: str | None = None,
    dns_profile: str | None = None,
    dns_servers: tuple[str, ...] | None = None,
) -> str:
    """Return the text with these settings changed. None leaves a setting alone, an empty value
    removes it.

    All other keys keep their values and their order. A text that already has these settings is
    returned unchanged, white space included. Raises Invalid when the result would not be valid.
    """
    given = read_object(config_json, FIELD)
    wanted: dict[str, Any] = dict(given)
    changes = {
        "interface-name": interface_name,
        "dialer-proxy": dialer_proxy,
        "dns-profile": dns_profile,
        "dns-servers": None if dns_servers is None else list(dns_servers),
    }
    for key, value in changes.items():
        if value:
            wanted[key] = value
        elif value is not None:
            wanted.pop(key, None)
    if wanted == given:
        return config_json
    _, problems = _settings(wanted)
    if problems:
        raise Invalid(*problems)
    text = write_object(wanted)
    check_size(text, FIELD)
    return text


def parse_dns_servers(text: str) -> tuple[str, ...]:
    """Return the DNS servers of a text that separates them by commas or newlines, as in the batch
    call.

    Raises Invalid, naming ``dns_servers``.
    """
    servers = [part.strip() for part in re.split("[,\n]", text)]
    kept = tuple(dict.fromkeys(server for server in servers if server))
    if problem := dns_servers_problem("dns_servers", kept):
        raise Invalid(problem)
    return kept


def dns_servers_problem(field: str, servers: object) -> Fault | None:
    """Return the fault of `servers` as the list of DNS servers in `field`, or None."""
    wrong = fault(field, "dns-servers", most=DNS_SERVERS_MAX)
    if not isinstance(servers, list | tuple) or len(servers) > DNS_SERVERS_MAX:
        return wrong
    return None if all(isinstance(s, str) and _is_ipv4(s) for s in servers) else wrong


def _is_ipv4(text: str) -> bool:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return False
    return not address.is_unspecified and not address.is_multicast


def _settings(given: Mapping[str, Any]) -> tuple[NodeSettings, list[Fault]]:
    """Return the settings among the keys of a configuration, and their faults."""
    interface, relay, profile = (given.get(key) or "" for key in SETTINGS_KEYS[:3])
    servers = given.get("dns-servers") or []
    problems: list[Fault] = []
    if interface and not (isinstance(interface, str) and is_interface_name(interface)):
        problems.append(fault("interface-name", "config-interface", most=INTERFACE_NAME_MAX))
    if relay and not (isinstance(relay, str) and node_name_problem(relay) is None):
        problems.append(fault("dialer-proxy", "node-name"))
    if interface and relay:
        problems.append(fault("interface-name", "both-given", other="dialer-proxy"))
    if profile and profile not in DNS_PROFILES:
        problems.append(fault("dns-profile", "one-of", choices=DNS_PROFILES))
    if problem := dns_servers_problem("dns-servers", servers):
        problems.append(problem)
    elif profile == "custom" and not servers:
        problems.append(fault("dns-servers", "dns-servers-needed", profile="dns-profile"))
    if problems:
        return NodeSettings(), [problem.inside(FIELD) for problem in problems]
    settings = NodeSettings(
        interface_name=interface,
        dialer_proxy=relay,
        dns_profile=profile,
        dns_servers=tuple(servers),
    )
    return settings, []
