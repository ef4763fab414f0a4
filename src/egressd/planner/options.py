"""An outbound of the model as sing-box 1.14's own options.

The caller adds the tag and the dial fields (mark, detour, resolver). Every key that the engine may
get is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from egressd.model.outbounds import (
    AnyTls,
    Ech,
    Grpc,
    HttpProxy,
    HttpStream,
    HttpUpgrade,
    Hysteria,
    Hysteria2,
    Obfs,
    Outbound,
    Reality,
    Shadowsocks,
    ShadowTls,
    Socks5,
    Ssh,
    Tls,
    Transport,
    Trojan,
    Tuic,
    V2rayPlugin,
    VLess,
    VMess,
    WebSocket,
    WireGuard,
)

Options = dict[str, Any]


def options_of(made: Outbound) -> Options:
    """Return the options of an outbound without its tag and dial fields. Those of WireGuard are of
    an endpoint, which has a list of its own in a document (`ENDPOINTS`).
    """
    options = _protocol(made)
    if isinstance(made, WireGuard):
        return options
    options["server"] = made.server
    if made.server_port:
        options["server_port"] = made.server_port
    # HTTP, AnyTLS and SSH have no such option.
    if not made.udp and not isinstance(made, HttpProxy | AnyTls | Ssh):
        options["network"] = "tcp"
    return options


def carrier_of(made: Outbound) -> Options | None:
    """Return the options of the outbound that this one dials through for its own protocol, without
    its tag and dial fields: a layer that the engine has as an outbound. None if there is none.
    """
    if not isinstance(made, Shadowsocks) or not isinstance(made.plugin, ShadowTls):
        return None
    layer = made.plugin
    tls = _tls(Tls(server_name=layer.host, alpn=layer.alpn, fingerprint=layer.fingerprint))
    if layer.version < 3:
        # With TLS 1.3 the host's session tickets come between: a third of the connections fail.
        tls["max_version"] = "1.2"
    return {
        "type": "shadowtls",
        "server": made.server,
        "server_port": made.server_port,
        "version": layer.version,
        **_given(layer, "password"),
        "tls": tls,
    }


ENDPOINTS: Final = frozenset({"wireguard"})
"""The types of options that are of an endpoint."""


def ech_name(made: Outbound) -> str:
    """Return the name whose HTTPS record the engine requests (RFC 9848) before it connects to the
    server; empty if it requests none.
    """
    layer = _tls_of(made)
    if layer is None or layer.ech is None or layer.ech.config:
        return ""
    return layer.ech.query_server_name or layer.server_name or made.server


def shares_a_connection(made: Outbound) -> bool:
    """True if all clients of the node share one connection: by SSH, over gRPC, and over HTTP/2,
    which the engine's ``http`` uses within TLS.
    """
    if isinstance(made, Ssh):
        return True
    match _transport_of(made):
        case Grpc():
            return True
        case HttpStream():
            return _tls_of(made) is not None
        case _:
            return False


def _tls_of(made: Outbound) -> Tls | None:
    return None if isinstance(made, Socks5 | Shadowsocks | Ssh | WireGuard) else made.tls


def _transport_of(made: Outbound) -> Transport | None:
    return made.transport if isinstance(made, VMess | VLess | Trojan) else None


def _protocol(made: Outbound) -> Options:
    match made:
        case Socks5():
            return {"type": "socks", "version": "5", **_credentials(made)}
        case HttpProxy():
            headers = {"headers": dict(made.headers)} if made.headers else {}
            return {"type": "http", **_credentials(made), **_layers(made.tls), **headers}
        case Shadowsocks():
            return {
                "type": "shadowsocks",
                "method": made.method,
                "password": made.password,
                **_plugin(made.plugin),
                **(
                    {"udp_over_tcp": {"enabled": True, "version": made.udp_over_tcp}}
                    if made.udp_over_tcp
                    else {}
                ),
            }
        case VMess():
            return {
                "type": "vmess",
                "uuid": made.uuid,
                "alter_id": made.alter_id,
                "security": made.security,
                "packet_encoding": made.packet_encoding,
                **_given(made, "global_padding", "authenticated_length"),
                **_layers(made.tls, made.transport),
            }
        case VLess():
            return {
                "type": "vless",
                "uuid": made.uuid,
                "flow": made.flow,
                "packet_encoding": made.packet_encoding,
                **_layers(made.tls, made.transport),
            }
        case Trojan():
            layers = _layers(made.tls, made.transport)
            return {"type": "trojan", "password": made.password, **layers}
        case Hysteria():
            return _hysteria(made)
        case Hysteria2():
            return _hysteria2(made)
        case Tuic():
            return {
                "type": "tuic",
                "uuid": made.uuid,
                "password": made.password,
                **_given(
                    made,
                    "congestion_control",
                    "udp_relay_mode",
                    "udp_over_stream",
                    "zero_rtt_handshake",
                ),
                **({"heartbeat": f"{made.heartbeat_ms}ms"} if made.heartbeat_ms else {}),
                **_layers(made.tls),
            }
        case AnyTls():
            return _anytls(made)
        case Ssh():
            return _ssh(made)
        case WireGuard():
            return _wireguard(made)


def _hysteria(made: Hysteria) -> Options:
    options: Options = {
        "type": "hysteria",
        **_given(made, "obfs", "up_mbps", "down_mbps"),
        **_layers(made.tls),
        **_hopping(made),
    }
    if made.password:
        options["auth_str"] = made.password
    return options


def _hopping(made: Hysteria | Hysteria2) -> Options:
    options: Options = {}
    if made.server_ports:
        options["server_ports"] = [f"{low}:{high}" for low, high in made.server_ports]
    if made.hop_interval_s:
        options["hop_interval"] = f"{made.hop_interval_s}s"
    return options


def _hysteria2(made: Hysteria2) -> Options:
    options = {
        "type": "hysteria2",
        **_given(made, "password", "up_mbps", "down_mbps"),
        **_layers(made.tls),
        **_hopping(made),
    }
    if made.salamander:
        options["obfs"] = {"type": "salamander", "password": made.salamander}
    if made.hop_interval_max_s:
        options["hop_interval_max"] = f"{made.hop_interval_max_s}s"
    return options


def _anytls(made: AnyTls) -> Options:
    options = {"type": "anytls", "password": made.password, **_layers(made.tls)}
    for field in ("idle_session_check_interval", "idle_session_timeout"):
        if seconds := getattr(made, f"{field}_s"):
            options[field] = f"{seconds}s"
    return options | _given(made, "min_idle_session")


def _ssh(made: Ssh) -> Options:
    options: Options = {"type": "ssh", **_given(made, "password")}
    if made.username:
        options["user"] = made.username
    if made.private_key:
        options["private_key"] = list(made.private_key)
    if made.passphrase:
        options["private_key_passphrase"] = made.passphrase
    if made.host_keys:
        options["host_key"] = list(made.host_keys)
    if made.host_key_algorithms:
        options["host_key_algorithms"] = list(made.host_key_algorithms)
    return options


def _wireguard(made: WireGuard) -> Options:
    peer: Options = {
        "address": made.server,
        "port": made.server_port,
        "public_key": made.public_key,
        "allowed_ips": list(made.allowed_ips),
        **_given(made, "pre_shared_key"),
    }
    if made.reserved:
        peer["reserved"] = list(made.reserved)
    if made.keepalive_s:
        peer["persistent_keepalive_interval"] = made.keepalive_s
    return {
        "type": "wireguard",
        "system": False,
        "mtu": made.mtu,
        "address": [f"{made.address}/32"],
        "private_key": made.private_key,
        "peers": [peer],
    }


def _given(made: object, *fields: str) -> Options:
    """Return those of `fields` that are not empty; the engine uses the same names."""
    return {field: value for field in fields if (value := getattr(made, field))}


def _credentials(made: Socks5 | HttpProxy) -> Options:
    return _given(made, "username", "password")


# --- TLS: https://sing-box.sagernet.org/configuration/shared/tls/ ---------------------------


def _layers(layer: Tls | None, transport: Transport | None = None) -> Options:
    layers: Options = {}
    if layer is not None:
        layers["tls"] = _tls(layer)
    if transport is not None:
        layers["transport"] = _transport(transport)
    return layers


def _tls(layer: Tls) -> Options:
    options = {"enabled": True, **_given(layer, "server_name", "disable_sni", "insecure")}
    if layer.alpn:
        options["alpn"] = list(layer.alpn)
    if layer.reality is not None:
        options["reality"] = _reality(layer.reality)
    if layer.fingerprint is not None:
        options["utls"] = {"enabled": True, "fingerprint": layer.fingerprint}
    if layer.ech is not None:
        options["ech"] = _ech(layer.ech)
    return options


def _reality(reality: Reality) -> Options:
    return {"enabled": True, "public_key": reality.public_key, "short_id": reality.short_id}


def _ech(ech: Ech) -> Options:
    """Return the ECH options. Without a configuration the engine asks the DNS for one."""
    options = {"enabled": True, **_given(ech, "query_server_name")}
    if ech.config:
        begin, end = (f"-----{word} ECH CONFIGS-----" for word in ("BEGIN", "END"))
        options["config"] = [begin, ech.config, end]
    return options


# --- Transports: https://sing-box.sagernet.org/configuration/shared/v2ray-transport/ ---------


def _transport(made: Transport) -> Options:
    match made:
        case WebSocket():
            return {
                "type": "ws",
                "path": made.path,
                "headers": dict(made.headers),
                **_given(made, "max_early_data", "early_data_header_name"),
            }
        case HttpUpgrade():
            return {
                "type": "httpupgrade",
                "path": made.path,
                "headers": dict(made.headers),
                **_given(made, "host"),
            }
        case Grpc():
            return {"type": "grpc", "service_name": made.service_name}
        case HttpStream():
            headers = {name: list(values) for name, values in made.headers}
            return {
                "type": "http",
                "path": made.path,
                "host": list(made.host),
                **_given(made, "method"),
                **({"headers": headers} if headers else {}),
            }


# --- Plugins of Shadowsocks (SIP003). --------------------------------------------------------


def _plugin(plugin: Obfs | V2rayPlugin | ShadowTls | None) -> Options:
    match plugin:
        case Obfs():
            given = {"obfs": plugin.mode, "obfs-host": plugin.host}
            return {"plugin": "obfs-local", "plugin_opts": _options_text(given)}
        case V2rayPlugin():
            given = {
                "mode": "websocket",
                "host": plugin.host,
                "path": plugin.path,
                "mux": "1" if plugin.mux else "0",
                **({"tls": ""} if plugin.tls else {}),
            }
            return {"plugin": "v2ray-plugin", "plugin_opts": _options_text(given)}
        case ShadowTls() | None:  # the former is an outbound: see `carrier_of`
            return {}


def _options_text(options: Mapping[str, str]) -> str:
    """Return SIP003's option text: ``;``, ``=`` and backslash are escaped by a backslash."""
    return ";".join(f"{key}={_escaped(value)}" for key, value in options.items())


def _escaped(value: str) -> str:
    return re.sub(r"([\\;=])", r"\\\1", value)
