"""The planner's documents in real workers: behaviour that a trial, which only starts them, does not
show.
"""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64encode
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from egressd.model.device import Resolvers
from egressd.model.instances import Listed, Sniffer
from egressd.model.nouns import Node, Whitelist
from egressd.netd.engine.document import Document
from egressd.planner.documents import document_of
from egressd.planner.instances import dialer
from egressd.planner.nodes import DialPath
from egressd.planner.registry import MARK_DIRECT, MARK_REJECT
from egressd.planner.whitelist_entries import listing_of
from egressd_lab.authority import Authority
from tests.support.engine import descriptors, document, opened
from tests.support.netns import Namespace, eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

NAME = "node.test"
HERE, NOBODY = "192.0.2.1", "192.0.2.99"
RESOLVERS = Resolvers(device=(HERE,), domestic=(NOBODY,), outbound=(NOBODY,), home=(NOBODY,))
ECHO, LISTENER = 7, 1080


def vector(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def ech() -> tuple[list[str], bytes]:
    """Return a server's key for Encrypted Client Hello in PEM, and its ECHConfigList (RFC 9849,
    section 4).
    """
    private = X25519PrivateKey.generate()
    content = (
        bytes.fromhex("01 0020")  # config_id, DHKEM(X25519, HKDF-SHA256)
        + vector(private.public_key().public_bytes_raw())
        + vector(bytes.fromhex("0001 0001"))  # HKDF-SHA256, AES-128-GCM
        + b"\0\x0bpublic.test\0\0"
    )
    config = bytes.fromhex("fe0d") + vector(content)
    keys = b64encode(vector(private.private_bytes_raw()) + vector(config)).decode()
    pem = ["-----BEGIN ECH KEYS-----", keys, "-----END ECH KEYS-----"]
    return pem, vector(config)


class Resolver(asyncio.DatagramProtocol):
    """Answers each query for an address with `HERE`, and for HTTPS with the ECHConfigList (RFC
    9460, 2.2).
    """

    def __init__(self, config: bytes) -> None:
        service = bytes.fromhex("0001 00 0005") + vector(config)  # priority, the name itself, ech
        self._data = {1: socket.inet_aton(HERE), 65: service}  # A, HTTPS

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = data[12 : data.index(b"\0", 12) + 5]
        kind = question[-4:-2]
        found = self._data.get(int.from_bytes(kind, "big"))
        head = data[:2] + bytes.fromhex("8180 0001") + (b"\0\1" if found else b"\0\0") + bytes(4)
        record = b"\xc0\x0c" + kind + bytes.fromhex("0001 0000003c")  # the name again, IN, 60 s
        answer = record + vector(found) if found else b""
        self._transport.sendto(head + question + answer, addr)


def server(folder: Path, keys: list[str]) -> Document:
    """Return a Trojan server with ECH."""
    certificate, key = (file.read_text() for file in Authority(folder).certificate(NAME))
    trojan = {
        "type": "trojan",
        "listen_port": 443,
        "users": [{"name": "u", "password": "p"}],
        "tls": {
            "enabled": True,
            "certificate": certificate.splitlines(),
            "key": key.splitlines(),
            "ech": {"enabled": True, "key": keys},
        },
    }
    return Document(
        key="server",
        config=document({"type": "direct"}, inbounds=[{**trojan, "listen": HERE}]),
    )


def client(config: dict[str, Any]) -> Document:
    """Return an instance of a node that sends connections to its listener to the echo server."""
    node = Node(
        id=1, name="n", protocol="trojan", config_json=json.dumps(config), group="", created_at=""
    )
    made = json.loads(document_of(dialer((DialPath((node,)),), RESOLVERS)))
    inbound = {"type": "direct", "listen": "127.0.0.1", "listen_port": LISTENER}
    made["inbounds"] = [{**inbound, "override_address": HERE, "override_port": ECHO}]
    return Document(key="node:1", config=json.dumps(made))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(4))
    writer.close()


async def answer(port: int) -> bytes:
    """Return the reply to a connection to that loopback port; nothing if it is hung up."""
    with suppress(ConnectionResetError):  # it may be raised before the connection counts as open
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with closing(writer):
                writer.write(b"ping")
                return await reader.read(4)
    return b""


@pytest.mark.parametrize("fingerprint", ["none", "chrome"])
async def test_the_ech_query_of_a_node_does_not_go_through_the_node(
    namespace: Namespace, run_dir: Path, tmp_path: Path, fingerprint: str
) -> None:
    namespace.shell(f"ip address add {HERE} dev lo")
    config = {
        "server": NAME,
        "port": 443,
        "password": "p",
        "skip-cert-verify": True,
        "client-fingerprint": fingerprint,
        "ech-opts": {"enable": True},
    }

    keys, published = ech()
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Resolver(published), local_addr=(HERE, 53)
    )
    async with opened(run_dir) as pool, await asyncio.start_server(echo, HERE, ECHO):
        await pool.start(server(tmp_path, keys))
        await pool.start(client(config))
        assert await answer(LISTENER) == b"ping"


@pytest.mark.parametrize("mark", [MARK_DIRECT, MARK_REJECT])
async def test_direct_connections_to_a_sniffer_are_closed(run_dir: Path, mark: int) -> None:
    listing = listing_of(Whitelist(domains="a.test", node="b"))
    listed = Listed(sets=listing.sets, is_direct=False)
    work = Sniffer(mark=mark, resolver=NOBODY, listed=listed)
    sniffer = Document(key="sniff:1", config=document_of(work))

    async with opened(run_dir) as pool:
        pool.rule_sets.put(listing.rule_sets)
        port = (await pool.start(sniffer)).port
        (pid,) = pool.pids()
        before = descriptors(pid)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(b"ping", ("127.0.0.1", port))
        assert await answer(port) == b""
        await eventually(lambda: descriptors(pid) <= before)
