"""Completion of names in a shell: the device is asked for them, and does not answer for long.

A shell that completes must never be held up, nor see an error: without an answer there is nothing
to choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem

from egressd.cli.remote import Remote, remote_of
from egressd.model.errors import EgressdError
from egressd.model.names import GROUP_PREFIX, INTERFACE_PREFIX

ANSWER_S: Final = 2.0
"""Seconds for which a completion waits for the device's answer."""
_SHOWN_MAX: Final = 200
"""Names that a shell is given."""

Choice = tuple[str, str]
"""A name, and a few words about it."""
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completing(find: Callable[[Remote], Iterable[Choice]]) -> Complete:
    """Return the completion of the names that `find` yields, for ``shell_complete``."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        given = ctx.params.get(param.name or "") or ()
        taken = {*given} if isinstance(given, tuple) else set()
        try:
            choices = [*find(remote_of(ctx.params, answer_s=ANSWER_S))]
        except EgressdError:
            return []
        found = [
            CompletionItem(name, help=words or None)
            for name, words in choices
            if name.startswith(incomplete) and name not in taken
        ]
        return found[:_SHOWN_MAX]

    return complete


def _rules(remote: Remote) -> Iterator[Choice]:
    for rule in remote.rows("/rules"):
        yield rule["ip"], f"{rule['target_node']} {rule['comment']}".strip()


def _nodes(remote: Remote) -> Iterator[Choice]:
    for node in remote.rows("/nodes"):
        yield node["name"], node["protocol"]


def _lines(remote: Remote) -> Iterator[Choice]:
    for line in remote.rows("/vpn-lines"):
        yield line["name"], line["server"]


def _proxies(remote: Remote) -> Iterator[Choice]:
    for service in remote.rows("/proxy-services"):
        yield service["name"], f"{service['outbound_interface']} {service['port']}"


def _devices(remote: Remote) -> Iterator[Choice]:
    for device in remote.get("/ops/devices", limit=_SHOWN_MAX)["data"]:
        yield device["mac"], device["name"] or device["hostname"] or device["vendor"]


def _groups(remote: Remote) -> Iterator[Choice]:
    for group in remote.rows("/ops/groups?resolved=false"):
        yield group["name"], group["strategy_in_force"]


def _targets(remote: Remote) -> Iterator[Choice]:
    yield "DIRECT", "the device's own way"
    yield "REJECT", "nowhere"
    yield from _named_targets(remote)


def _members(remote: Remote) -> Iterator[Choice]:
    yield "DIRECT", "the device's own way"
    yield from _named_targets(remote)


def _named_targets(remote: Remote) -> Iterator[Choice]:
    for group in remote.rows("/ops/groups?resolved=false"):
        yield GROUP_PREFIX + group["name"], "group"
    for name in remote.get("/system/interfaces")["interfaces"]:
        yield INTERFACE_PREFIX + name, "interface"
    for node in remote.rows("/nodes"):
        yield node["name"], node["protocol"]


rule_addresses = completing(_rules)
node_names = completing(_nodes)
line_names = completing(_lines)
proxy_names = completing(_proxies)
device_macs = completing(_devices)
targets = completing(_targets)
group_names = completing(_groups)
member_targets = completing(_members)
