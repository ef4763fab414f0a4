"""``hysteria://``, ``hysteria2://`` (``hy2://``) and ``tuic://`` links.

Hysteria2: https://v2.hysteria.network/docs/developers/URI-Scheme/. TUIC has no standard; this is
the form that programs write (https://github.com/daeuniverse/dae/discussions/182).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from egressd.formats.amounts import duration_ms, port_ranges, rate_mbps
from egressd.formats.config_json import NodeConfig
from egressd.formats.json_text import read_object
from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.rows import Unreadable
from egressd.formats.share_links.layers import (
    PARAMETER_OF,
    needs_no_reality,
    needs_plain_tcp,
    read_tls,
    read_udp,
    write_tls,
    write_udp,
)
from egressd.formats.share_links.parameters import Parameters
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import (
    decoded,
    encoded,
    link_to,
    number_or,
    split,
    user_and_password,
)
from egressd.model.errors import Invalid
from egressd.model.wording import Sentence

_RATES: Final = {"up": ("up", "upmbps"), "down": ("down", "downmbps")}
"""Field -> the parameters that name it."""
_XPLUS: Final = "xplus"
"""The word of Hysteria's links for its only obfuscation."""
_HYSTERIA_WORDS: Final = {
    **PARAMETER_OF,
    "auth-str": "auth",
    "up": "upmbps",
    "down": "downmbps",
    "sni": "peer",
    "servername": "peer",
}


def read_hysteria2(link: str) -> ParsedNode:
    """Read ``hysteria2://auth@host:port/?…``. The port may be a list; it is 443 when there is none.

    Raises Unreadable.
    """
    uri = split(link)
    query = uri.query
    config: dict[str, Any] = {"server": uri.host}
    listed = uri.port if set(uri.port) & set(",-;") else ""
    ports = query.get("mport", "ports", "server_ports") or listed
    if ports:
        config["ports"] = ports
    else:
        config["port"] = number_or(uri.port, 443)
    if password := decoded(uri.user) or query.get("auth", "password"):
        config["password"] = password
    if query.get("obfs").lower() not in ("", "none"):
        config["obfs"] = query.get("obfs")
        config["obfs-password"] = query.get("obfs-password", "obfsParam")
    for field, names in _RATES.items():
        if value := query.get(*names):
            config[field] = value
    if interval := query.get("hop-interval", "mportHopInt"):
        config["hop-interval"] = interval
    notes: list[Sentence] = []
    _read_masks(query, config, notes)
    _needs_tls(query)
    config |= read_tls(query, name_key="sni")
    return node_of("hysteria2", config | read_udp(query), uri, notes)


def write_hysteria2(config: NodeConfig, name: str) -> str:
    """Return the node as a ``hysteria2://`` link.

    A list of ports is written to ``mport``, and its first port in the usual place, where v2rayN and
    mihomo read no list.
    """
    fields = config.fields
    query = write_tls(fields, insecure="insecure") | write_udp(fields)
    query |= {
        key: str(fields[key])
        for key in ("obfs", "obfs-password", "up", "down", "hop-interval")
        if key in fields
    }
    if "ports" in fields:
        query["mport"] = fields["ports"]
        fields = fields | {"port": port_ranges(fields["ports"])[0][0]}
    user = encoded(fields.get("password", ""))
    return link_to("hysteria2", user, fields, query, name)


def read_hysteria(link: str) -> ParsedNode:
    """Read ``hysteria://host:port?auth=…&upmbps=…``, whose port is 443 when there is none.

    https://hysteria.network/docs/uri-scheme/. Raises Unreadable.
    """
    uri = split(link)
    query = uri.query
    config: dict[str, Any] = {"server": uri.host}
    listed = uri.port if set(uri.port) & set(",-;") else ""
    if ports := query.get("mport", "ports", "server_ports") or listed:
        config["ports"] = ports
    else:
        config["port"] = number_or(uri.port, 443)
    # A mode names the one obfuscation; without, the parameter is the password.
    password, mode = query.get("obfsParam", "obfs-password"), query.get("obfs")
    if not password and mode.lower() not in ("", "none", _XPLUS):
        password = mode
    elif password and mode.lower() not in ("", _XPLUS):
        raise Unreadable(f"obfs must be {_XPLUS} when obfsParam is given")
    given = {
        "auth-str": query.get("auth", "auth_str", "authString") or decoded(uri.user),
        "obfs": password,
        "protocol": query.get("protocol"),
        "hop-interval": number_or(query.get("hop-interval", "mportHopInt")),
        **{field: query.get(*names) for field, names in _RATES.items()},
    }
    config |= {key: value for key, value in given.items() if value}
    _needs_tls(query)
    config |= read_tls(query, name_key="sni")
    return node_of("hysteria", config | read_udp(query), uri, words=_HYSTERIA_WORDS)


def write_hysteria(config: NodeConfig, name: str) -> str:
    """Return the node as a ``hysteria://`` link. Ports are written as those of Hysteria2."""
    fields = config.fields
    query = {
        "protocol": "udp",
        "auth": fields.get("auth-str", ""),
        **{f"{key}mbps": str(rate_mbps(fields[key])) for key in _RATES},
        **({"obfs": _XPLUS, "obfsParam": fields["obfs"]} if "obfs" in fields else {}),
        "hop-interval": str(fields.get("hop-interval", "")),
    }
    tls = write_tls(fields, insecure="insecure")
    tls["peer"] = tls.pop("sni", "")
    if "ports" in fields:
        query["mport"] = fields["ports"]
        fields = fields | {"port": port_ranges(fields["ports"])[0][0]}
    return link_to("hysteria", "", fields, query | tls | write_udp(fields), name)


def _needs_tls(query: Parameters) -> None:
    """Refuse a link for anything but TLS over UDP. Raises Unreadable."""
    if query.get("security").lower() not in ("", "tls", "none"):
        raise Unreadable("security must be tls: the engine has no other over QUIC")
    needs_no_reality(query)
    needs_plain_tcp(query)


def _read_masks(query: Parameters, config: dict[str, Any], notes: list[Sentence]) -> None:
    """Read Xray's ``fm`` if its only mask is salamander. Raises Unreadable for others.

    https://xtls.github.io/en/config/transports/finalmask.html
    """
    text = query.get("fm")
    if not text:
        return
    given: dict[str, Any] = {}
    with suppress(Invalid):
        given = read_object(text, "fm")
    match given:
        case {"udp": [{"type": "salamander", "settings": {"password": str(password), **other}}]}:
            is_fine = not other and config.get("obfs-password", password) == password
        case _:
            is_fine = False
    if not is_fine or any(given[key] for key in given.keys() - {"udp", "quicParams"}):
        raise Unreadable("the link must not have fm: the engine has no such masks")
    config |= {"obfs": "salamander", "obfs-password": password}
    quic = given.get("quicParams")
    for key, value in (quic if isinstance(quic, dict) else {}).items():
        match key, value:
            case ("udpHop", {"ports": str(ports) | int(ports), **other}):
                config.pop("port", None)
                config.setdefault("ports", str(ports))
                if interval := other.get("interval"):
                    config.setdefault("hop-interval", str(interval))
            case ("brutalUp" | "brutalDown", str() | int()):
                config.setdefault(key.removeprefix("brutal").lower(), str(value))
            case _:
                notes.append(no_effect(f"fm.quicParams.{key}"))


# --- TUIC. ----------------------------------------------------------------------------------

_TUIC_WORDS: Final = {
    "congestion-controller": ("congestion_control", "congestion_controller", "congestion"),
    "udp-relay-mode": ("udp_relay_mode",),
    "heartbeat-interval": ("heartbeat_interval",),
}
"""Field -> the parameters that name it. The first of them is written."""
_TUIC_SWITCHES: Final = {
    "disable-sni": ("disable_sni",),
    "reduce-rtt": ("reduce_rtt", "zero_rtt_handshake"),
    "udp-over-stream": ("udp_over_stream",),
}
"""Switch -> parameters, like `_TUIC_WORDS`."""


def read_tuic(link: str) -> ParsedNode:
    """Read ``tuic://uuid:password@host:port?…``, whose port is 443 when there is none.

    Shadowrocket has user and password among the parameters. Raises Unreadable.
    """
    uri = split(link)
    query = uri.query
    uuid, password = user_and_password(uri.user)
    if query.get("version") not in ("", "5"):
        raise Unreadable("version must be 5")
    if query.get("token"):
        raise Unreadable("token must not be given: TUIC is spoken in version 5")
    _needs_tls(query)
    config: dict[str, Any] = {
        "server": uri.host,
        "port": number_or(uri.port, 443),
        "uuid": uuid or query.get("uuid"),
        "password": password or query.get("password"),
        **read_tls(query, name_key="sni"),
        **read_udp(query),
    }
    for key, names in _TUIC_WORDS.items():
        if value := query.get(*names):
            config[key] = number_or(value) if key == "heartbeat-interval" else value
    if (heartbeat := duration_ms(query.get("heartbeat"))) is not None:
        config.setdefault("heartbeat-interval", heartbeat)
    config |= {key: True for key, names in _TUIC_SWITCHES.items() if query.is_on(*names)}
    return node_of("tuic", config, uri)


def write_tuic(config: NodeConfig, name: str) -> str:
    """Return the node as a ``tuic://`` link."""
    fields = config.fields
    query = write_tls(fields, insecure="allow_insecure") | write_udp(fields)
    query |= {names[0]: str(fields.get(key, "")) for key, names in _TUIC_WORDS.items()}
    query |= {names[0]: "1" for key, names in _TUIC_SWITCHES.items() if fields.get(key, False)}
    user = f"{fields['uuid']}:{encoded(fields['password'])}"
    return link_to("tuic", user, fields, query, name)
