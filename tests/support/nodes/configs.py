"""Configurations of nodes that the planner accepts, and keys that are not its own."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from egressd.model.nouns import Node

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
REALITY = {"public-key": "jNXHt1yRo0vDuchQlIP6Z0ZvjT3KtzVI-T4E7RoLJS0", "short-id": "0123abcd"}
TLS: dict[str, Any] = {
    "tls": True,
    "servername": "example.com",
    "alpn": ["h2", "http/1.1"],
    "client-fingerprint": "chrome",
}
SERVER = {"server": "192.0.2.1", "port": 443}
WS = {"network": "ws", "ws-opts": {"path": "/w", "headers": {"Host": "cdn.example.com"}}}
GRPC = {"network": "grpc", "grpc-opts": {"grpc-service-name": "Service"}}
UPGRADE = {"network": "httpupgrade", "ws-opts": {"path": "/u", "headers": {"Host": "a.example"}}}
H2 = {"network": "h2", "h2-opts": {"host": ["example.com"], "path": "/h"}}
HTTP = {"network": "http", "http-opts": {"path": ["/a", "/b"], "headers": {"Host": ["a.example"]}}}


SSH_KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz",
    "c2gtZWQyNTUxOQAAACBthjNwW72BUJqwmvJIbD3ks27+h8NnKcO6ScwtqCA9yAAA",
    "AJD2ARuf9gEbnwAAAAtzc2gtZWQyNTUxOQAAACBthjNwW72BUJqwmvJIbD3ks27+",
    "h8NnKcO6ScwtqCA9yAAAAEDfn/1qlJ5lKAF0HqdePgoAmBO0jRMyv76ixmvCWVki",
    "qG2GM3BbvYFQmrCa8khsPeSzbv6Hw2cpw7pJzC2oID3IAAAAB3Jvb3RAdm0BAgME",
    "BQY=",
    "-----END OPENSSH PRIVATE KEY-----",
)
"""A private key of OpenSSH, and the public key that belongs to it."""
SSH_HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG2GM3BbvYFQmrCa8khsPeSzbv6Hw2cpw7pJzC2oID3I"


TUNNEL = {
    "private-key": "4JjCzOn2BSqbJyQ3kGxkEJQ1oPYL5b9EZ1bJm3l5fWk=",
    "public-key": "9YlLrCUdcjyTg62oTm/0u/LJ4Px01QuJTCjQ2xsF9jg=",
    "ip": "10.2.0.2",
}
"""The fields that a node of WireGuard needs."""


def key(size: int) -> str:
    return b64encode(bytes(range(size))).decode()


def node(protocol: str, config: dict[str, Any]) -> Node:
    text = json.dumps({**SERVER, **config})
    return Node(
        id=1, name="n", protocol=protocol, config_json=text, group="", created_at="2026-01-01"
    )


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("socks5", {}),
    ("socks5", {"username": "u", "password": "p", "udp": True}),
    ("http", {}),
    ("http", {"username": "u", "password": "p", "headers": {"X-A": "b"}}),
    ("http", {**TLS, "skip-cert-verify": True}),
    *(
        ("ss", {"cipher": cipher, "password": "secret"})
        for cipher in (
            "aes-128-gcm",
            "aes-192-gcm",
            "AES-256-GCM",
            "chacha20-poly1305",
            "chacha20-ietf-poly1305",
            "xchacha20-ietf-poly1305",
            "aes-128-ctr",
            "aes-192-ctr",
            "aes-256-ctr",
            "aes-128-cfb",
            "aes-192-cfb",
            "aes-256-cfb",
            "rc4-md5",
            "chacha20-ietf",
            "xchacha20",
            "none",
            "plain",
        )
    ),
    ("ss", {"cipher": "2022-blake3-aes-128-gcm", "password": key(16)}),
    ("ss", {"cipher": "2022-blake3-aes-128-gcm", "password": f"{key(16)}:{key(16)}"}),
    ("ss", {"cipher": "2022-blake3-aes-256-gcm", "password": key(32)}),
    ("ss", {"cipher": "2022-blake3-chacha20-poly1305", "password": key(32)}),
    (
        "ss",
        {
            "cipher": "aes-128-gcm",
            "password": "p",
            "plugin": "obfs",
            "plugin-opts": {"mode": "tls", "host": "example.com"},
        },
    ),
    (
        "ss",
        {
            "cipher": "aes-128-gcm",
            "password": "p",
            "plugin": "v2ray-plugin",
            "plugin-opts": {"mode": "websocket", "path": "/a;b=c\\d", "tls": True, "mux": False},
        },
    ),
    ("ss", {"cipher": "aes-128-gcm", "password": "p", "udp-over-tcp": True}),
    *(
        (
            "ss",
            {
                "cipher": "aes-128-gcm",
                "password": "p",
                "client-fingerprint": "chrome",
                "plugin": "shadow-tls",
                "plugin-opts": {"host": "a.example", "password": "s", "version": version},
            },
        )
        for version in (1, 2, 3)
    ),
    ("vmess", {"uuid": UUID, "alterId": 64, "cipher": "chacha20-poly1305"}),
    ("vmess", {"uuid": UUID, "global-padding": True, "authenticated-length": True}),
    *(("vmess", {"uuid": UUID, **network}) for network in ({}, WS, GRPC, UPGRADE, H2, HTTP)),
    *(("vmess", {"uuid": UUID, **TLS, **network}) for network in ({}, WS, GRPC, UPGRADE, H2)),
    ("vmess", {"uuid": UUID, "packet-encoding": "xudp"}),
    ("vmess", {"uuid": UUID, "packet-encoding": "packet"}),
    *(("vless", {"uuid": UUID, **TLS, **network}) for network in ({}, WS, GRPC, UPGRADE, H2)),
    ("vless", {"uuid": UUID, **HTTP}),
    ("vless", {"uuid": UUID, **TLS, "flow": "xtls-rprx-vision", "reality-opts": REALITY}),
    ("vless", {"uuid": UUID, "tls": True, "reality-opts": REALITY, **GRPC}),
    ("vless", {"uuid": UUID, "packet-encoding": "none"}),
    *(("trojan", {"password": "p", "sni": "a.example", **n}) for n in ({}, WS, GRPC, UPGRADE)),
    ("trojan", {"password": "p", "reality-opts": REALITY}),
    *(
        ("trojan", {"password": "p", "client-fingerprint": fingerprint})
        for fingerprint in (
            "chrome",
            "firefox",
            "edge",
            "safari",
            "360",
            "qq",
            "ios",
            "android",
            "random",
            "randomized",
            "none",
        )
    ),
    ("trojan", {"password": "p", "ech-opts": {"enable": True, "query-server-name": "a.example"}}),
    ("hysteria", {"up": 10, "down": "20 Mbps"}),
    (
        "hysteria",
        {
            "auth-str": "p",
            "up": "30 Mbps",
            "down": 200,
            "obfs": "o",
            "ports": "1000-2000,3000",
            "hop-interval": 15,
            "protocol": "udp",
            "sni": "a.example",
            "skip-cert-verify": True,
        },
    ),
    ("hysteria2", {"password": "p"}),
    (
        "hysteria2",
        {
            "password": "p",
            "ports": "1000-2000,3000",
            "hop-interval": 15,
            "up": "30 Mbps",
            "down": 200,
            "obfs": "salamander",
            "obfs-password": "o",
            "sni": "a.example",
            "skip-cert-verify": True,
        },
    ),
    *(
        ("tuic", {"uuid": UUID, "password": "p", "congestion-controller": controller})
        for controller in ("cubic", "new_reno", "bbr")
    ),
    (
        "tuic",
        {
            "uuid": UUID,
            "password": "p",
            "udp-relay-mode": "quic",
            "reduce-rtt": True,
            "heartbeat-interval": 10000,
            "disable-sni": True,
        },
    ),
    (
        "tuic",
        {"uuid": UUID, "password": "p", "udp-over-stream": True, "udp-relay-mode": "native"},
    ),
    ("anytls", {"password": "p", "sni": "a.example", "client-fingerprint": "firefox"}),
    (
        "anytls",
        {
            "password": "p",
            "idle-session-check-interval": 30,
            "idle-session-timeout": 60,
            "min-idle-session": 2,
            "reality-opts": REALITY,
        },
    ),
    ("ssh", {}),
    ("ssh", {"username": "u", "password": "p", "host-key": [SSH_HOST_KEY, SSH_HOST_KEY]}),
    (
        "ssh",
        {
            "username": "u",
            "private-key": "\n".join(SSH_KEY),
            "host-key": f"host.example {SSH_HOST_KEY} comment",
            "host-key-algorithms": ["ssh-ed25519", "rsa-sha2-512"],
        },
    ),
    ("wireguard", TUNNEL),
    (
        "wireguard",
        {
            **TUNNEL,
            "ip": "10.2.0.2/24",
            "ipv6": "fd00::2",
            "pre-shared-key": TUNNEL["public-key"],
            "allowed-ips": ["0.0.0.0/0", "::/0"],
            "reserved": "AQID",
            "mtu": 1280,
            "persistent-keepalive": 25,
        },
    ),
]

FOREIGN = ["detour", "bind_interface", "routing_mark", "certificate_path", "tag", "domain_resolver"]
FOREIGN += ["plugin_opts", "server_port", "transport", "multiplex", "udp_over_tcp", "network_type"]
