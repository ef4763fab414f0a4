"""``egressd lab``: build a network to try egressd in, inspect it, use it, remove it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

import click

from egressd.model.errors import Failed
from egressd_lab import netns

_SHOWN = 5
"""Clients, WANs and nodes that ``up`` lists; ``--json`` lists all."""


@click.group()
def lab() -> None:
    """A network in namespaces: clients, WANs, an internet and proxy nodes. Needs root."""
    if os.geteuid() != 0:
        raise Failed("use the lab", "network namespaces need root; try sudo")
    signal.signal(signal.SIGTERM, _end)


def _end(_: int, __: FrameType | None) -> NoReturn:
    """End as Ctrl-C does, so that a lab under construction is removed."""
    raise KeyboardInterrupt


@lab.command()
@click.option("--json", "as_json", is_flag=True, help="Print the whole story as JSON instead.")
def demo(as_json: bool) -> None:
    """Play a story of rules, a dying node and open downloads; end with what leaked.

    Takes under a minute and leaves nothing behind. The exit status is 0 only if every
    scene went as egressd promises.
    """
    import msgspec

    from egressd_lab import scenes, story

    begun = time.monotonic()
    if as_json:
        played = list(story.play())
    else:
        from rich.console import Console

        from egressd_lab.show import Show

        played = Show(Console(highlight=False), Console(stderr=True)).play(story.play())
    ok = all(scene.ok for scene in played)
    seconds = time.monotonic() - begun
    if as_json:
        told = scenes.Story(ok=ok, seconds=seconds, scenes=played)
        click.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        click.echo(f"\n{seconds:.0f} s in all. `egressd lab up` builds one to play in yourself.")
    sys.exit(0 if ok else 1)


@lab.command()
@click.option("--name", default="", help="1 to 12 of a-z0-9. Default: a random one.")
@click.option("--clients", default=3, show_default=True, help="LAN clients.")
@click.option("--wans", default=2, show_default=True, help="WANs, 1 to 64.")
@click.option("--second-lan", is_flag=True, help="A second LAN with two guests.")
@click.option("--one-arm", is_flag=True, help="One interface for LAN and WAN. Needs --wans 1.")
@click.option("--json", "as_json", is_flag=True)
def up(
    *, name: str, clients: int, wans: int, second_lan: bool, one_arm: bool, as_json: bool
) -> None:
    """Build a lab with egressd running in it, and leave it running.

    The lab's nodes are known to egressd; there are no rules yet, so every client is
    blocked.
    """
    from egressd_lab.device import API_PREFIX
    from egressd_lab.lab import Lab
    from egressd_lab.spec import LabSpec

    spec = LabSpec(name=name, clients=clients, wans=wans, second_lan=second_lan, one_arm=one_arm)
    built = Lab(spec)
    try:
        built.build()
        device = built.start_egressd()
        for node in built.nodes.values():
            built.api.post("/nodes", node.draft())
        built.detach()
    except BaseException:
        built.remove()
        raise
    told: dict[str, Any] = {
        "name": built.name,
        "api": device.url + API_PREFIX,
        "token": built.api.token,
        "config": str(device.config),
        "clients": {client.name: client.address for client in built.clients},
        "wans": {wan.interface: wan.address for wan in built.wans},
        "nodes": {node.name: node.address for node in built.nodes.values()},
    }
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    for key in ("name", "api", "token"):
        click.echo(f"{key:<8}{told[key]}")
    for key in ("clients", "wans", "nodes"):
        shown = [f"{n} {a}" for n, a in told[key].items()]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        click.echo(f"{key:<8}{', '.join(shown[:_SHOWN])}{more}")
    rule = json.dumps({"ip": built.client(1).address, "target_node": "socks5"})
    click.echo(
        f"\nLet client1 out, see where it leaves, and take the lab down again:\n"
        f"  egressd lab exec --lab {built.name} router -- curl -s {told['api']}/rules \\\n"
        f"      -H 'Authorization: Bearer {told['token']}' --json '{rule}'\n"
        f"  egressd lab exec --lab {built.name} client1 -- curl -s http://203.0.113.10/\n"
        f"  egressd lab down {built.name}"
    )


@lab.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Also labs that a process is using now.")
def down(names: tuple[str, ...], everything: bool) -> None:
    """Remove the labs of these NAMES; without names, all labs that no process is using.

    Labs are found by their namespaces, so one that was built only in part is removed too.
    """
    from egressd_lab.ownership import in_use

    there = netns.labs()
    if unknown := [name for name in names if name not in there]:
        raise Failed("remove the lab", f"there is none called {', '.join(unknown)}")
    for name in names or there:
        if not names and not everything and in_use(name):
            click.echo(f"{name}: left alone, a process is using it", err=True)
            continue
        netns.remove_lab(name)
        click.echo(f"{name}: removed")


@lab.command()
@click.option("--json", "as_json", is_flag=True)
def status(as_json: bool) -> None:
    """List the labs on this machine and their namespaces."""
    from egressd_lab.ownership import in_use

    found = {
        name: {
            "in_use": in_use(name),
            "processes": len(netns.processes(netns.namespace(name, role) for role in roles)),
            "namespaces": roles,
        }
        for name, roles in netns.labs().items()
    }
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, lab_ in found.items():
        use = "a process is using it" if lab_["in_use"] else "running"
        click.echo(f"{name}: {use}, {lab_['processes']} processes")
        click.echo(f"  {' '.join(netns.labs()[name])}")
    if not found:
        click.echo("no lab; `egressd lab up` builds one")


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@click.option("--lab", "name", default="", help="The lab's name; needed when there are several.")
@click.argument("role")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, role: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND in the namespace of a ROLE: router, internet, client1, node-ss, …"""
    there = netns.labs()
    if not name and len(there) != 1:
        raise Failed("choose the lab", f"give --lab; there are: {', '.join(there) or 'none'}")
    name = name or next(iter(there))
    if role not in there.get(name, []):
        known = ", ".join(there.get(name, [])) or "no such lab"
        raise Failed(f"find {role} in lab {name}", known)
    argv = netns.exec_argv(netns.namespace(name, role), command)
    os.execvp(argv[0], argv)  # noqa: S606 - becomes the user's own command
