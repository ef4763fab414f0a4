"""The effect of a change on clients, computed before anything is touched.

Pure: computed from a change and the plan that it starts from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from socket import inet_aton

import msgspec

from egressd.model.plan import Change, Plan
from egressd.netd.kernel.address_ranges import RangeMap
from egressd.planner.registry import MARK_ENGINE, MARK_KIND_MASK, epoch_of


def with_epoch(change: Change, plan: Plan) -> Change:
    """Return the change with the epoch that its whitelist is given; without that whitelist if the
    plan has it already.

    That is the state's own. A state without one continues the plan's count. A whitelist that sends
    other traffic than the plan's, or the same traffic to another destination, gets another epoch
    than the plan's in any case: a database that was restored or begun anew may have the same.
    """
    wanted, current = change.whitelist, plan.whitelist
    if wanted is None:
        return change
    epoch = wanted.epoch or current.epoch
    if epoch == current.epoch and not wanted.same_entries(current):
        epoch = epoch_of(epoch + 1)
    given = msgspec.structs.replace(wanted, epoch=epoch)
    return msgspec.structs.replace(change, whitelist=None if given == current else given)


def moved(change: Change, plan: Plan, before: RangeMap, after: RangeMap) -> list[str]:
    """Return the addresses and ranges whose mark changes: all of them if the whitelist changes.

    `before` and `after` are the marks of ranges in the plan, and in the plan after the change.
    Within a range that moves, a host that has or had a rule of its own moves only if the result
    names it itself.
    """
    if change.whitelist is not None and change.whitelist.epoch != plan.whitelist.epoch:
        return list({**plan.hosts, **change.hosts.put, **plan.nets, **change.nets.put})

    def mark(ip: str, hosts: Mapping[str, int], ranges: RangeMap) -> int:
        return hosts.get(ip) or ranges.get(inet_aton(ip))

    touched = (*change.hosts.put, *change.hosts.drop)
    hosts = [
        ip for ip in touched if mark(ip, plan.hosts, before) != mark(ip, change.hosts.put, after)
    ]
    return [*hosts, *before.differing(after)]


def engine_served(clients: Sequence[str], plan: Plan) -> list[str]:
    """Return those of `clients` that may have sockets in the engine under `plan`."""
    if plan.whitelist.mark or plan.nets or plan.policy.local_resolvers:
        return list(clients)
    return [
        client
        for client in clients
        if plan.hosts.get(client, MARK_ENGINE) & MARK_KIND_MASK == MARK_ENGINE
    ]
