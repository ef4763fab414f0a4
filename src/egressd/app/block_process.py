"""Block every client in place of a netd that should stop and cannot: it is dead, or did not react.

A netd that stops blocks every client itself. This process needs no configuration and no plan, since
these may be the reason why netd is gone.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from egressd.app import logs
from egressd.model.errors import Failed
from egressd.netd.engine import launch
from egressd.netd.kernel import fast_path
from egressd.netd.kernel.nft import Nft
from egressd.netd.system import daemon_group, orphans
from egressd.planner import nft as script

log = structlog.get_logger()


def main(_: Path | None) -> None:
    """Block every client, and end the engine and the lines of this network namespace."""
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
