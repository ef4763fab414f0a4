"""Nodes of every protocol and transport, each with the real server for it.

The servers are sing-box's inbounds, for HTTP Upgrade with `upgrading` in front. Those do not
support Shadowsocks with a plugin, for which the lab has nodes.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

NAME: Final = "node.test"
"""The name in the servers' certificates."""
UUID: Final = "b831381d-6324-4d53-ad4f-8cda48b30811"
OTHER_UUID: Final = "b831381d-6324-4d53-ad4f-8cda48b30812"
PASSWORD: Final = "open sesame; now=1"
KEY: Final = b64encode(bytes(range(32))).decode()
OTHER_KEY: Final = b64encode(bytes(range(1, 33))).decode()
SHORT_ID: Final = "0123abcd"
SITE: Final = "203.0.113.12"
"""The web server of the lab whose TLS handshake others borrow."""

Fields = dict[str, Any]


@dataclass(frozen=True)
class Served:
    """A node's protocol and fields, the inbound that serves it, and a field made wrong."""

    protocol: str
    fields: Fields
    inbound: Fields
    wrong: Fields
    """The field of a node that may not use the server: a wrong password, key or name."""
    udp: bool = True
    reason: str = ""
    """Part of the delay call's message for a node with `wrong`, where there is one."""
    upgrade: str = ""
    """The path of the HTTP Upgrade that `upgrading` does for the inbound, if any."""
    is_secure: bool = False
    """True if that is done within TLS."""

    @property
    def is_told_refused(self) -> bool:
        """True if a closed port shows at once. Over UDP there may be no answer, and the engine's
        gRPC and HTTP/2 retry without end.
        """
        is_over_udp = self.protocol in ("hysteria", "hysteria2", "tuic", "wireguard")
        return not is_over_udp and self.fields.get("network") not in ("grpc", "h2")


def every(certificate: Path, key: Path) -> dict[str, Served]:
    """Return all of them, by name. The files are a certificate for `NAME` and its key."""
    tls = {
        "enabled": True,
        "server_name": NAME,
        "certificate_path": str(certificate),
        "key_path": str(key),
    }
    return {
        **_plain(tls),
        **_shadowsocks(),
        **_v2ray(tls),
        **_upgraded(),
        **_reality(),
        **_quic({**tls, "alpn": ["h3"]}),
        "anytls": Served(
            "anytls",
            {"password": PASSWORD, "sni": NAME},
            {"type": "anytls", "users": [{"name": "u", "password": PASSWORD}], "tls": tls},
            {"password": "wrong"},
        ),
    }


def _plain(tls: Fields) -> dict[str, Served]:
    users = [{"username": "u", "password": PASSWORD}]
    login = {"username": "u", "password": PASSWORD}
    wrong = {"password": "wrong"}
    return {
        "socks5": Served(
            "socks5",
            {**login, "udp": True},
            {"type": "socks", "users": users},
            wrong,
            reason="wrong user name or password",
        ),
        "socks5 open": Served(
            "socks5", {"udp": True}, {"type": "socks"}, {"port": 1}, reason="refused"
        ),
        "http": Served(
            "http",
            login,
            {"type": "http", "users": users},
            wrong,
            udp=False,
            reason="wrong user name or password",
        ),
        "https": Served(
            "http",
            {**login, "tls": True, "servername": NAME},
            {"type": "http", "users": users, "tls": tls},
            wrong,
            udp=False,
            reason="wrong user name or password",
        ),
        "https of another name": Served(
            "http",
            {**login, "tls": True, "servername": NAME},
            {"type": "http", "users": users, "tls": tls},
            {"servername": "other.test"},
            udp=False,
            reason="TLS failure",
        ),
    }


def _shadowsocks() -> dict[str, Served]:
    def ss(cipher: str, password: str, wrong: str, **more: Any) -> Served:
        inbound = {"type": "shadowsocks", "method": cipher, "password": password}
        return Served(
            "ss", {"cipher": cipher, "password": password, **more}, inbound, {"password": wrong}
        )

    return {
        "ss aes-128-gcm": ss("aes-128-gcm", PASSWORD, "wrong"),
        "ss aes-256-gcm": ss("aes-256-gcm", PASSWORD, "wrong"),
        "ss chacha20": ss("chacha20-ietf-poly1305", PASSWORD, "wrong"),
        "ss 2022 aes-128": ss(
            "2022-blake3-aes-128-gcm",
            b64encode(bytes(16)).decode(),
            b64encode(bytes(range(16))).decode(),
        ),
        "ss 2022 aes-256": ss("2022-blake3-aes-256-gcm", KEY, OTHER_KEY),
        "ss 2022 chacha20": ss("2022-blake3-chacha20-poly1305", KEY, OTHER_KEY),
        "ss udp over tcp": ss(
            "aes-256-gcm", PASSWORD, "wrong", **{"udp-over-tcp": True, "udp-over-tcp-version": 2}
        ),
    }


TRANSPORTS: Final[dict[str, tuple[Fields, Fields]]] = {
    "tcp": ({}, {}),
    "ws": (
        {"network": "ws", "ws-opts": {"path": "/w", "headers": {"Host": NAME}}},
        {"type": "ws", "path": "/w"},
    ),
    "grpc": (
        {"network": "grpc", "grpc-opts": {"grpc-service-name": "Svc"}},
        {"type": "grpc", "service_name": "Svc"},
    ),
}


def _v2ray(tls: Fields) -> dict[str, Served]:
    by_uuid = {"uuid": UUID}
    found = {}
    for transport, (fields, served) in TRANSPORTS.items():
        over: Fields = {"transport": served} if served else {}
        for secure in (False, True):
            name = f"{transport} tls" if secure else transport
            layer: Fields = {"tls": True, "servername": NAME} if secure else {}
            inbound = {"users": [{"name": "u", "uuid": UUID}], **over}
            inbound |= {"tls": tls} if secure else {}
            for protocol in ("vmess", "vless"):
                found[f"{protocol} {name}"] = Served(
                    protocol,
                    {**by_uuid, **fields, **layer},
                    {"type": protocol, **inbound},
                    {"uuid": OTHER_UUID},
                )
        found[f"trojan {transport}"] = Served(
            "trojan",
            {"password": PASSWORD, "sni": NAME, "client-fingerprint": "chrome", **fields},
            {
                "type": "trojan",
                "users": [{"name": "u", "password": PASSWORD}],
                "tls": tls,
                **over,
            },
            {"password": "wrong"},
        )
    found["vless vision"] = Served(
        "vless",
        {**by_uuid, "flow": "xtls-rprx-vision", "tls": True, "servername": NAME},
        {
            "type": "vless",
            "users": [{"name": "u", "uuid": UUID, "flow": "xtls-rprx-vision"}],
            "tls": tls,
        },
        {"uuid": OTHER_UUID},
    )
    path = "/two"
    found["vless h2"] = Served(
        "vless",
        {**by_uuid, "servername": NAME, "network": "h2", "h2-opts": {"path": path}},
        {
            "type": "vless",
            "users": [{"name": "u", "uuid": UUID}],
            "tls": tls,
            "transport": {"type": "http", "path": path},
        },
        {"uuid": OTHER_UUID},
    )
    return found


def _upgraded() -> dict[str, Served]:
    """Return the nodes with HTTP Upgrade, whose inbounds have no transport."""
    path = "/u"
    over: Fields = {"network": "httpupgrade", "ws-opts": {"path": path, "headers": {"Host": NAME}}}
    uuids = [{"name": "u", "uuid": UUID}]
    found = {}
    for protocol in ("vmess", "vless"):
        for secure in (False, True):
            layer: Fields = {"tls": True, "servername": NAME} if secure else {}
            found[f"{protocol} httpupgrade{' tls' if secure else ''}"] = Served(
                protocol,
                {"uuid": UUID, **over, **layer},
                {"type": protocol, "users": uuids},
                {"uuid": OTHER_UUID},
                upgrade=path,
                is_secure=secure,
            )
    found["trojan httpupgrade"] = Served(
        "trojan",
        {"password": PASSWORD, "sni": NAME, "client-fingerprint": "chrome", **over},
        {"type": "trojan", "users": [{"name": "u", "password": PASSWORD}]},
        {"password": "wrong"},
        upgrade=path,
        is_secure=True,
    )
    return found


def _reality() -> dict[str, Served]:
    """Return the nodes with REALITY, which borrows the handshake of a web server of the lab."""

    def text(raw: bytes) -> str:
        return urlsafe_b64encode(raw).decode().rstrip("=")

    private = X25519PrivateKey.generate()
    public = text(private.public_key().public_bytes_raw())
    other = text(X25519PrivateKey.generate().public_key().public_bytes_raw())
    reality = {
        "enabled": True,
        "private_key": text(private.private_bytes_raw()),
        "short_id": [SHORT_ID],
        "handshake": {"server": SITE, "server_port": 443},
    }
    found = {}
    for name, flow, (fields, served) in (
        ("vision", "xtls-rprx-vision", TRANSPORTS["tcp"]),
        ("grpc", "", TRANSPORTS["grpc"]),
    ):
        over: Fields = {"transport": served} if served else {}
        config = {
            "uuid": UUID,
            "tls": True,
            "servername": "www.gstatic.com",
            "reality-opts": {"public-key": public, "short-id": SHORT_ID},
            **({"flow": flow} if flow else {}),
            **fields,
        }
        inbound = {
            "type": "vless",
            "users": [{"name": "u", "uuid": UUID, "flow": flow}],
            "tls": {"enabled": True, "server_name": "www.gstatic.com", "reality": reality},
            **over,
        }
        wrong = {"reality-opts": {"public-key": other, "short-id": SHORT_ID}}
        # The engine's gRPC keeps trying, and does not report the reason.
        reason = "" if over else "REALITY verification failed"
        found[f"vless reality {name}"] = Served("vless", config, inbound, wrong, reason=reason)
    return found


def _quic(tls: Fields) -> dict[str, Served]:
    users = [{"name": "u", "password": PASSWORD}]
    hysteria2 = {"type": "hysteria2", "users": users, "tls": tls}
    tuic_users = [{"name": "u", "uuid": UUID, "password": PASSWORD}]
    tuic = {"type": "tuic", "users": tuic_users, "tls": tls, "congestion_control": "bbr"}
    wrong = {"password": "wrong"}
    rates = {"up_mbps": 100, "down_mbps": 100}
    hysteria = {
        "type": "hysteria",
        "users": [{"name": "u", "auth_str": PASSWORD}],
        "tls": {key: value for key, value in tls.items() if key != "alpn"},
        **rates,
    }
    own = {"auth-str": PASSWORD, "sni": NAME, "up": 50, "down": "100 Mbps"}
    return {
        "hysteria": Served(
            "hysteria", own, hysteria, {"auth-str": "wrong"}, reason="wrong password"
        ),
        "hysteria obfs": Served(
            "hysteria", {**own, "obfs": "o"}, {**hysteria, "obfs": "o"}, {"obfs": "other"}
        ),
        "hysteria2": Served("hysteria2", {"password": PASSWORD, "sni": NAME}, hysteria2, wrong),
        "hysteria2 obfs": Served(
            "hysteria2",
            {
                "password": PASSWORD,
                "sni": NAME,
                "obfs": "salamander",
                "obfs-password": "o",
                "up": "50 Mbps",
                "down": "100 Mbps",
            },
            {**hysteria2, "obfs": {"type": "salamander", "password": "o"}},
            {"obfs-password": "other"},
        ),
        "tuic": Served(
            "tuic",
            {"uuid": UUID, "password": PASSWORD, "sni": NAME},
            tuic,
            wrong,
        ),
        "tuic quic": Served(
            "tuic",
            {
                "uuid": UUID,
                "password": PASSWORD,
                "sni": NAME,
                "udp-relay-mode": "quic",
                "congestion-controller": "bbr",
            },
            tuic,
            {"uuid": OTHER_UUID},
        ),
    }


def shadow_tls(port: int) -> dict[str, tuple[Served, list[Fields]]]:
    """Return nodes of Shadowsocks within ShadowTLS at one address, from that port on, each with the
    inbounds that serve it: the layer, and what is behind it.
    """
    found = {}
    for at, version in enumerate((2, 3)):
        outer, inner = port + 2 * at, port + 2 * at + 1
        options = {"host": "www.gstatic.com", "password": PASSWORD, "version": version}
        fields = {
            "port": outer,
            "cipher": "aes-128-gcm",
            "password": PASSWORD,
            "plugin": "shadow-tls",
            "plugin-opts": options,
            "udp-over-tcp": True,
            "udp-over-tcp-version": 2,
            **({"client-fingerprint": "chrome"} if version == 3 else {}),
        }
        secret: Fields = (
            {"password": PASSWORD}
            if version == 2
            else {"users": [{"name": "u", "password": PASSWORD}], "strict_mode": True}
        )
        layer = {
            "type": "shadowtls",
            "version": version,
            "listen_port": outer,
            "handshake": {"server": SITE, "server_port": 443},
            "detour": f"in{2 * at + 2}",
            **secret,
        }
        behind = {
            "type": "shadowsocks",
            "listen_port": inner,
            "method": "aes-128-gcm",
            "password": PASSWORD,
        }
        wrong = {"plugin-opts": {**options, "password": "wrong"}}
        found[f"shadow-tls {version}"] = Served("ss", fields, {}, wrong), [layer, behind]
    return found
