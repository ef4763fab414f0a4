"""DNS questions: each takes its client's egress, to the resolver that is asked by that egress."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import ROUTED

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "asking": (
        # Questions that a resolver in the LAN asks others must not come back to it.
        "ip saddr @resolvers jump metered_resolver",
        "ip saddr @resolvers goto client",
        "jump metered",
        "meta mark set ip saddr map @hosts goto ask",
        "jump metered_network",
        "meta mark set ip saddr map @nets goto ask",
        "meta mark set iifname map @dflt goto ask_unmanaged",
        "goto deny",
    ),
    "ask": (
        "jump count",
        # If there are local names, an instance looks for them among the questions of clients with a
        # rule that the kernel routes.
        "meta mark set meta mark map @askers goto engine",
        # The resolver of a line may be one that is not asked through the line.
        "meta mark set meta mark map @asked",
        "goto dispatch",
    ),
    "ask_unmanaged": (
        "meta mark set meta mark map @asked",
        "goto unmanaged",
    ),
    "prerouting_dns": (
        "type nat hook prerouting priority dstnat; policy accept;",
        "iifname @lanif meta l4proto { tcp, udp } th dport 53 ip saddr != @resolvers goto question",
        f"iifname @localif meta mark {ROUTED} meta l4proto {{ tcp, udp }} th dport 53"
        " ip saddr != @resolvers goto question",
    ),
    "question": (
        f"meta mark {ROUTED} update @questions {{ meta mark }}",
        "dnat ip to meta mark map @dns4",
    ),
    "from_local_to_router": (
        "meta l4proto { tcp, udp } th dport 53 meta mark . ip daddr @here accept",
        "drop",
    ),
    "dns_to_router": (
        # The resolver of the client's questions may be on this machine.
        "meta mark . ip daddr @here return",
        # A kernel-routed client's question without a resolver of its own stops here.
        f"meta mark {ROUTED} th dport 53 drop",
        "meta nfproto ipv6 reject",
    ),
    "output_dns": (
        "type nat hook output priority -100; policy accept;",
        # The engine's own questions, such as the names of nodes' servers. netd's own questions,
        # which check that resolvers answer, keep their destination.
        "meta skuid != 0 meta l4proto { tcp, udp } th dport 53 goto engines_question",
    ),
    "engines_question": (
        f"meta mark {ROUTED} update @questions {{ meta mark }}",
        "dnat ip to meta mark . ip daddr map @substitutes",
    ),
    "to_resolver": (
        # If output_dns has replaced the resolver that was asked, this hook still names the
        # interface of the old route. The chain postrouting_last checks again.
        "ct status dnat accept",
        # A resolver on this machine or on a network behind it is asked there.
        'oifname "lo" accept',
        "goto to_neighbour",
    ),
    "to_resolver_instead": (
        "meta mark . oifname vmap @pairs",
        'oifname "lo" accept',
        "goto to_neighbour",
    ),
}
