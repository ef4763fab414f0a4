"""``hysteria2://`` (``hy2://``) and ``tuic://`` links.

Hysteria2: https://v2.hysteria.network/docs/developers/URI-Scheme/. TUIC has no standard; this is
the form that programs write (https://github.com/daeuniverse/dae/discussions/182).
"""

from __future__ import annotations

from typing import Any

from egressd.formats.config_json import NodeConfig
from egressd.formats.node_draft import ParsedNode
from egressd.formats.share_links.layers import is_true, read_tls, read_udp, write_tls, write_udp
from egressd.formats.share_links.uri import (
    decoded,
    encoded,
    link_to,
    port_or,
    split,
    user_and_password,
)


def read_hysteria2(link: str) -> ParsedNode:
    """``hysteria2://auth@host:port/?…``; the port may be a list, and 443 when there is none."""
    uri = split(link)
    config: dict[str, Any] = {"server": uri.host}
    ports = uri.text("mport") or (uri.port if set(uri.port) & set(",-") else "")
    if ports:
        config["ports"] = ports
    else:
        config["port"] = port_or(uri.port, 443)
    if uri.user:
        config["password"] = decoded(uri.user)
    for key in ("obfs", "obfs-password", "up", "down"):
        if value := uri.text(key):
            config[key] = value
    if config.get("obfs") == "none":
        del config["obfs"]
    config |= read_tls(uri.query, name_key="sni")
    return ParsedNode("hysteria2", config | read_udp(uri.query), uri.name)


def write_hysteria2(config: NodeConfig, name: str) -> str:
    """The node as a ``hysteria2://`` link."""
    fields = config.fields
    query = write_tls(fields, insecure="insecure") | write_udp(fields)
    for key in ("obfs", "obfs-password", "up", "down"):
        if key in fields:
            query[key] = str(fields[key])
    user = encoded(fields.get("password", ""))
    return link_to("hysteria2", user, fields, query, name)


_TUIC_WORDS = {
    "congestion_control": "congestion-controller",
    "udp_relay_mode": "udp-relay-mode",
}
_TUIC_SWITCHES = {
    "disable_sni": "disable-sni",
    "reduce_rtt": "reduce-rtt",
    "udp_over_stream": "udp-over-stream",
}


def read_tuic(link: str) -> ParsedNode:
    """``tuic://uuid:password@host:port?…``"""
    uri = split(link)
    uuid, password = user_and_password(uri.user)
    config: dict[str, Any] = {
        "server": uri.host,
        "port": port_or(uri.port),
        "uuid": uuid,
        "password": password,
        **read_tls(uri.query, name_key="sni"),
        **read_udp(uri.query),
    }
    for parameter, key in _TUIC_WORDS.items():
        if value := uri.text(parameter):
            config[key] = value
    for parameter, key in _TUIC_SWITCHES.items():
        if is_true(uri.text(parameter)):
            config[key] = True
    return ParsedNode("tuic", config, uri.name)


def write_tuic(config: NodeConfig, name: str) -> str:
    """The node as a ``tuic://`` link."""
    fields = config.fields
    query = write_tls(fields, insecure="allow_insecure") | write_udp(fields)
    query |= {parameter: fields.get(key, "") for parameter, key in _TUIC_WORDS.items()}
    switched_on = (parameter for parameter, key in _TUIC_SWITCHES.items() if fields.get(key, False))
    query |= dict.fromkeys(switched_on, "1")
    user = f"{fields['uuid']}:{encoded(fields['password'])}"
    return link_to("tuic", user, fields, query, name)
