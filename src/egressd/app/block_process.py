"""Blocks every client where a netd was to stop that cannot: it is dead, or heard of nothing.

That is what a netd does that is told to stop. This asks for no configuration and no plan, which
may be why there is no netd.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from egressd.app import logs
from egressd.model.errors import Failed
from egressd.netd.engine import strays
from egressd.netd.kernel.nft import Nft
from egressd.planner import nft as script

log = structlog.get_logger()


def main(_: Path | None) -> None:
    """Leave no client a way out, and end the engine in this network namespace."""
    logs.configure("block")
    nft = Nft()
    if nft.chains() is not None:  # without a table the policy rules let nobody out
        try:
            nft.run(script.block())
        except Failed as error:
            log.error("clients could not be blocked", error=str(error))
    if ended := strays.end():
        log.warning("ended the engine in place of netd", workers=ended)
