"""systemd's readiness protocol."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from egressd.app import readiness


@pytest.mark.parametrize("is_abstract", [False, True])
def test_p1_readiness_is_sent_to_systemd(
    is_abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + path if is_abstract else path)
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", ("@" if is_abstract else "") + path)
        readiness.announce("all is well")
        assert listener.recv(100) == b"READY=1\nSTATUS=all is well"


def test_without_a_notify_socket_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    readiness.announce("all is well")
