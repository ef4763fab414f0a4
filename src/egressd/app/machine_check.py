"""All that this machine lacks for egressd, in two parts: netd's unit sees the whole system, the
api's unit no more than the network and its own folders.

Both parts read files, and may wait for a disk.
"""

from __future__ import annotations

import shutil
import time

from egressd.app import network, preflight
from egressd.app.config import Config
from egressd.model.errors import Failed
from egressd.model.findings import MachineFinding
from egressd.model.wording import Sentence
from egressd.planner.topology import discover


def of_system(settings: Config, *, is_running: bool) -> tuple[MachineFinding, ...]:
    """Return what kernel and system lack. `is_running`: whether egressd runs here."""
    look = preflight.Look()
    resolvers = () if settings.dns.device else preflight.resolvers(look)
    return (*preflight.kernel(look), *resolvers, *preflight.system(look, is_running))


def of_configuration(settings: Config, *, is_running: bool) -> tuple[MachineFinding, ...]:
    """Return what the configuration asks for and this machine does not have. Raises Failed."""
    try:
        topology = discover(network.facts(), settings.roles)
        present = network.interface_names()
        named = (*settings.lan.interfaces, *settings.wan.interfaces)
        free = _free_bytes(settings)
    except OSError as error:
        raise Failed("see this machine's interfaces and disk", str(error)) from error
    missing = [name for name in named if name not in present]
    return (
        *preflight.roles(topology.lans, topology.wans, missing),
        *preflight.one_arm(topology.lans, topology.wans),
        *preflight.ports(network.listening_ports(), settings.own_ports, is_running),
        *preflight.clock(time.time()),
        *preflight.disk(free, settings.data.dir),
    )


def disk_problems(settings: Config) -> tuple[Sentence, ...]:
    """Return a sentence if the data folder's file system is nearly full."""
    try:
        free = _free_bytes(settings)
    except OSError:
        return ()  # whatever is the matter with it, others say
    return tuple(found.text for found in preflight.disk(free, settings.data.dir))


def _free_bytes(settings: Config) -> int:
    folder = next(p for p in (settings.data.dir, *settings.data.dir.parents) if p.exists())
    return shutil.disk_usage(folder).free
