"""``egressd status``, ``egressd explain``, ``egressd stop``, ``start`` and ``open``."""

from __future__ import annotations

from typing import Any

import click

from egressd.cli.completing import rule_addresses
from egressd.cli.confirmation import ask_on_terminal, yes_option
from egressd.cli.members import show_members
from egressd.cli.output import done, json_option, show_fields, show_json, show_rows
from egressd.cli.remote import Remote, over_api


@click.command()
@json_option
@over_api
def status(remote: Remote, as_json: bool) -> None:
    """Print the device's status, the egresses of its clients, and the clients that are blocked;
    and the members of its site, if it belongs to one.
    """
    seen = remote.get("/ops/overview")
    if as_json:
        show_json(seen)
        return
    counts = seen["counts"]
    show_fields(
        {
            "status": "opened: no rule applies" if seen["is_open"] else seen["status"],
            "uptime": f"{seen['uptime_s']} s",
            "version": seen["version"],
            "connections": seen["connections"],
            "memory": f"{seen['memory'] / 2**20:.0f} MiB",
            "rules": f"{counts['rules']}, {counts['enabled_rules']} enabled",
            "nodes": counts["nodes"],
            "lines": f"{counts['lines']}, {counts['online_lines']} online",
            "proxy services": counts["proxy_services"],
            **_lease(seen["lease_ms"]),
            **_timed_backups(seen["timed_backups"]),
        },
        as_json=False,
    )
    click.echo()
    show_rows(seen["flows"], ("target", "clients", "egresses", "problem"), as_json=False)
    if members := remote.get("/ops/members")["data"]:
        click.echo()
        show_members(members, as_json=False)
    for problem in seen["problems"]:
        click.echo(f"problem: {problem}", err=True)


def _lease(left_ms: int | None) -> dict[str, str]:
    if left_ms is None:
        return {}
    return {"lease": f"{left_ms / 1000:.1f} s" if left_ms else "over: no client is let through"}


def _timed_backups(seen: dict[str, Any] | None) -> dict[str, str]:
    if seen is None:
        return {}
    return {
        "last backup": f"{seen['last_success'] or 'none'}, to {seen['folder']}",
        "next backup": seen["next_run"],
    }


@click.command()
@click.argument("client", shell_complete=rule_addresses)
@click.argument("destination")
@click.option("--port", default=443, show_default=True)
@click.option("--udp", is_flag=True)
@click.option("--probe", is_flag=True, help="Test it by a request in the client's way.")
@click.option("--probe-url", help="A page that tells the address it is asked from.")
@json_option
@over_api
def explain(
    remote: Remote,
    *,
    client: str,
    destination: str,
    port: int,
    udp: bool,
    probe: bool,
    probe_url: str | None,
    as_json: bool,
) -> None:
    """Explain the path of CLIENT's traffic to DESTINATION (a name or an address).

    The exit status is 1 if the traffic is blocked, or if a probe fails.
    """
    asked = {
        "client": client,
        "destination": destination,
        "port": port,
        "protocol": "udp" if udp else "tcp",
    }
    told = remote.get("/ops/explain", **asked)
    proof = None
    if (probe or probe_url) and (told["problem"] or not told["is_blocked"]):
        body = asked | ({"url": probe_url} if probe_url else {})
        proof = remote.send("POST", "/ops/probe", body)
    if as_json:
        show_json(told if proof is None else {**told, "probe": proof})
    else:
        for step in told["steps"]:
            click.echo(step)
        if proof is not None:
            _show_proof(proof)
    if told["is_blocked"] or (proof is not None and proof["delay"] < 0):
        raise SystemExit(1)


def _show_proof(proof: dict[str, Any]) -> None:
    if proof["error"]:
        click.echo(f"probe: failed: {proof['error']}")
    elif proof["way"] or proof["exit_ip"]:
        click.echo(f"probe: {proof['url']} saw {proof['exit_ip']} after {proof['delay']} ms")
    else:
        click.echo(f"probe: {proof['url']} saw one of these addresses")
    if len(proof["ways"]) > 1:
        for way in proof["ways"]:
            came = way["error"] or f"{way['exit_ip']} after {way['delay']} ms"
            taken = " (the client's)" if way["name"] == proof["way"] else ""
            click.echo(f"probe: by {way['name']}{taken}: {came}")
    if not proof["in_force"]:
        click.echo("probe: the kernel does not send this client there now", err=True)


@click.command()
@yes_option
@json_option
@over_api
def stop(remote: Remote, is_sure: bool, as_json: bool) -> None:
    """Block every client, until start or open. The default-deny rules and the configuration stay.

    On a terminal it asks first. The services continue to run; `systemctl stop egressd-netd` stops
    them, and blocks every client, too.
    """
    ask_on_terminal(
        "Every client will be blocked, and proxy services will be off, until `egressd start`."
        " Continue?",
        is_sure=is_sure,
    )
    done(remote.send("POST", "/ops/stop", {}), as_json)


@click.command()
@json_option
@over_api
def start(remote: Remote, as_json: bool) -> None:
    """Let the rules apply again."""
    done(remote.send("POST", "/ops/start", {}), as_json)


@click.command("open")
@click.confirmation_option(
    prompt="No rule will apply, and every client's traffic will leave directly. Go on?"
)
@json_option
@over_api
def open_(remote: Remote, as_json: bool) -> None:
    """Let every client out directly, regardless of the rules, until start or stop."""
    done(remote.send("POST", "/ops/open", {"confirm": "open"}), as_json)
