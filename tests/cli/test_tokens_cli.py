"""``egressd tokens``."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from egressd.model.times import utc_seconds

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow


async def test_a_token_is_made_listed_used_and_deleted(shell: Shell) -> None:
    made = shell.run("tokens", "create", "grafana", "read", "metrics")
    assert made.stderr == "token grafana created\n"
    secret = made.stdout.strip()
    (row,) = shell.json("tokens", "list")
    listed = shell.say("tokens", "list")
    assert listed == f"{row['id']}\tgrafana\tread metrics\tnever\tnever\ttoken\n"
    assert secret not in listed
    assert secret not in json.dumps(row)
    assert shell.say("tokens", "delete", "grafana") == "token grafana deleted\n"
    assert shell.json("tokens", "list") == []
    assert "there is no token grafana" in shell.problem("tokens", "delete", "grafana")


async def test_a_token_is_deleted_by_its_id(shell: Shell) -> None:
    made = shell.json("tokens", "create", "a", "events")
    assert made["token"].startswith("egressd_")
    assert shell.json("tokens", "delete", made["id"])["id"] == made["id"]


async def test_a_token_expires_after_a_length_or_at_a_time(shell: Shell) -> None:
    for name, when, seconds in (("a", "90d", 90 * 86_400), ("b", "12h", 12 * 3600)):
        row = shell.json("tokens", "create", name, "read", "--expires", when)
        assert abs(utc_seconds(row["expires_at"]) - time.time() - seconds) < 60
    row = shell.json("tokens", "create", "c", "read", "--expires", "2036-01-31T00:00:00Z")
    assert row["expires_at"] == "2036-01-31T00:00:00Z"
    assert "expires_at must be a time in UTC" in shell.problem(
        "tokens", "create", "d", "read", "--expires", "soon"
    )


async def test_a_link_is_printed_in_place_of_its_token(shell: Shell) -> None:
    shell.say("groups", "set", "office", "--member", "DIRECT", "--strategy", "sticky")
    made = shell.run("tokens", "create", "phones", "rotate:Group_office")
    path, _, key = made.stdout.strip().rpartition("/")
    assert (path, key[:8]) == ("/ops/rotate", "egressd_")
    assert "'Group_shop' is neither" in shell.problem("tokens", "create", "b", "rotate:Group_shop")


async def test_bad_scopes_are_refused_by_name(shell: Shell) -> None:
    problem = shell.problem("tokens", "create", "a", "read", "root")
    assert "scopes[1] must be read, write, admin" in problem
