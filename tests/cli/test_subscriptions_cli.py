"""``egressd subscriptions``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

URL = "https://lists.example.com/get?token=s3cret"


async def test_subscriptions_are_made_listed_changed_and_deleted(shell: Shell) -> None:
    assert shell.say(
        "subscriptions", "add", "seller", "-", "--via", "Interface:wan2", "--group", "asia",
        "--header", "X-Key: h3ader", "--rename", "^", "s-", "--interval", "3600",
        stdin=URL + "\n",
    ) == "subscription seller created\n"  # fmt: skip
    listed = shell.say("subscriptions", "list")
    assert listed.startswith("1\tseller\tlists.example.com\tInterface:wan2\t0\t0\t")
    found = shell.json("subscriptions", "show", "1")
    assert (found["rename"], found["header_names"]) == ({"^": "s-"}, ["X-Key"])
    assert (found["interval_s"], found["group"], found["gone"]) == (3600, "asia", "keep")
    assert "s3cret" not in listed + str(found)
    assert shell.say(
        "subscriptions", "edit", "1", "--name", "other", "--list", URL, "--gone", "delete",
        "--disable", "--exclude", "expire", "--user-agent", "clash",
    ) == "subscription other saved\n"  # fmt: skip
    found = shell.json("subscriptions", "show", "1")
    assert (found["is_enabled"], found["gone"], found["next_at"]) == (False, "delete", None)
    assert "--include must be a pattern" in shell.problem(
        "subscriptions", "edit", "1", "--include", "("
    )
    assert "NAME:VALUE" in shell.problem("subscriptions", "edit", "1", "--header", "x")
    assert "the server answers with the status 404" in shell.problem(
        "subscriptions", "refresh", "1"
    )
    assert shell.say("subscriptions", "delete", "1") == "subscription other deleted\n"
    assert shell.say("subscriptions", "list") == ""
