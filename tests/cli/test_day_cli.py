"""The command line for a whole day: settings, events, completion of names, questions, ``-h``."""

from __future__ import annotations

import json
from threading import Thread
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from egressd.cli import cli
from egressd.cli.remote import DeviceRefusal, Remote
from egressd.model.messages import Event
from tests.cli.shell import Shell
from tests.support.device import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def completed(shell: Shell, *words: str, incomplete: str = "") -> list[str]:
    """Return what a shell would be given for the last word of a command."""
    asking = ShellComplete(cli, {}, "egressd", "_EGRESSD_COMPLETE")
    env = {"EGRESSD_URL": shell.url, "EGRESSD_TOKEN": shell.token}
    with CliRunner(env=env).isolation(env=env):
        return [found.value for found in asking.get_completions([*words], incomplete)]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        place = (*path, name)
        found += (
            commands(command, place) if isinstance(command, click.Group) else [(place, command)]
        )
    return found


def test_settings_are_shown_and_changed_one_by_one(shell: Shell) -> None:
    before = shell.json("settings", "show")
    assert f"unmanaged         {before['unmanaged']}" in shell.say("settings", "show")
    assert "settings saved" in shell.say("settings", "set", "--check-interval-s", "60")
    assert shell.json("settings", "show") == {**before, "check_interval_s": 60}
    shell.say("settings", "set", "--unmanaged", "DIRECT", "--no-sniff-domains")
    assert shell.json("settings", "show") == {
        **before,
        "check_interval_s": 60,
        "unmanaged": "DIRECT",
        "sniff_domains": False,
    }
    assert "at least one setting" in shell.problem("settings", "set")
    assert "--check-interval-s" in shell.problem("settings", "set", "--check-interval-s", "0")


def test_the_latest_events_are_printed_the_oldest_first(shell: Shell) -> None:
    hub = shell.device.hub
    for name in ("office", "home"):
        hub.publish(Event(topic="line", subject=name, text=f"{name} is online", code="online"))
    hub.publish(Event(topic="wan", subject="wan1", text="wan1 is down", code="down"))
    at = "2025-11-20T22:58:40Z"
    assert shell.say("events").splitlines() == [
        f"{at}  line      office is online",
        f"{at}  line      home is online",
        f"{at}  wan       wan1 is down",
    ]
    assert len(shell.say("events", "--limit", "2").splitlines()) == 2
    assert shell.say("events", "--topic", "wan") == f"{at}  wan       wan1 is down\n"
    (found,) = map(json.loads, shell.say("events", "--limit", "1", "--json").splitlines())
    assert (found["code"], found["subject"]) == ("down", "wan1")


def test_the_stream_of_events_ends_with_its_token(shell: Shell) -> None:
    made = shell.json("tokens", "create", "watcher", "events")
    boss = Remote.at(shell.url, shell.token)

    def end() -> None:
        eventually(shell.device.events.empty)
        boss.send("DELETE", f"/ops/tokens/{made['id']}")

    shell.device.events.put_nowait(Event(topic="wan", subject="wan1", text="wan1 is down"))
    ending = Thread(target=end)
    ending.start()
    shell.token = made["token"]
    result = shell.run("events", "--follow", "--limit", "0")
    ending.join()
    assert any(line.endswith("  wan       wan1 is down") for line in result.output.splitlines())
    assert result.exit_code == 1
    assert "token" in str(result.exception)


def test_names_are_completed_by_asking_the_device(shell: Shell) -> None:
    shell.say("rules", "add", "10.0.0.5", "DIRECT")
    shell.say("rules", "add", "10.0.0.6", "REJECT")
    socks = '{"server": "198.51.100.7", "port": 1080}'
    shell.say("nodes", "add", "tokyo", "socks5", "-", "--group", "asia", stdin=socks)
    assert completed(shell, "rules", "delete") == ["10.0.0.5", "10.0.0.6"]
    assert completed(shell, "rules", "delete", "10.0.0.5") == ["10.0.0.6"]
    assert completed(shell, "nodes", "delete", incomplete="to") == ["tokyo"]
    assert completed(shell, "rules", "add", "10.0.0.7", incomplete="Gr") == ["Group_asia"]
    assert completed(shell, "groups", "show") == ["asia"]
    members = completed(shell, "groups", "set", "all", "--member")
    assert {"DIRECT", "Group_asia", "tokyo"} <= {*members}
    assert "REJECT" not in members
    assert {"DIRECT", "REJECT", "tokyo"} <= {*completed(shell, "rules", "add", "10.0.0.7")}
    assert completed(shell, "rules", "edit", "10.0.0.5", "--target", incomplete="to") == ["tokyo"]
    assert completed(shell, "explain", incomplete="10.0.0.6") == ["10.0.0.6"]


def test_a_device_that_does_not_answer_completes_nothing(shell: Shell) -> None:
    shell.token = "wrong"
    assert completed(shell, "rules", "delete") == []
    shell.url = "http://127.0.0.1:1"
    assert completed(shell, "nodes", "delete") == []


def test_each_command_has_short_help_and_its_output_as_json() -> None:
    """Beside two that print a script and a code."""
    without = {"completion", "console code"}
    plain = [
        " ".join(path)
        for path, command in commands(cli)
        if path[0] not in ("lab", "cluster", "license", "config", "update", "uninstall", "serve")
        and "--json" not in {o for p in command.params for o in p.opts}
        and " ".join(path) not in without
        and not path[-1].startswith("export")
    ]
    assert plain == []
    for path in ((), ("events",), ("settings", "set")):
        assert CliRunner().invoke(cli, [*path, "-h"]).exit_code == 0, path


@pytest.mark.parametrize(
    ("command", "given", "question"),
    [
        (("stop",), "", "Every client will be blocked"),
        (("settings", "set", "--unmanaged", "DIRECT"), "", "All clients without a rule"),
        (("whitelist", "set", "--ips", "-"), "192.0.2.1", "The present connections of all clients"),
        (("rules", "import", "-", "--replace"), "10.0.0.9,DIRECT", "Every other rule"),
    ],
)
def test_a_change_for_every_client_is_confirmed_on_a_terminal(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    given: str,
    question: str,
) -> None:
    monkeypatch.setattr("egressd.cli.confirmation.is_terminal", lambda: True)
    asked = shell.run(*command, stdin="n\n")
    assert (asked.exit_code, question in asked.output) == (1, True)
    revision = shell.device.bench.state.revision
    sure = shell.run(*command, "--yes", stdin=given)
    assert (sure.exit_code, question in sure.output) == (0, False)
    assert shell.device.bench.state.revision == revision + 1


def test_the_file_of_another_configuration_is_named(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text(f'[data]\ndir = "{tmp_path / "nowhere"}"\n')
    said = CliRunner().invoke(cli, ["rules", "list", "--config", str(file)])
    assert f"there is no folder {tmp_path / 'nowhere' / 'api'}, where {file} names" in str(
        said.exception
    )


def test_a_change_that_comes_between_is_not_lost(shell: Shell) -> None:
    remote = Remote.at(shell.url, shell.token)
    seen: list[bool] = []

    def amended(now: dict[str, Any]) -> dict[str, Any]:
        if not seen:
            remote.send("PUT", "/ops/settings", {**now, "sniff_domains": False})
        seen.append(now["sniff_domains"])
        return {**now, "check_interval_s": 77}

    remote.amend("/ops/settings", amended)
    found = shell.json("settings", "show")
    assert (found["check_interval_s"], found["sniff_domains"]) == (77, False)
    assert seen == [True, False]


def test_a_change_that_always_comes_too_late_is_refused(shell: Shell) -> None:
    remote = Remote.at(shell.url, shell.token)

    def amended(now: dict[str, Any]) -> dict[str, Any]:
        remote.send(
            "PUT", "/ops/settings", {**now, "check_interval_s": now["check_interval_s"] + 1}
        )
        return {**now, "check_interval_s": 77}

    with pytest.raises(DeviceRefusal, match="have been changed since they were read"):
        remote.amend("/ops/settings", amended)
