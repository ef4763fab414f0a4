"""Runs scenarios, one after another: ``python -m tests.vm.inside.main SHARED [SCENARIO...]``.

It runs all of them, or the named ones and those that they build upon. The short ones of odd servers
come last, when the eight lines have ended: to boot another machine for them takes longer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.vm.inside import clock, network, oddities
from tests.vm.inside.costs import a_known_flow_costs_less
from tests.vm.inside.credentials import odd_credentials_log_in
from tests.vm.inside.failures import FAILURES, all_is_ended
from tests.vm.inside.libreswan import libreswan_and_l2tpns_serve_a_line
from tests.vm.inside.makes import left_out
from tests.vm.inside.many import many_lines_start
from tests.vm.inside.network import SERVERS
from tests.vm.inside.probes import Web
from tests.vm.inside.scenarios import SCENARIOS, all_come_online, the_taps_see
from tests.vm.inside.softether import a_server_of_another_make
from tests.vm.inside.suite import PROCESSES, Suite, users

SHORT: Final = (
    *SCENARIOS,
    odd_credentials_log_in,
    a_server_of_another_make,
    libreswan_and_l2tpns_serve_a_line,
    *FAILURES,
)
LONG: Final = (a_known_flow_costs_less, many_lines_start)
"""Scenarios that run only when they are named: they take minutes."""

ALL: Final = (the_taps_see, all_come_online, *SHORT, *LONG, all_is_ended, *oddities.SHORT)


async def _opened(shared: Path) -> Suite:
    """Build the network, and start everything in it."""
    PROCESSES.set_forkserver_preload(["tests.vm.inside.router"])
    network.build()
    suite = Suite(shared)
    for tap in suite.taps.values():
        tap.start()
    await suite.run(the_taps_see)
    await asyncio.gather(
        suite.start_router(),
        *(asyncio.to_thread(network.start_server, name, users(name)) for name in SERVERS),
    )
    await Web().open()
    for client in suite.clients.values():
        client.start()
    return suite


async def main(shared: Path, chosen: Collection[str]) -> None:
    with clock.steady():
        suite = await _opened(shared)
    await suite.run(all_come_online)
    reasons = left_out()
    odd = [each for each in oddities.SHORT if not chosen or each.__name__ in chosen]
    if chosen and odd:
        chosen = {*chosen, all_is_ended.__name__}
    for scenario in (*SHORT, *LONG, all_is_ended):
        name = scenario.__name__
        if name in reasons:
            print(reasons[name], flush=True)
        elif not chosen or name in chosen:
            await suite.run(scenario)
    if odd:
        await oddities.follow(suite, odd)
    (shared / "done").touch()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
