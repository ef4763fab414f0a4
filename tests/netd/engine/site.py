"""A web site on loopback, for delays to be measured with."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HTTP_PORT = 8080
HTTPS_PORT = 8443
SLOWNESS_S = 0.05
"""How long the site thinks before it answers."""


@asynccontextmanager
async def site(certificate: Path | None = None) -> AsyncIterator[list[str]]:
    """Serves ``/<status>``; ``/page`` has 26,013 bytes, ``/mute`` never answers, ``/noise`` answers
    what is not HTTP.

    Gives the request lines and Host fields that came. HTTPS too, given a certificate.
    """
    requests: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            requests.append(f"{head[0]} {head[1]}")
            what = head[0].split()[1].strip("/")
            await asyncio.sleep(SLOWNESS_S)
            match what:
                case "mute":
                    await reader.read()
                case "page":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 26013\r\n\r\n")
                    writer.write(b"ip=192.0.2.1\n" + b"0123456789abc" * 2000)
                case "noise":
                    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
                case _:
                    status = what.split("?")[0] or "204"
                    writer.write(f"HTTP/1.1 {status} Word\r\nLocation: /500\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort() if what == "mute" else writer.close()

    servers = [await asyncio.start_server(answer, "127.0.0.1", HTTP_PORT, backlog=1024)]
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        servers.append(
            await asyncio.start_server(
                answer, "127.0.0.1", HTTPS_PORT, ssl=context, ssl_shutdown_timeout=0.5, backlog=1024
            )
        )
    try:
        yield requests
    finally:
        for server in servers:
            server.close()


def certificates(folder: Path) -> tuple[Path, Path]:
    """A CA's certificate, and one for ``site.test`` and 127.0.0.1 with its key."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.DNSName("site.test"), x509.IPAddress(ip_address("127.0.0.1"))]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site.test")])
    leaf = (
        _builder(name, ca_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ca_path, path = folder / "ca.pem", folder / "site.pem"
    ca_path.write_bytes(ca.public_bytes(pem))
    path.write_bytes(leaf.public_bytes(pem) + private)
    return ca_path, path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )
