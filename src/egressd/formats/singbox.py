"""sing-box outbounds (https://sing-box.sagernet.org/configuration/outbound/) as nodes.

The readers remove the fields of an outbound one by one. A field that is left at the end has no
effect. It is reported, and refused where it would change the bytes that are sent or the peers that
are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from egressd.formats.amounts import duration_ms
from egressd.formats.engine_limits import refusal_of
from egressd.formats.entries import PROTOCOLS
from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.rows import Unreadable
from egressd.formats.scalars import Scalar, is_absent, is_off, text_of, to_json
from egressd.formats.share_links.plugin import plugin_fields, plugin_of
from egressd.formats.share_links.uri import from_base64

NOT_NODES: Final = ("selector", "urltest", "direct", "block", "dns")
"""Types of outbounds that are not nodes."""

Fields = dict[str, Any]

_PROTOCOL_OF: Final = {"socks": "socks5", "shadowsocks": "ss"}
_WITHOUT_LAYERS: Final = ("socks5", "ss", "ssh", "wireguard")
_NESTED: Final = ("tls", "transport", "utls", "reality", "ech", "obfs")
_FIELD_OF: Final = {
    "port": "server_port",
    "servername": "tls.server_name",
    "alpn": "tls.alpn",
    "skip-cert-verify": "tls.insecure",
    "client-fingerprint": "tls.utls.fingerprint",
    "reality-opts.public-key": "tls.reality.public_key",
    "reality-opts.short-id": "tls.reality.short_id",
    "ech-opts.config": "tls.ech.config",
    "grpc-opts.grpc-service-name": "transport.service_name",
    "hop-interval": "hop_interval",
    "private-key": "private_key",
    "public-key": "peers[0].public_key",
    "ip": "address",
    "private-key-passphrase": "private_key_passphrase",
    "host-key": "host_key",
    "host-key-algorithms": "host_key_algorithms",
    "network": "transport.type",
}
"""Clash's field -> its path in an outbound."""
_IP_VERSIONS: Final = {
    "ipv4_only": "ipv4",
    "ipv6_only": "ipv6",
    "prefer_ipv4": "ipv4-prefer",
    "prefer_ipv6": "ipv6-prefer",
}


def outbound_node(outbound: Mapping[str, Any]) -> ParsedNode:
    """Return the node that an outbound describes. Its tag is its name. Raises Unreadable."""
    left = dict(outbound)
    kind = text_of(left.pop("type", None)).lower()
    protocol = _PROTOCOL_OF.get(kind, kind)
    name = text_of(left.pop("tag", None))
    if protocol not in PROTOCOLS:
        return ParsedNode(protocol, {}, name)
    config: Fields = {}
    _move(left, config, {"server": "server", "server_port": "port"})
    _READERS[protocol](left, config)
    _read_dialling(left, config, protocol)
    if protocol in _WITHOUT_LAYERS and not (is_off(left.get("tls")) and "transport" not in left):
        raise Unreadable("tls and transport must not be given: the engine has none here")
    kinds = PROTOCOLS[protocol].table.keys
    config = {key: to_json(value, kinds.get(key)) for key, value in config.items()}
    notes = []
    for path, value in _leaves(left):
        if reason := refusal_of(path, value):
            raise Unreadable(f"{path} must not be given: {reason}")
        if not is_off(value):
            notes.append(no_effect(path))
    return ParsedNode(protocol, config, name, tuple(notes), _FIELD_OF)


def sip008_node(server: Mapping[str, Any]) -> ParsedNode:
    """Return the node of a server of a SIP008 list (https://shadowsocks.org/doc/sip008.html).

    Raises Unreadable.
    """
    other = {"type": "shadowsocks", "tag": server.get("remarks")}
    names = ("server", "server_port", "method", "password", "plugin", "plugin_opts")
    left = {key: value for key, value in server.items() if key not in ("id", "remarks")}
    return outbound_node({**other, **{key: left.pop(key, None) for key in names}, **left})


def _move(left: Fields, config: Fields, names: Mapping[str, str]) -> None:
    """Move fields of an outbound to Clash's names for them."""
    for name, key in names.items():
        value = left.pop(name, None)
        if not is_absent(value):
            config[key] = value


def _object(left: Fields, name: str) -> Fields:
    """Return an object of an outbound, for the caller to remove fields from. The rest stays in
    `left`.

    An object that is switched off is removed, and an empty one is returned.
    """
    value = left.get(name)
    if not isinstance(value, dict) or ("enabled" in value and is_off(value)):
        left.pop(name, None)
        return {}
    inner: Fields = dict(value)
    inner.pop("enabled", None)
    left[name] = inner
    return inner


def _leaves(left: Mapping[str, Any], place: str = "") -> list[tuple[str, Any]]:
    """Return the paths and values that are left. An object that is off asks for nothing."""
    found: list[tuple[str, Any]] = []
    for key, value in left.items():
        if isinstance(value, dict) and key in _NESTED:
            found += _leaves(value, f"{place}{key}.")
        else:
            found.append((place + key, value))
    return found


def _read_dialling(left: Fields, config: Fields, protocol: str) -> None:
    """Read the dial fields: UDP and the IP version. ``network`` lists all that the outbound may
    carry.
    """
    network = left.pop("network", None)
    words = [text_of(word) for word in (network if isinstance(network, list) else [network])]
    carried = {word for text in words for word in text.split(",") if word}
    if protocol == "socks5":
        config["udp"] = not carried or "udp" in carried
    elif carried == {"tcp"}:
        config["udp"] = False
    strategy = text_of(left.pop("domain_strategy", None))
    if strategy in _IP_VERSIONS:
        config["ip-version"] = _IP_VERSIONS[strategy]


def _read_tls(left: Fields, config: Fields, *, always: bool = False) -> None:
    if not always and is_off(left.get("tls")):
        left.pop("tls", None)
        return
    if not always:
        config["tls"] = True
    tls = _object(left, "tls")
    names = {"server_name": "servername", "insecure": "skip-cert-verify", "alpn": "alpn"}
    _move(tls, config, names)
    if isinstance(config.get("alpn"), str):
        config["alpn"] = [config["alpn"]]
    if not is_off(tls.get("disable_sni")):
        raise Unreadable("tls.disable_sni must be false: the engine takes it for TUIC only")
    if "utls" in tls and (utls := _object(tls, "utls")):
        config["client-fingerprint"] = utls.pop("fingerprint", None) or "chrome"
    if reality := _object(tls, "reality"):
        options: Fields = {}
        _move(reality, options, {"public_key": "public-key", "short_id": "short-id"})
        config["reality-opts"] = options
    if "ech" in tls and not is_off(tls["ech"]):
        config["ech-opts"] = {"enable": True, **_ech_config(_object(tls, "ech"))}


def _ech_config(ech: Fields) -> Fields:
    made: Fields = {}
    lines = ech.pop("config", None)
    words = [text_of(line) for line in (lines if isinstance(lines, list) else [lines])]
    parts = [line.strip() for text in words for line in text.splitlines()]
    pem = "".join(part for part in parts if not part.startswith("-----"))
    if pem:
        made["config"] = pem
    _move(ech, made, {"query_server_name": "query-server-name"})
    return made


def _read_transport(left: Fields, config: Fields) -> None:
    transport = _object(left, "transport")
    kind = text_of(transport.pop("type", None)).lower()
    if not kind:
        return
    options: Fields = {}
    match kind:
        case "ws":
            _move(
                transport,
                options,
                {
                    "path": "path",
                    "headers": "headers",
                    "max_early_data": "max-early-data",
                    "early_data_header_name": "early-data-header-name",
                },
            )
            config |= {"network": "ws", "ws-opts": options}
        case "httpupgrade":
            _move(transport, options, {"path": "path", "headers": "headers"})
            if host := text_of(transport.pop("host", None)):
                options["headers"] = {**options.get("headers", {}), "Host": host}
            config |= {"network": "httpupgrade", "ws-opts": options}
        case "grpc":
            _move(transport, options, {"service_name": "grpc-service-name"})
            config |= {"network": "grpc", "grpc-opts": options}
        case "http" if config.get("tls"):
            _move(transport, options, {"path": "path", "host": "host"})
            if isinstance(options.get("host"), str):
                options["host"] = [options["host"]]
            config |= {"network": "h2", "h2-opts": options}
        case "http":
            _move(transport, options, {"path": "path", "headers": "headers", "method": "method"})
            hosts = transport.pop("host", None)
            if not is_absent(hosts):
                options["headers"] = {**options.get("headers", {}), "Host": hosts}
            config |= {"network": "http", "http-opts": options}
        case _:
            config["network"] = kind  # the field's check refuses it by name


def _stream(left: Fields, config: Fields) -> None:
    """Read TLS, the transport and the packing of UDP, which VMess and VLESS share."""
    _read_tls(left, config)
    _read_transport(left, config)
    if "packet_encoding" in left:
        # Without an encoding the engine packs nothing for VMess, and xudp for VLESS.
        word = left.pop("packet_encoding")
        config["packet-encoding"] = "none" if is_absent(word) else word


def _vmess(left: Fields, config: Fields) -> None:
    names = {"uuid": "uuid", "security": "cipher", "alter_id": "alterId"}
    names |= {"global_padding": "global-padding", "authenticated_length": "authenticated-length"}
    _move(left, config, names)
    left.setdefault("packet_encoding", None)
    _stream(left, config)


def _vless(left: Fields, config: Fields) -> None:
    _move(left, config, {"uuid": "uuid", "flow": "flow", "encryption": "encryption"})
    _stream(left, config)


def _trojan(left: Fields, config: Fields) -> None:
    _move(left, config, {"password": "password"})
    if is_off(left.get("tls")):
        raise Unreadable("tls.enabled must be true: Trojan goes over TLS")
    _read_tls(left, config, always=True)
    _read_transport(left, config)


def _anytls(left: Fields, config: Fields) -> None:
    _move(left, config, {"password": "password", "min_idle_session": "min-idle-session"})
    for name in ("idle_session_check_interval", "idle_session_timeout"):
        _move_duration(left, config, name, name.replace("_", "-"), unit=1)
    _read_tls(left, config, always=True)


def _socks(left: Fields, config: Fields) -> None:
    _move(left, config, {"username": "username", "password": "password"})
    if text_of(left.pop("version", None)) not in ("", "5"):
        raise Unreadable("version must be 5: the engine speaks SOCKS5")
    if not is_off(left.pop("udp_over_tcp", None)):
        raise Unreadable("udp_over_tcp must be false: it is spoken to Shadowsocks nodes only")


def _http(left: Fields, config: Fields) -> None:
    _move(left, config, {"username": "username", "password": "password", "headers": "headers"})
    if text_of(left.pop("path", None)) not in ("", "/"):
        raise Unreadable("path must not be given: the engine takes none")
    _read_tls(left, config)


def _ss(left: Fields, config: Fields) -> None:
    _move(left, config, {"method": "cipher", "password": "password"})
    plugin = text_of(left.pop("plugin", None))
    options = text_of(left.pop("plugin_opts", None))
    if plugin:
        _, given = plugin_of(f"{plugin};{options}")
        config |= plugin_fields(plugin, given)
    over_tcp = left.pop("udp_over_tcp", None)
    version = over_tcp.get("version", 2) if isinstance(over_tcp, dict) else 2
    if not is_off(over_tcp):
        config |= {"udp-over-tcp": True, "udp-over-tcp-version": version}


def _ports(left: Fields, config: Fields) -> None:
    ports = left.pop("server_ports", None)
    if not is_off(ports):
        listed = ports if isinstance(ports, list) else [ports]
        config["ports"] = ",".join(_said(port) for port in listed)


def _hysteria(left: Fields, config: Fields) -> None:
    names = {"auth_str": "auth-str", "obfs": "obfs", "up_mbps": "up", "down_mbps": "down"}
    _move(left, config, names)
    _move(left, config, {"up": "up", "down": "down"})
    if encoded := text_of(left.pop("auth", None)):
        if (password := from_base64(encoded)) is None:
            raise Unreadable("auth must be a text in base64")
        config["auth-str"] = password
    _ports(left, config)
    _move_duration(left, config, "hop_interval", "hop-interval", unit=1)
    _read_tls(left, config, always=True)


def _hysteria2(left: Fields, config: Fields) -> None:
    _move(left, config, {"password": "password", "up_mbps": "up", "down_mbps": "down"})
    _ports(left, config)
    least, most = (text_of(left.pop(key, None)) for key in ("hop_interval", "hop_interval_max"))
    if least:
        config["hop-interval"] = f"{least}-{most}" if most else least
    obfs = _object(left, "obfs")
    if is_off(obfs.get("type")):
        left.pop("obfs", None)
    _move(obfs, config, {"type": "obfs", "password": "obfs-password"})
    _read_tls(left, config, always=True)


def _tuic(left: Fields, config: Fields) -> None:
    _move(
        left,
        config,
        {
            "uuid": "uuid",
            "password": "password",
            "congestion_control": "congestion-controller",
            "udp_relay_mode": "udp-relay-mode",
            "udp_over_stream": "udp-over-stream",
            "zero_rtt_handshake": "reduce-rtt",
        },
    )
    _move_duration(left, config, "heartbeat", "heartbeat-interval", unit=1000)
    if "tls" in left:
        _move(_object(left, "tls"), config, {"disable_sni": "disable-sni"})
    _read_tls(left, config, always=True)


def _ssh(left: Fields, config: Fields) -> None:
    names = {"user": "username", "password": "password", "private_key": "private-key"}
    names |= {"private_key_passphrase": "private-key-passphrase", "host_key": "host-key"}
    _move(left, config, {**names, "host_key_algorithms": "host-key-algorithms"})


def _wireguard(left: Fields, config: Fields) -> None:
    """Read an endpoint, or the outbound that older versions had, whose peer stands in it."""
    _move(left, config, {"private_key": "private-key", "mtu": "mtu"})
    addresses = left.pop("address", None) or left.pop("local_address", None)
    listed = addresses if isinstance(addresses, list) else [addresses]
    inner = [text for each in listed if (text := text_of(each)) and ":" not in text]
    if inner:
        config["ip"] = inner[0]
    peers = left.pop("peers", None)
    if isinstance(peers, list) and peers:
        if len(peers) != 1 or not isinstance(peers[0], dict):
            raise Unreadable("peers must have one peer: a node has one server")
        peer = dict(peers[0])
        _move(peer, config, {"address": "server", "port": "port"})
        _move(peer, config, {"server": "server", "server_port": "port"})
    else:
        peer = left
        _move(peer, config, {"peer_public_key": "public-key"})
    names = {"public_key": "public-key", "pre_shared_key": "pre-shared-key"}
    names |= {"allowed_ips": "allowed-ips", "reserved": "reserved"}
    _move(peer, config, names | {"persistent_keepalive_interval": "persistent-keepalive"})
    for name in ("system", "system_interface"):  # the engine's own stack carries the same
        left.pop(name, None)
    if peer is not left:
        left |= {f"peers[0].{name}": value for name, value in peer.items()}


def _said(value: Any) -> str:
    return value.text if isinstance(value, Scalar) else str(value)


def _move_duration(left: Fields, config: Fields, name: str, key: str, *, unit: int) -> None:
    """Move a duration (``30s``) to a number of `unit` per second."""
    text = text_of(left.pop(name, None))
    duration = duration_ms(text)
    if duration is not None:
        config[key] = duration * unit // 1000
    elif text:
        config[key] = text  # the field's check refuses it


_READERS: Final[Mapping[str, Callable[[Fields, Fields], None]]] = {
    "socks5": _socks,
    "http": _http,
    "ss": _ss,
    "vmess": _vmess,
    "vless": _vless,
    "trojan": _trojan,
    "hysteria": _hysteria,
    "hysteria2": _hysteria2,
    "tuic": _tuic,
    "anytls": _anytls,
    "ssh": _ssh,
    "wireguard": _wireguard,
}
