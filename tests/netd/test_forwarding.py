"""When the machine may forward packets at all."""

from __future__ import annotations

from typing import Any, cast

import pytest

from egressd.model.device import Ports
from egressd.netd import machine
from egressd.netd.kernel.nft import Nft
from egressd.planner.topology import Topology


@pytest.mark.parametrize("lans", [(), ("lan0",)])
def test_p1_nothing_is_forwarded_but_what_comes_in_by_interfaces_that_were_seen(
    lans: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A LAN that no configuration names would pass unruled from its coming up until it is seen.
    allowed: list[frozenset[str]] = []
    monkeypatch.setattr("egressd.netd.kernel.sysctl.forward", allowed.append)
    subject = machine.Machine(cast(Nft, cast(Any, None)), Ports(), engine_uid=990)
    subject.topology = Topology(lans=lans)
    subject.forward()
    assert allowed == [frozenset(lans)]
