"""Block every client in place of a netd that should stop and cannot: it is dead, or did not react.

A netd that stops blocks every client itself. This process needs no configuration and no plan, since
these may be the reason why netd is gone.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from egressd.app import config, logs
from egressd.model.errors import EgressdError, Failed
from egressd.netd.cluster import gateway
from egressd.netd.engine import launch
from egressd.netd.kernel import addresses, conntrack, fast_path
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.nft import Nft
from egressd.netd.system import daemon_group, orphans
from egressd.planner import nft as script

log = structlog.get_logger()


def main(path: Path | None) -> None:
    """Block every client, and end the engine, the lines and a pair's daemons of this network
    namespace. The addresses that a pair shares are the other box's then.
    """
    logs.configure("block")
    nft = Nft()
    try:
        fast_path.close()
    except OSError as error:
        log.error("cannot block established flows", error=str(error))
    if nft.chains() is not None:  # without a table the policy rules let no client out
        try:
            nft.run(script.block())
        except Failed as error:
            log.error("cannot block clients", error=str(error))
    if ended := orphans.end(
        lambda it: launch.is_worker(it) or daemon_group.folder_of(it) is not None
    ):
        log.warning("ended engine and line processes", pids=ended)
    try:
        conntrack.forget_datagrams(Ranges(nft.elements("lannet") or ()))
    except (Failed, OSError) as error:
        log.error("cannot end what far ends send to clients", error=str(error))
    try:
        addresses.remove(gateway.left_in(_pair_folder(path)))
    except OSError as error:
        log.error("cannot remove a pair's addresses", error=str(error))


def _pair_folder(path: Path | None) -> Path:
    """Return the folder of a pair's daemons; the usual one if the configuration cannot be read."""
    try:
        return config.load(path).pair_folder
    except EgressdError:
        return config.Config().pair_folder
