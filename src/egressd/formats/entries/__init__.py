"""The fields of a node of each protocol: Clash/mihomo's names, and the values that each takes.

The bounds and choices are those of the engine (sing-box 1.14), so that the engine starts with each
configuration that is accepted here. A key that no table names never reaches the engine. Each
protocol family has one module, as in `planner.outbounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from egressd.formats.entries.anytls import ANYTLS
from egressd.formats.entries.entry import Entry
from egressd.formats.entries.plain import HTTP, SOCKS5
from egressd.formats.entries.quic import HYSTERIA, HYSTERIA2, TUIC
from egressd.formats.entries.shadowsocks import SS
from egressd.formats.entries.ssh import SSH
from egressd.formats.entries.v2ray import TROJAN, VLESS, VMESS
from egressd.formats.entries.wireguard import WIREGUARD

PROTOCOLS: Final[Mapping[str, Entry]] = {
    "socks5": SOCKS5,
    "http": HTTP,
    "ss": SS,
    "vmess": VMESS,
    "vless": VLESS,
    "trojan": TROJAN,
    "hysteria": HYSTERIA,
    "hysteria2": HYSTERIA2,
    "tuic": TUIC,
    "anytls": ANYTLS,
    "ssh": SSH,
    "wireguard": WIREGUARD,
}
"""The values that a node's ``protocol`` may have."""
