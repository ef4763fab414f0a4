"""Which fields a node of each protocol has: Clash/mihomo's names, and what each takes.

The bounds and choices are those of the engine (sing-box 1.14), so that a configuration
accepted here is one that the engine starts with. A key that no table names never reaches
the engine. One module a protocol family, as in `planner.outbounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from egressd.formats.entries.anytls import ANYTLS
from egressd.formats.entries.entry import Entry
from egressd.formats.entries.plain import HTTP, SOCKS5
from egressd.formats.entries.quic import HYSTERIA2, TUIC
from egressd.formats.entries.shadowsocks import SS
from egressd.formats.entries.v2ray import TROJAN, VLESS, VMESS

PROTOCOLS: Final[Mapping[str, Entry]] = {
    "socks5": SOCKS5,
    "http": HTTP,
    "ss": SS,
    "vmess": VMESS,
    "vless": VLESS,
    "trojan": TROJAN,
    "hysteria2": HYSTERIA2,
    "tuic": TUIC,
    "anytls": ANYTLS,
}
"""What a node's ``protocol`` may be."""
