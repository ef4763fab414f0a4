"""A node's configuration as a sing-box 1.14 outbound.

`build` is called for each node that something uses; the caller adds the tag and the dial
fields (mark, detour, resolver). One module a protocol family; `tls` and `transport` are
shared by them. Only what is written here reaches the engine: no key of a configuration is
passed through by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from egressd.formats.config_json import read_config
from egressd.model.nouns import Node
from egressd.planner.outbounds import anytls, plain, quic, shadowsocks, v2ray


class Outbound(msgspec.Struct, frozen=True, kw_only=True):
    """A sing-box outbound without its tag and dial fields, whether it carries UDP, and which
    addresses of its server's name are asked for (sing-box's domain strategy).

    ``repr`` shows only the type, since options hold secrets.
    """

    options: dict[str, Any]
    udp: bool
    strategy: str = "ipv4_only"

    def __repr__(self) -> str:
        return f"Outbound(type={self.options['type']!r}, udp={self.udp})"


_BUILDERS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "socks5": plain.socks5,
    "http": plain.http,
    "ss": shadowsocks.ss,
    "vmess": v2ray.vmess,
    "vless": v2ray.vless,
    "trojan": v2ray.trojan,
    "hysteria2": quic.hysteria2,
    "tuic": quic.tuic,
    "anytls": anytls.anytls,
}

_UDP_DEFAULT: Final = {"socks5": False, "http": False}
"""Protocols that carry no UDP unless told; plain HTTP proxies cannot."""
_STRATEGIES: Final = {
    "ipv6": "ipv6_only",
    "dual": "prefer_ipv4",
    "ipv4-prefer": "prefer_ipv4",
    "ipv6-prefer": "prefer_ipv6",
}
"""Clash's ``ip-version`` -> sing-box's word. By itself only IPv4 is asked for: who does not answer
questions for the other would hold up every connection."""
OVER_UDP: Final = frozenset({"hysteria2", "tuic"})
"""Protocols that run over UDP (QUIC): what they dial through has to carry it."""
_NO_NETWORK_OPTION: Final = ("http", "anytls")
"""Outbounds without sing-box's ``network`` option."""


def build(node: Node) -> Outbound:
    """The outbound of `node`. Raises Invalid when its configuration is not valid."""
    config = read_config(node.protocol, node.config_json)
    fields = config.fields
    udp = node.protocol != "http" and fields.get("udp", _UDP_DEFAULT.get(node.protocol, True))
    options = _BUILDERS[node.protocol](fields)
    # A hysteria2 node may have port ranges instead.
    port = {"server_port": fields["port"]} if "port" in fields else {}
    network = {} if udp or node.protocol in _NO_NETWORK_OPTION else {"network": "tcp"}
    return Outbound(
        options={**options, "server": fields["server"], **port, **network},
        udp=udp,
        strategy=_STRATEGIES.get(fields.get("ip-version", ""), "ipv4_only"),
    )
