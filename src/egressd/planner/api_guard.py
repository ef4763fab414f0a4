"""Rate limits for calls of the API: fragments of the nftables table.

Each new connection takes the api's one thread some tenths of a millisecond, whether it succeeds or
not. So connections are counted where they arrive: by address and by network (a /24, or a /64 of
IPv6, because a host may take any address there), those of this machine by user. A dropped SYN is
sent again after a second (RFC 6298, 2.1). Clients that keep a connection open, and root, are not
limited.
"""

from __future__ import annotations

from typing import Final

CALLS_PER_S: Final = 50
"""New connections of one address, or of one user, per second."""
_OF_ONE: Final = f"{CALLS_PER_S}/second burst 500 packets"
_OF_A_NETWORK: Final = "100/second burst 1000 packets"
_METERED: Final = "size 65535; flags dynamic,timeout; timeout 1m"
_REFUSED: Final = "size 65535; counter; flags dynamic,timeout; timeout 10s"

SETS: Final = {
    "api_ports": "type inet_service",
    # Packets fill all of these sets.
    "api_calls": f"type ipv4_addr; {_METERED}",
    "api_calls6": f"type ipv6_addr; {_METERED}",
    "api_calls_of_networks": f"type ipv4_addr; {_METERED}",
    "api_calls_of_networks6": f"type ipv6_addr; {_METERED}",
    "api_calls_of_users": f"typeof meta skuid; {_METERED}",
    "full_api": f"type ipv4_addr; {_REFUSED}",
    "full_api6": f"type ipv6_addr; {_REFUSED}",
}

_NEW_CALL: Final = "tcp dport @api_ports tcp flags & (fin | syn | rst | ack) == syn"

INPUT: Final = (f"{_NEW_CALL} jump to_api",)
OUTPUT: Final = (f'oifname "lo" {_NEW_CALL} meta skuid != 0 jump user_to_api',)

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "to_api": (
        'iifname "lo" return',
        "meta nfproto ipv6 goto to_api6",
        f"update @api_calls {{ ip saddr limit rate over {_OF_ONE} }} goto too_many_calls",
        "update @api_calls_of_networks"
        f" {{ ip saddr & 255.255.255.0 limit rate over {_OF_A_NETWORK} }} goto too_many_calls",
    ),
    "to_api6": (
        f"update @api_calls6 {{ ip6 saddr limit rate over {_OF_ONE} }} goto too_many_calls",
        "update @api_calls_of_networks6"
        f" {{ ip6 saddr & ffff:ffff:ffff:ffff:: limit rate over {_OF_A_NETWORK} }}"
        " goto too_many_calls",
    ),
    "user_to_api": (
        f"update @api_calls_of_users {{ meta skuid limit rate over {_OF_ONE} }}"
        " goto too_many_calls",
    ),
    "too_many_calls": (
        "meta nfproto ipv4 update @full_api { ip saddr } drop",
        "update @full_api6 { ip6 saddr } drop",
    ),
}
