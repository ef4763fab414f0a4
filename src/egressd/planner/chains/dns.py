"""DNS questions of clients: each takes its client's egress, to the resolver that is asked by that
egress.

The chains `input`, `output` and `postrouting` have those of this machine and the engine.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import GROUP, ROUTED
from egressd.planner.declared import Chain, base_chain, chain

CHAINS: Final[dict[str, Chain]] = {
    "asking": chain(
        "DNS questions of clients: rate limits, then the client's own target",
        # Questions that a resolver in the LAN asks others must not come back to it.
        "ip saddr @resolvers jump metered_resolver",
        "ip saddr @resolvers goto client",
        "jump metered",
        "meta mark set ip saddr map @hosts goto ask",
        "jump metered_network",
        "meta mark set ip saddr map @nets goto ask",
        "meta mark set iifname map @dflt goto ask_unmanaged",
        "goto refused",
    ),
    "ask": chain(
        "DNS of clients with a rule: count, local names, the mark of the DNS server",
        "jump count",
        f"{GROUP} jump group",
        # If there are local names, an instance looks for them among the questions of clients with a
        # rule that the kernel routes.
        "meta mark set meta mark map @askers goto engine",
        # The resolver of a line may be one that is not asked through the line.
        "meta mark set meta mark map @asked",
        "goto dispatch",
    ),
    "ask_unmanaged": chain(
        "DNS of clients without a rule",
        "meta mark set meta mark map @asked",
        "goto unmanaged",
    ),
    "prerouting_dns": base_chain(
        "type nat hook prerouting priority dstnat; policy accept;",
        "kernel-routed DNS questions: destination NAT to the DNS server in use",
        "iifname @lanif meta l4proto { tcp, udp } th dport 53 ip saddr != @resolvers goto question",
        f"iifname @localif meta mark {ROUTED} meta l4proto {{ tcp, udp }} th dport 53"
        " ip saddr != @resolvers goto question",
    ),
    "question": chain(
        "DNAT of a question to the DNS server of its mark",
        f"meta mark {ROUTED} update @questions {{ meta mark }}",
        "dnat ip to meta mark map @dns4",
    ),
}
