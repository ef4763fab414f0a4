"""Which module of the kernel's is missing, by what the kernel says when it cannot do something.

The kernel loads modules by itself, where it has them and may.
"""

from __future__ import annotations

from typing import Final

_NFT: Final = {
    "ct": "nft_ct",
    "dnat": "nft_nat",
    "fib": "nft_fib_inet",
    "fwd": "nft_fwd_netdev",
    "jhash": "nft_hash",
    "limit": "nft_limit",
    "log": "nft_log",
    "masquerade": "nft_masq",
    "notrack": "nft_ct",
    "numgen": "nft_numgen",
    "queue": "nft_queue",
    "redirect": "nft_redir",
    "reject": "nft_reject_inet",
    "snat": "nft_nat",
    "socket": "nft_socket",
    "symhash": "nft_hash",
    "tproxy": "nft_tproxy",
}
"""The word that an nftables expression begins with -> the module that brings it."""
_NETLINK: Final = {
    "Specified qdisc kind is unknown": "sch_htb sch_tbf",
    "Unknown device type": "ifb",
    "Failed to load TC action module": "act_mirred",
    "TC classifier not found": "cls_bpf",
}
"""What rtnetlink says without a module, and those that egressd uses."""


def for_nft(reason: str, culprit: str) -> str:
    """What to do about an expression that the kernel does not know; empty for another fault."""
    module = _NFT.get(culprit.partition(" ")[0])
    is_unknown = "No such file or directory" in reason or "not supported" in reason
    return _advice(module) if module and is_unknown else ""


def for_netlink(reason: str) -> str:
    """What to do about a kind of thing that the kernel does not know; empty for another fault."""
    return next((_advice(names) for told, names in _NETLINK.items() if told in reason), "")


def _advice(modules: str) -> str:
    return f"; the kernel lacks a module: modprobe {modules}"
