"""A node's configuration as an outbound of `model`.

`build` is called for each node that is in use. Each protocol family has one module; `tls` and
`transport` are shared by them. Only the fields written here reach the engine: no key of a
configuration is passed through by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from egressd.formats.config_json import FIELD, read_config
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.nouns import Node
from egressd.model.outbounds import Outbound
from egressd.planner.outbounds import anytls, plain, quic, shadowsocks, ssh, v2ray, wireguard

_BUILDERS: Final[Mapping[str, Callable[..., Outbound]]] = {
    "socks5": plain.socks5,
    "http": plain.http,
    "ss": shadowsocks.ss,
    "vmess": v2ray.vmess,
    "vless": v2ray.vless,
    "trojan": v2ray.trojan,
    "hysteria": quic.hysteria,
    "hysteria2": quic.hysteria2,
    "tuic": quic.tuic,
    "anytls": anytls.anytls,
    "ssh": ssh.ssh,
    "wireguard": wireguard.wireguard,
}

_UDP_DEFAULT: Final = {"socks5": False}
"""Protocols that carry UDP only if the configuration says so."""
_WITHOUT_UDP: Final = ("http", "ssh")
"""Protocols that cannot carry UDP."""
_STRATEGIES: Final = {
    "ipv6": "ipv6_only",
    "dual": "prefer_ipv4",
    "ipv4-prefer": "prefer_ipv4",
    "ipv6-prefer": "prefer_ipv6",
}
"""Clash's ``ip-version`` -> sing-box's word. The default asks for IPv4 only, since a resolver that
does not answer AAAA queries would hold up every connection.
"""
OVER_UDP: Final = frozenset({"hysteria", "hysteria2", "tuic", "wireguard"})
"""Protocols that run over UDP. The node that they dial through must carry UDP."""
TUNNELS: Final = frozenset({"wireguard"})
"""Protocols whose server knows one end of a key. A node of theirs has one instance, which serves
clients with a rule: a second one would take the answers of the first.
"""
_DECODER: Final[msgspec.msgpack.Decoder[Outbound]] = msgspec.msgpack.Decoder(Outbound)


def build(node: Node) -> Outbound:
    """Return the outbound of `node`. Raises Invalid when its configuration is not valid."""
    fields = read_config(node.protocol, node.config_json).fields
    # A hysteria2 node may have port ranges instead.
    port = {"server_port": fields["port"]} if "port" in fields else {}
    made = _BUILDERS[node.protocol](
        fields,
        server=fields["server"],
        udp=node.protocol not in _WITHOUT_UDP
        and fields.get("udp", _UDP_DEFAULT.get(node.protocol, True)),
        strategy=_STRATEGIES.get(fields.get("ip-version", ""), "ipv4_only"),
        **port,
    )
    try:
        # Decode it as netd does, which would refuse the whole plan for one bad node.
        return _DECODER.decode(msgspec.msgpack.encode(made))
    except msgspec.ValidationError as error:
        raise Invalid(fault(FIELD, "engine-form", reason=str(error))) from error
