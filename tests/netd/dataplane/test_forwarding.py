"""The conditions under which the machine may forward packets at all."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from egressd.model.device import InterfaceRoles
from egressd.netd.dataplane import kernel_state
from egressd.netd.kernel.nft import Nft
from egressd.planner.sysctls import forwarding
from egressd.planner.topology import Topology


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The parameters that would be written below /proc/sys; nothing is written."""
    found: list[Mapping[str, str]] = []
    monkeypatch.setattr("egressd.netd.kernel.sysctl.write", found.append)
    return found


@pytest.mark.parametrize(("lans", "is_forwarding"), [((), False), (("lan0",), True)])
def test_p1_nothing_is_forwarded_before_a_lan_is_found(
    lans: tuple[str, ...], is_forwarding: bool, written: list[Mapping[str, str]]
) -> None:
    # Packets of a LAN that no configuration names would pass without rules from its start until
    # netd sees it.
    """Past fault: forwarding was enabled before a LAN was found, so that a LAN was forwarded
    without rules from the time when it came up until netd saw it.
    """
    subject = kernel_state.KernelState(Nft(), InterfaceRoles(), engine_uid=990)
    subject.topology = Topology(lans=lans)
    subject.forward()
    assert written == ([forwarding()] if is_forwarding else [])
