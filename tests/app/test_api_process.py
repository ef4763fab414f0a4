"""The api's preparations before it serves."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from egressd.api.server import ApiListener
from egressd.app import tls
from egressd.app.api_process import _listeners
from egressd.app.config import Config, Data

BEGIN = """
import resource, sys
from pathlib import Path
from egressd.app.api_process import main

resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600))
try:
    main(Path(sys.argv[1]))
finally:
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.slow
def test_the_soft_limit_of_open_files_is_raised_to_the_hard_limit(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    ended = subprocess.run(
        [sys.executable, "-c", BEGIN, missing], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "cannot read" in ended.stderr
    assert ended.stdout == "(600, 600)\n"


@pytest.mark.parametrize("damaged", [None, tls.CERTIFICATE, tls.KEY])
def test_without_a_certificate_the_api_serves_plain_http(
    tmp_path: Path, damaged: str | None
) -> None:
    folder = tmp_path / "api"
    folder.mkdir()
    tls.context(folder)  # makes both
    if damaged is not None:
        (folder / damaged).write_text("")
    plain, secure = socket.socket(), socket.socket()
    settings = Config(data=Data(dir=tmp_path))
    of_plain, of_local, of_secure = _listeners([plain, secure], settings)
    assert of_plain == ApiListener(plain)
    assert of_local.socket.family == socket.AF_UNIX
    assert (of_secure.socket, of_secure.is_shut) == (secure, damaged is not None)
    for opened in (plain, secure, of_local.socket):
        opened.close()
