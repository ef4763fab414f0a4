"""The API token, the count of trial calls, and their files."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from egressd.model.errors import Failed, OverQuota
from egressd.store.api_token import ApiToken
from egressd.store.files import create_private, prepare_directory, replace_durably
from egressd.store.trial_calls import TrialCalls

NOBODY = 65534


def test_a_token_is_created_once(tmp_path: Path) -> None:
    token = ApiToken(tmp_path)
    with pytest.raises(Failed, match="API token"):
        token.token()
    token.ensure()
    first = token.token()
    token.ensure()
    assert ApiToken(tmp_path).token() == first
    assert len(first) == 43  # 256 bits in URL-safe base64
    assert first.replace("-", "a").replace("_", "a").isalnum()
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_token_reset_by_another_process_is_valid_at_once(tmp_path: Path) -> None:
    token = ApiToken(tmp_path)
    token.ensure()
    seen = {token.token()}
    text = (
        "import sys, pathlib; from egressd.store.api_token import ApiToken\n"
        "for _ in sys.stdin: print(ApiToken(pathlib.Path(sys.argv[1])).reset(), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for _ in range(20):
            other.stdin.write("\n")
            other.stdin.flush()
            fresh = other.stdout.readline().strip()
            assert token.token() == fresh
            seen.add(fresh)
        other.stdin.close()
    assert len(seen) == 21


def test_a_token_stays_valid_if_it_cannot_be_replaced(tmp_path: Path) -> None:
    token = ApiToken(tmp_path)
    token.ensure()
    first = token.token()
    (tmp_path / "token.new").mkdir()
    with pytest.raises(Failed, match="write the API token"):
        token.reset()
    assert token.token() == first


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_damaged_token_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(Failed, match="read the API token"):
        ApiToken(tmp_path).token()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_files_written_by_root_belong_to_the_directorys_owner(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    prepare_directory(directory, (NOBODY, NOBODY))
    ApiToken(directory).reset()
    for path in (directory, directory / "token"):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("whole")
    for name in ("token.new", "token"):
        (tmp_path / name).symlink_to(victim)
    replace_durably(tmp_path / "token", b"fresh")
    assert victim.read_text() == "whole"
    assert (tmp_path / "token").read_text() == "fresh"
    os.close(create_private(tmp_path / "victim"))


def test_the_directory_is_accessible_by_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    prepare_directory(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(directory)
    with pytest.raises(Failed, match="prepare the directory"):
        prepare_directory(tmp_path / "link")


async def spend_all(calls: TrialCalls, license_id: str, allowed: int) -> list[int]:
    left = [await calls.spend(license_id, allowed) for _ in range(allowed)]
    with pytest.raises(OverQuota, match="used up"):
        await calls.spend(license_id, allowed)
    return left


def opened_calls(directory: Path) -> TrialCalls:
    calls = TrialCalls(directory)
    calls.open()
    return calls


async def test_trial_calls_are_counted_per_license(tmp_path: Path) -> None:
    calls = opened_calls(tmp_path)
    assert await spend_all(calls, "a", 40) == list(range(39, -1, -1))
    assert await spend_all(calls, "b", 3) == [2, 1, 0]
    with pytest.raises(OverQuota):
        await calls.spend("c", 0)
    assert [calls.left(name, 40) for name in "abc"] == [0, 37, 40]
    assert calls.left("a", 10) == 0


async def test_a_crash_neither_returns_nor_takes_trial_calls(tmp_path: Path) -> None:
    for lifetime in (1, 2, 40):
        calls = opened_calls(tmp_path)
        before = calls.left("a", 100)
        for spent in range(1, lifetime + 1):
            assert await calls.spend("a", 100) == before - spent
    assert opened_calls(tmp_path).left("a", 100) == 100 - 43


async def test_concurrent_trial_calls_are_all_counted(tmp_path: Path) -> None:
    calls = opened_calls(tmp_path)
    left = await asyncio.gather(*(calls.spend("a", 50) for _ in range(50)))
    assert sorted(left) == list(range(50))


async def test_a_cancelled_caller_spends_its_trial_call(tmp_path: Path) -> None:
    calls = opened_calls(tmp_path)
    leaving = asyncio.create_task(calls.spend("a", 10))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await calls.spend("a", 10) == 8


async def test_trial_calls_that_cannot_be_stored_are_not_counted(tmp_path: Path) -> None:
    calls = opened_calls(tmp_path)
    (tmp_path / "trial-calls.new").mkdir()
    with pytest.raises(Failed, match="trial calls"):
        await calls.spend("a", 10)
    (tmp_path / "trial-calls.new").rmdir()
    assert await calls.spend("a", 10) == 9


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": "x"}', b'{"a": -'])
def test_a_damaged_count_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trial-calls").write_bytes(content)
    with pytest.raises(Failed, match="trial calls"):
        opened_calls(tmp_path)
