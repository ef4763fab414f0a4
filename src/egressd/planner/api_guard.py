"""Rate limits for calls of the API: fragments of the nftables table.

Each new connection takes the api's one thread some tenths of a millisecond, whether it succeeds or
not. So connections are counted where they arrive: by address and by network (a /24, or a /64 of
IPv6, because a host may take any address there), those of this machine by user. A dropped SYN is
sent again after a second (RFC 6298, 2.1). Clients that keep a connection open, and root, are not
limited.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.declared import Chain, SetSpec, chain

CALLS_PER_S: Final = 50
"""New connections of one address, or of one user, per second."""
_OF_ONE: Final = f"{CALLS_PER_S}/second burst 500 packets"
_OF_A_NETWORK: Final = "100/second burst 1000 packets"
_METERED: Final = "size 65535; flags dynamic,timeout; timeout 1m"
_REFUSED: Final = "size 65535; counter; flags dynamic,timeout; timeout 10s"

SETS: Final = {
    "api_ports": SetSpec("type inet_service", "TCP ports of the API"),
    # Packets fill all of these sets.
    "api_calls": SetSpec(
        f"type ipv4_addr; {_METERED}", "rate of new API connections by address; filled by packets"
    ),
    "api_calls6": SetSpec(
        f"type ipv6_addr; {_METERED}",
        "rate of new API connections by IPv6 address; filled by packets",
    ),
    "api_calls_of_networks": SetSpec(
        f"type ipv4_addr; {_METERED}", "rate of new API connections by /24; filled by packets"
    ),
    "api_calls_of_networks6": SetSpec(
        f"type ipv6_addr; {_METERED}", "rate of new API connections by /64; filled by packets"
    ),
    "api_calls_of_users": SetSpec(
        f"typeof meta skuid; {_METERED}",
        "rate of new API connections by user of this machine; filled by packets",
    ),
    "full_api": SetSpec(
        f"type ipv4_addr; {_REFUSED}", "addresses beyond the API's rate limit, with refused packets"
    ),
    "full_api6": SetSpec(
        f"type ipv6_addr; {_REFUSED}",
        "IPv6 addresses beyond the API's rate limit, with refused packets",
    ),
}

_NEW_CALL: Final = "tcp dport @api_ports tcp flags & (fin | syn | rst | ack) == syn"

INPUT: Final = (f"{_NEW_CALL} jump to_api",)
OUTPUT: Final = (f'oifname "lo" {_NEW_CALL} meta skuid != 0 jump user_to_api',)

CHAINS: Final[dict[str, Chain]] = {
    "to_api": chain(
        "new API connections: rate by address and network",
        'iifname "lo" return',
        "meta nfproto ipv6 goto to_api6",
        f"update @api_calls {{ ip saddr limit rate over {_OF_ONE} }} goto too_many_calls",
        "update @api_calls_of_networks"
        f" {{ ip saddr & 255.255.255.0 limit rate over {_OF_A_NETWORK} }} goto too_many_calls",
    ),
    "to_api6": chain(
        "new API connections over IPv6: rate by address and network",
        f"update @api_calls6 {{ ip6 saddr limit rate over {_OF_ONE} }} goto too_many_calls",
        "update @api_calls_of_networks6"
        f" {{ ip6 saddr & ffff:ffff:ffff:ffff:: limit rate over {_OF_A_NETWORK} }}"
        " goto too_many_calls",
    ),
    "user_to_api": chain(
        "new API connections of this machine's users: rate by user",
        f"update @api_calls_of_users {{ meta skuid limit rate over {_OF_ONE} }}"
        " goto too_many_calls",
    ),
    "too_many_calls": chain(
        "remember the address, drop; the SYN is sent again after a second",
        "meta nfproto ipv4 update @full_api { ip saddr } drop",
        "update @full_api6 { ip6 saddr } drop",
    ),
}
