"""Counters of interfaces."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from egressd.netd.kernel import traffic

TABLE = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 1234567  8 0 0 0 0 0 0  1234567  8 0 0 0 0 0 0
  wan1:     600 10 0 0 0 0 0 0      700 10 0 0 0 0 0 0
eth0:1: 1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0
"""


def test_the_table_is_parsed_by_its_columns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dev").write_text(TABLE)
    monkeypatch.setattr(traffic, "_TABLE", tmp_path / "dev")
    assert traffic.read() == {
        "lo": (1234567, 1234567),
        "wan1": (600, 700),
        "eth0:1": (1, 2),
    }


def test_the_machines_own_traffic_is_counted() -> None:
    before = traffic.read()["lo"]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        client.sendall(b"x" * 100_000)
    after = traffic.read()["lo"]
    assert after.sent - before.sent >= 100_000
