"""``egressd lines``."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from egressd.cli import cli
from egressd.model.errors import Failed
from egressd.model.messages import LineNews, LineStatus, Status, StatusNews
from egressd.model.wording import as_sentence
from egressd.netd.ipc.server import Server
from tests.support.stand_ins import UnexpectedReconciler

LINES = {
    "pptp_b": LineStatus(
        is_online=False,
        state="wrong_password",
        reason=as_sentence("the server refused the user name or password"),
        next_attempt="2026-11-20T22:59:10Z",
    ),
    "l2tp_a": LineStatus(
        is_online=True, ip="10.9.0.2", state="online", encryption=as_sentence("MPPE")
    ),
}


class _Machine(UnexpectedReconciler):
    line_news = LineNews(LINES)
    status_news = StatusNews(Status(state="running", revision=0))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "egressd.toml"
    path.write_text(f'[run]\ndir = "{tmp_path / "run"}"\n')
    (tmp_path / "run").mkdir()
    return path


@pytest.fixture
def netd(config: Path) -> Iterator[None]:
    """netd's socket, served by a thread."""
    server = Server(config.parent / "run" / "netd.sock", os.getuid(), _Machine())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(server.open())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield
    asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_a_config_option_before_the_subcommand_is_refused(config: Path) -> None:
    result = CliRunner().invoke(cli, ["lines", "--config", str(config), "list"])
    assert result.exit_code == 2
    assert "give --config after list" in result.output


def test_lines_are_printed_with_the_reason_of_their_state(config: Path, netd: None) -> None:
    result = CliRunner().invoke(cli, ["lines", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert result.output == (
        "LINE    STATE           ADDRESS   NEXT ATTEMPT          ENCRYPTION OR REASON\n"
        "l2tp_a  online          10.9.0.2  -                     MPPE\n"
        "pptp_b  wrong_password  -         2026-11-20T22:59:10Z  "
        "the server refused the user name or password\n"
    )


def test_an_unresponsive_netd_is_reported(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egressd.cli.line_status._CONNECT_S", 0.2)
    result = CliRunner().invoke(cli, ["lines", "--config", str(config)])
    assert isinstance(result.exception, Failed)
    assert "no process listens" in str(result.exception)
