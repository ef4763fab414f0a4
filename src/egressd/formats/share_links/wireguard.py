"""``wireguard://`` and ``wg://`` links, as v2rayN and Hiddify write them: the user part is the
private key.
"""

from __future__ import annotations

from typing import Any, Final

from egressd.formats.config_json import NodeConfig
from egressd.formats.fields import list_from_text
from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.share_links.layers import read_udp, write_udp
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import decoded, encoded, link_to, number_or, split

_PARAMETER_OF: Final = {
    "public-key": "publickey",
    "pre-shared-key": "presharedkey",
    "ip": "address",
    "allowed-ips": "allowedips",
    "persistent-keepalive": "keepalive",
}
_USUAL_PORT: Final = 51820


def read_wireguard(link: str) -> ParsedNode:
    """Read ``wireguard://PRIVATE-KEY@host:port?publickey=…&address=…``, whose port is 51820 when
    there is none.

    Raises Unreadable.
    """
    uri = split(link)
    query = uri.query
    addresses = list_from_text(query.get("address", "ip", "local_address", "localaddress"))
    inner = [each for each in addresses if ":" not in each]
    given = {
        # A plus in a link stands for a blank, and not all programs escape it.
        "private-key": (decoded(uri.user) or query.get("privatekey", "pk")).replace(" ", "+"),
        "public-key": query.get("publickey", "peer_public_key", "peer_pk").replace(" ", "+"),
        "pre-shared-key": query.get("presharedkey", "psk", "pre_shared_key").replace(" ", "+"),
        "ip": inner[0] if inner else "",
        "allowed-ips": list_from_text(query.get("allowedips", "allowed_ips")),
        "reserved": query.get("reserved"),
        "mtu": number_or(query.get("mtu")),
        "persistent-keepalive": number_or(
            query.get("keepalive", "persistentkeepalive", "persistent_keepalive_interval")
        ),
    }
    config: dict[str, Any] = {"server": uri.host, "port": number_or(uri.port, _USUAL_PORT)}
    config |= {key: value for key, value in given.items() if value} | read_udp(query)
    notes = [no_effect(each) for each in addresses if each not in inner[:1]]
    return node_of("wireguard", config, uri, notes, _PARAMETER_OF)


def write_wireguard(config: NodeConfig, name: str) -> str:
    """Return the node as a ``wireguard://`` link."""
    fields = config.fields
    query = {
        "publickey": fields["public-key"],
        "presharedkey": fields.get("pre-shared-key", ""),
        "address": f"{fields['ip']}/32",
        "allowedips": ",".join(fields.get("allowed-ips", ())),
        "reserved": ",".join(map(str, fields.get("reserved", ()))),
        "mtu": str(fields.get("mtu", "")),
        "keepalive": str(fields.get("persistent-keepalive") or ""),
        **write_udp(fields),
    }
    return link_to("wireguard", encoded(fields["private-key"]), fields, query, name)
