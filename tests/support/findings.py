"""Findings about a machine, as `egressd check` makes them."""

from __future__ import annotations

from egressd.model.findings import MachineFinding
from egressd.model.wording import say

NO_DHCP = MachineFinding(
    weight="note",
    subject="DHCP",
    text=say("no-dhcp"),
    cost=say("no-dhcp-cost"),
    cure=say("no-dhcp-cure"),
)
NO_PPTP = MachineFinding(
    weight="limiting",
    subject="kernel modules",
    text=say("modules-missing", names=("ppp_mppe", "ppp_generic")),
    cost=say("modules-cost-pptp"),
    cure=say("modules-cure"),
)
NO_LAN = MachineFinding(
    weight="blocking",
    subject="LAN",
    text=say("no-lan-here"),
    cost=say("no-lan-here-cost"),
    cure=say("no-lan-here-cure"),
)
