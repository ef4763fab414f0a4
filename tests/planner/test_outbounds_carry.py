"""Outbounds that carry: bytes go through each protocol to a real sing-box server and back.

All on loopback. `test_outbounds` shows that the engine starts with the outbounds; this module shows
that a server of that protocol understands them.
"""

import asyncio
import itertools
import json
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import singbox
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from egressd.model.nouns import Node
from egressd.planner.options import options_of
from egressd.planner.outbounds import build
from tests.support.nodes.upgrading import BEHIND, Front

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
USERS = [{"name": "u", "uuid": UUID}]
PASSWORD = "p@ss; word=1"
USERS_BY_PASSWORD = [{"name": "u", "password": PASSWORD}]
KEY = b64encode(bytes(range(16))).decode()
NAME = "server.example"
PING = b"ping"


_ports = itertools.count(12_000, BEHIND + 1)
"""Ports below the range that the kernel assigns by itself, so that a free one stays free."""


def free_port(kind: socket.SocketKind) -> int:
    """Return a free port whose counterpart `BEHIND` it is free too."""
    while True:
        port = next(_ports)
        with (
            suppress(OSError),
            socket.socket(socket.AF_INET, kind) as probe,
            socket.socket(socket.AF_INET, kind) as next_one,
        ):
            probe.bind(("127.0.0.1", port))
            next_one.bind(("127.0.0.1", port + BEHIND))
            return port


@pytest.fixture(scope="module")
def certificate() -> dict[str, Any]:
    """Return a self-signed certificate as a sing-box server's ``tls`` object."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(NAME), x509.IPAddress(IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {
        "enabled": True,
        "server_name": NAME,
        "certificate": made.public_bytes(Encoding.PEM).decode().splitlines(),
        "key": private.decode().splitlines(),
    }


def files(certificate: dict[str, Any], folder: Path) -> list[str]:
    """Return the certificate and the key in files, as a front requires."""
    paths = [folder / name for name in ("certificate", "key")]
    for path in paths:
        path.write_text("\n".join(certificate[path.name]))
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    """Yield a TCP and UDP port that returns, reversed, the first four bytes of each stream, and
    each datagram."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", port))
    stop = threading.Event()

    def serve_streams() -> None:
        while not stop.is_set():
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(5)
                peer.sendall(peer.recv(len(PING), socket.MSG_WAITALL)[::-1])

    def serve_datagrams() -> None:
        while not stop.is_set():
            data, peer = datagrams.recvfrom(4096)
            datagrams.sendto(data[::-1], peer)

    threads = [threading.Thread(target=t) for t in (serve_streams, serve_datagrams)]
    for thread in threads:
        thread.start()
    yield port
    stop.set()
    with socket.create_connection(("127.0.0.1", port)) as last:
        last.sendall(b"x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
        last.sendto(b"x", ("127.0.0.1", port))
    for thread in threads:
        thread.join()
    listener.close()
    datagrams.close()


def running(document: dict[str, Any]) -> singbox.SingBox:
    instance = singbox.SingBox()
    instance.startFromJSON(json.dumps({"log": {"disabled": True}, **document}))
    return instance


@contextmanager
def listening(front: Front) -> Iterator[None]:
    """Run a front in a thread."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with await front.listen():
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop, stop = started.result(5)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def carried(
    protocol: str,
    config: dict[str, Any],
    inbound: dict[str, Any],
    echo_port: int,
    *,
    udp: bool,
    front: Front | None = None,
) -> bytes:
    """Return the answer to ``ping`` through a node of `config` served by `inbound`, with `front`
    ahead of it if there is one."""
    quic = inbound["type"] in ("hysteria2", "tuic")
    server_port = free_port(socket.SOCK_DGRAM if quic else socket.SOCK_STREAM)
    text = json.dumps({"server": "127.0.0.1", "port": server_port, **config})
    node = Node(id=1, name="n", protocol=protocol, config_json=text, group="", created_at="")
    kind = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    port = free_port(kind)
    listen = {"listen": "127.0.0.1", "listen_port": port, "network": "udp" if udp else "tcp"}
    to_echo = {"override_address": "127.0.0.1", "override_port": echo_port}
    behind = server_port + (BEHIND if front else 0)
    server = {"inbounds": [{**inbound, "listen": "127.0.0.1", "listen_port": behind}]}
    client = {
        "inbounds": [{"type": "direct", "tag": "in", **listen, **to_echo}],
        "outbounds": [{**options_of(build(node)), "tag": "target"}],
        "route": {"final": "target"},
    }
    with ExitStack() as stack:
        if front:
            stack.enter_context(listening(replace(front, port=server_port)))
        stack.enter_context(running(server))
        stack.enter_context(running(client))
        probe = stack.enter_context(closing(socket.socket(socket.AF_INET, kind)))
        probe.settimeout(2 if udp else 5)
        probe.connect(("127.0.0.1", port))
        for _ in range(2 if udp else 0):  # a datagram may be lost on a busy machine
            probe.send(PING)
            with suppress(TimeoutError):
                return probe.recv(4096)
        probe.send(PING)
        return probe.recv(4096)


CLIENT_TLS = {"tls": True, "skip-cert-verify": True, "servername": NAME}
WS = {"network": "ws", "ws-opts": {"path": "/w", "headers": {"Host": "cdn.example"}}}
EARLY = {
    "network": "ws",
    "ws-opts": {
        "path": "/w",
        "max-early-data": 2048,
        "early-data-header-name": "Sec-WebSocket-Protocol",
    },
}
TRANSPORTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "tcp": ({}, None),
    "ws": (WS, {"type": "ws", "path": "/w", "headers": {"Host": "cdn.example"}}),
    "ws with early data": (
        EARLY,
        {
            "type": "ws",
            "path": "/w",
            "max_early_data": 2048,
            "early_data_header_name": "Sec-WebSocket-Protocol",
        },
    ),
    "grpc": (
        {"network": "grpc", "grpc-opts": {"grpc-service-name": "Svc"}},
        {"type": "grpc", "service_name": "Svc"},
    ),
    "httpupgrade": (
        {"network": "ws", "ws-opts": {"path": "/u", "v2ray-http-upgrade": True}},
        None,  # a front does the upgrade
    ),
    "h2": (
        {"network": "h2", "h2-opts": {"host": ["h.example"], "path": "/h"}},
        {"type": "http", "host": ["h.example"], "path": "/h"},
    ),
    "http": (
        {"network": "http", "http-opts": {"path": ["/h"], "headers": {"Host": ["h.example"]}}},
        {"type": "http", "host": ["h.example"], "path": "/h"},
    ),
}
STREAMS = [
    (protocol, transport, secure)
    for protocol in ("vmess", "vless", "trojan")
    for transport in TRANSPORTS
    for secure in (False, True)
    # The combinations that the entry's checks let through.
    if not (protocol == "trojan" and (not secure or transport in ("h2", "http")))
    and (transport, secure) not in {("http", True), ("h2", False)}
]


@pytest.mark.parametrize(("protocol", "transport", "secure"), STREAMS)
def test_v2ray_protocols_carry_data_by_every_transport(
    protocol: str,
    transport: str,
    secure: bool,
    certificate: dict[str, Any],
    echo_port: int,
    tmp_path: Path,
) -> None:
    fields, served = TRANSPORTS[transport]
    users = USERS_BY_PASSWORD if protocol == "trojan" else USERS
    inbound: dict[str, Any] = {"type": protocol, "users": users}
    if served is not None:
        inbound["transport"] = served
    config: dict[str, Any] = {"uuid": UUID, "password": PASSWORD, **fields}
    front = Front("127.0.0.1", 0, "/u") if transport == "httpupgrade" else None
    if secure:
        if front:
            paths = files(certificate, tmp_path)
            front = replace(front, certificate=paths[0], key=paths[1])
        else:
            inbound["tls"] = certificate
        config |= CLIENT_TLS
        if transport == "tcp":
            config["client-fingerprint"] = "chrome"
    for udp in (False, True):
        assert carried(protocol, config, inbound, echo_port, udp=udp, front=front) == b"gnip"


@pytest.mark.parametrize("protocol", ["vmess", "vless", "trojan"])
def test_no_server_chooses_a_protocol_foreign_to_the_transport(
    protocol: str, certificate: dict[str, Any], echo_port: int, tmp_path: Path
) -> None:
    fields, _ = TRANSPORTS["httpupgrade"]
    users = USERS_BY_PASSWORD if protocol == "trojan" else USERS
    front = Front("127.0.0.1", 0, "/u", *files(certificate, tmp_path))
    config = {"uuid": UUID, "password": PASSWORD, **CLIENT_TLS, **fields}
    config["alpn"] = ["h2", "http/1.1"]
    inbound = {"type": protocol, "users": users}
    assert carried(protocol, config, inbound, echo_port, udp=False, front=front) == b"gnip"


@pytest.mark.parametrize("encoding", ["none", "xudp", "packetaddr"])
@pytest.mark.parametrize("protocol", ["vmess", "vless"])
def test_every_udp_packing_carries_datagrams(protocol: str, encoding: str, echo_port: int) -> None:
    config = {"uuid": UUID, "packet-encoding": encoding}
    inbound = {"type": protocol, "users": USERS}
    assert carried(protocol, config, inbound, echo_port, udp=True) == b"gnip"


def test_vision_in_reality_carries_data(certificate: dict[str, Any], echo_port: int) -> None:
    private = x25519.X25519PrivateKey.generate()
    raw = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def text(key: bytes) -> str:
        return b64encode(key).decode().rstrip("=").replace("+", "-").replace("/", "_")

    # REALITY borrows the handshake of a real site: here a local TLS server.
    site_port = free_port(socket.SOCK_STREAM)
    site = {
        "type": "trojan",
        "listen": "127.0.0.1",
        "listen_port": site_port,
        "users": USERS_BY_PASSWORD,
        "tls": {**certificate, "min_version": "1.3"},
    }
    reality = {
        "enabled": True,
        "private_key": text(raw),
        "short_id": ["0123abcd"],
        "handshake": {"server": "127.0.0.1", "server_port": site_port},
    }
    inbound = {
        "type": "vless",
        "users": [{**USERS[0], "flow": "xtls-rprx-vision"}],
        "tls": {"enabled": True, "server_name": NAME, "reality": reality},
    }
    config = {
        "uuid": UUID,
        "flow": "xtls-rprx-vision",
        "tls": True,
        "servername": NAME,
        "reality-opts": {"public-key": text(public), "short-id": "0123abcd"},
    }
    with running({"inbounds": [site]}):
        assert carried("vless", config, inbound, echo_port, udp=False) == b"gnip"


@pytest.mark.parametrize(
    ("config", "inbound"),
    [
        (
            {"cipher": "aes-256-gcm", "password": PASSWORD},
            {"method": "aes-256-gcm", "password": PASSWORD},
        ),
        (
            {"cipher": "2022-blake3-aes-128-gcm", "password": KEY},
            {"method": "2022-blake3-aes-128-gcm", "password": KEY},
        ),
        (
            {"cipher": "2022-blake3-aes-128-gcm", "password": f"{KEY}:{KEY}"},
            {
                "method": "2022-blake3-aes-128-gcm",
                "password": KEY,
                "users": [{"name": "u", "password": KEY}],
            },
        ),
    ],
)
def test_shadowsocks_carries_data_with_every_cipher(
    config: dict[str, Any], inbound: dict[str, Any], echo_port: int
) -> None:
    for udp in (False, True):
        for version in (
            {},
            {"udp-over-tcp": True},
            {"udp-over-tcp": True, "udp-over-tcp-version": 2},
        ):
            served = {"type": "shadowsocks", **inbound}
            assert carried("ss", {**config, **version}, served, echo_port, udp=udp) == b"gnip"


def test_socks5_and_http_carry_data(certificate: dict[str, Any], echo_port: int) -> None:
    users = [{"username": "u", "password": PASSWORD}]
    config = {"username": "u", "password": PASSWORD, "udp": True}
    socks = {"type": "socks", "users": users}
    assert carried("socks5", config, socks, echo_port, udp=False) == b"gnip"
    assert carried("socks5", config, socks, echo_port, udp=True) == b"gnip"
    http = {"type": "http", "users": users}
    assert carried("http", config, http, echo_port, udp=False) == b"gnip"
    secured = {**http, "tls": certificate}
    assert carried("http", {**config, **CLIENT_TLS}, secured, echo_port, udp=False) == b"gnip"


@pytest.mark.parametrize(
    ("protocol", "config", "inbound"),
    [
        ("hysteria2", {"password": PASSWORD}, {"users": USERS_BY_PASSWORD}),
        (
            "hysteria2",
            {
                "password": PASSWORD,
                "obfs": "salamander",
                "obfs-password": "o",
                "up": "10 Mbps",
                "down": 20,
            },
            {"users": USERS_BY_PASSWORD, "obfs": {"type": "salamander", "password": "o"}},
        ),
        (
            "tuic",
            {"uuid": UUID, "password": PASSWORD},
            {"users": [{**USERS[0], "password": PASSWORD}]},
        ),
        (
            "tuic",
            {"uuid": UUID, "password": PASSWORD, "udp-relay-mode": "quic", "reduce-rtt": True},
            {"users": [{**USERS[0], "password": PASSWORD}], "congestion_control": "bbr"},
        ),
        ("anytls", {"password": PASSWORD}, {"users": USERS_BY_PASSWORD}),
    ],
)
def test_protocols_within_tls_carry_data(
    protocol: str,
    config: dict[str, Any],
    inbound: dict[str, Any],
    certificate: dict[str, Any],
    echo_port: int,
) -> None:
    tls = {"sni": NAME, "skip-cert-verify": True}
    alpn = {} if protocol == "anytls" else {"alpn": ["h3"]}
    served = {"type": protocol, **inbound, "tls": {**certificate, **alpn}}
    for udp in (False, True):
        assert carried(protocol, {**config, **tls}, served, echo_port, udp=udp) == b"gnip"


def test_an_untrusted_certificate_is_refused(certificate: dict[str, Any], echo_port: int) -> None:
    config = {"password": PASSWORD, "sni": NAME}
    served = {"type": "trojan", "users": USERS_BY_PASSWORD, "tls": certificate}
    with pytest.raises(ConnectionError):
        carried("trojan", config, served, echo_port, udp=False)
