"""The socket on which root's commands call the api, and that no other user can take."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from egressd.app import local_socket
from egressd.model.errors import Failed

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is too long for a Unix socket's address."""
    with TemporaryDirectory() as name:
        deep = Path(name, "a" * 120, "api")
        deep.mkdir(mode=0o700, parents=True)
        yield deep


def test_a_command_reaches_the_api(folder: Path) -> None:
    for _ in range(2):  # the second time there is a file already
        with closing(local_socket.listen(folder)) as listener:
            listener.listen()
            assert (folder / "api.sock").stat().st_mode & 0o777 == 0o600
            with local_socket.connect(folder, 5) as calling:
                accepted, _ = listener.accept()
                calling.sendall(b"hello")
                assert accepted.recv(100) == b"hello"
                accepted.close()


def test_without_an_api_connecting_fails(folder: Path) -> None:
    with pytest.raises(Failed, match="No such file"):
        local_socket.connect(folder, 5)
    local_socket.listen(folder).close()
    with pytest.raises(Failed, match="Connection refused"):
        local_socket.connect(folder, 5)


@pytest.mark.lab
def test_another_users_socket_is_refused(folder: Path) -> None:
    Path(folder, "..").resolve().chmod(0o755)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"/proc/self/fd/{os.open(folder, os.O_PATH)}/api.sock")
        os.setgroups([])
        os.setresuid(NOBODY, NOBODY, NOBODY)
        listener.listen()
        os.write(writing, b"x")
        accepted, _ = listener.accept()
        os.write(writing, accepted.recv(100) or b"-")
        os._exit(0)
    assert os.read(reading, 1) == b"x"
    with pytest.raises(Failed, match="another user's process listens"):
        local_socket.connect(folder, 5)
    assert os.read(reading, 100) == b"-", "it was told nothing"
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


def test_a_folder_writable_by_others_is_refused(folder: Path) -> None:
    with closing(local_socket.listen(folder)) as listener:
        listener.listen()
        folder.chmod(0o777)
        with pytest.raises(Failed, match="others than its owner may write"):
            local_socket.connect(folder, 5)
