"""``egressd changes`` and ``egressd undo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow


async def test_a_change_is_listed_shown_and_undone(shell: Shell) -> None:
    shell.say("rules", "add", "10.0.0.5", "DIRECT", "--comment", "tv")
    (change,) = shell.json("changes", "list")["data"]
    revision = str(change["revision"])
    line = shell.say("changes", "list")
    assert line.split("\t")[0] == revision
    assert line.endswith("\trule for 10.0.0.5 created\tyes\n")
    shown = shell.say("changes", "show", revision)
    assert "POST /svc/api/v1/rules" in shown
    assert shown.endswith("+ rule 10.0.0.5\n")
    assert shell.json("changes", "show", revision)["total"] == 1
    assert shell.say("undo", revision, "--dry-run") == "- rule 10.0.0.5\n"
    assert shell.json("undo", revision, "--dry-run")["revision"] is None
    assert "--yes must be given" in shell.problem("undo", revision)
    assert (
        shell.say("undo", revision, "--yes") == f"change {revision} undone: rule 10.0.0.5 deleted\n"
    )
    assert shell.say("rules", "list") == ""
    assert f"undone by {change['revision'] + 1}" in shell.say("changes", "list")
    assert "was undone already" in shell.problem("undo", revision, "--yes")
    assert "there is no change" in shell.problem("changes", "show", "99999")


async def test_changed_fields_are_printed_in_one_line(shell: Shell) -> None:
    shell.say("rules", "add", "10.0.0.5", "DIRECT")
    shell.say("rules", "disable", "10.0.0.5")
    revision = str(shell.json("changes", "list")["data"][0]["revision"])
    assert "~ rule 10.0.0.5 (is_enabled: True -> False" in shell.say("changes", "show", revision)
    done = shell.json("undo", revision, "--yes")
    assert done["objects"][0]["action"] == "changed"


async def test_changes_on_trial_are_confirmed_or_taken_back(shell: Shell) -> None:
    assert shell.say("trial", "status") == "no changes are on trial\n"
    assert "is taken back at" in shell.say("trial", "start", "--minutes", "7")
    shell.say("rules", "add", "10.0.0.5", "DIRECT")
    assert shell.json("trial", "status")["changes"] == 1
    assert "who       token\n" in shell.say("trial", "status")
    assert "on trial already" in shell.problem("trial", "start")
    assert shell.say("trial", "confirm") == "confirmed: 1 change on trial stays\n"
    shell.say("trial", "start")
    shell.say("rules", "add", "10.0.0.6", "DIRECT")
    assert "rule 10.0.0.6 deleted" in shell.say("trial", "revert")
    assert "no changes are on trial" in shell.problem("trial", "confirm")
