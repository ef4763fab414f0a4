"""The engine's errors in plain words. The errors are sing-box 1.14.3's own."""

from __future__ import annotations

import pytest

from egressd.netd.engine.reasons import plain, refusal


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("socks5: incorrect user name or password", "wrong user name or password"),
        ("socks5: unsupported auth method: 255", "wrong user name or password"),
        ("authentication required", "wrong user name or password"),
        ("authentication failed, status code: 404", "wrong password"),
        ("auth error: Wrong password", "wrong password"),
        ("remote error: Wrong password", "wrong password"),  # Hysteria, if it closes sooner
        ("dial tcp 127.0.0.1:1: connect: connection refused", "connection refused"),
        ("open connection: sendmsg: connection refused", "connection refused"),
        ("dial tcp 192.0.2.1:1: i/o timeout", "the node does not answer"),
        ("context deadline exceeded", "the node does not answer"),
        ("dial tcp 192.0.2.1:1: connect: no route to host", "the node is unreachable"),
        ("dial tcp 192.0.2.1:1: connect: permission denied", "the node's egress is blocked"),
        ("lookup a.test: NXDOMAIN", "the node's name does not exist"),
        (
            "lookup a.test: empty result",
            "the node's name has no address of the asked kind (ip-version)",
        ),
        (
            "lookup a.test: (exchange6: read udp: connection refused | exchange4: read udp: "
            "connection refused)",
            "the node's name was not resolved: connection refused",
        ),
        ("expected socks version 5, got 72", "the node does not speak SOCKS5"),
        (
            "socks5: request rejected, code=5",
            "the node does not reach the site: connection refused",
        ),
        (
            "connect tcp 192.0.2.1:80: connection was refused",
            "the node does not reach the site: connection refused",
        ),
        (
            "connect tcp 192.0.2.1:80: no route to host",
            "the node does not reach the site: the host is unreachable",
        ),
        ("connect tcp 192.0.2.1:80: operation timed out", "the node does not answer"),
        (
            "ssh: rejected: connect failed (Connection refused)",
            "the node does not reach the site: connection refused",
        ),
        (
            "ssh: rejected: administratively prohibited (open failed)",
            "the node does not reach the site: it does not allow the connection",
        ),
        (
            "connect to ssh server: ssh: handshake failed: ssh: unable to authenticate, attempted "
            "methods [none password], no supported methods remain",
            "wrong user name, password or private key",
        ),
        (
            "ssh: handshake failed: host key mismatch, server send ssh-ed25519 AAAA",
            "the server's key is none of host-key",
        ),
        ("Application error 0x2 (remote): auth error", "wrong password"),
        ("unexpected HTTP response status: 404", "the node answered with HTTP 404"),
        (
            "tls: first record does not look like a TLS handshake",
            "TLS failure: first record does not look like a TLS handshake",
        ),
        (
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "TLS failure: failed to verify certificate: "
            "x509: certificate signed by unknown authority",
        ),
        (
            "read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer",
            "the node closed the connection",
        ),
        ("EOF", "the node closed the connection"),
        ("something new", "something new"),
    ],
)
def test_a_failed_connection_has_a_reason_in_plain_words(error: str, words: str) -> None:
    assert plain(error) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "create sing-box service: initialize outbound[0]: unknown method: nope",
            "unknown method: nope",
        ),
        (
            'decode sing-box configuration: x: json: unknown field "x"',
            "the engine does not know the field x",
        ),
        (
            "decode sing-box configuration: outbounds[0].server_port: json: cannot unmarshal "
            "number 99999 into Go struct field ShadowsocksOutboundOptions.ServerOptions."
            "server_port of type uint16",
            "server_port: wrong value (number 99999)",
        ),
        (
            "decode sing-box configuration: outbounds[0].transport: unknown transport type: zz",
            "transport: unknown transport type: zz",
        ),
        (
            "start sing-box service: start outbound: dependency[zz] not found for outbound[n]",
            "dependency[zz] not found for outbound[n]",
        ),
        (
            "start sing-box service: initialize outbound: default outbound not found: qq",
            "default outbound not found: qq",
        ),
        (
            "start sing-box service: start inbound: start inbound/socks[0]: listen tcp "
            "127.0.0.1:1080: bind: address already in use",
            "listen tcp 127.0.0.1:1080: bind: address already in use",
        ),
        ("something new", "something new"),
    ],
)
def test_a_refused_document_has_a_reason_in_plain_words(error: str, words: str) -> None:
    assert refusal(error) == words
