"""Rows of nodes: ``socks5``, ``ss``, ``vlessvmess``, sellers'; and Clash entries (``others``)."""

from __future__ import annotations

from typing import Any, Final

from egressd.formats.clash_keys import normalised, protocol_of
from egressd.formats.entries import PROTOCOLS
from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.rows import Unreadable, fields, separated
from egressd.formats.scalars import is_absent, text_of, to_json
from egressd.formats.seller_rows import SellerRow
from egressd.formats.share_links.layers import PARAMETER_OF, read_layers
from egressd.formats.share_links.parameters import Parameters
from egressd.formats.share_links.uri import number_or
from egressd.model.wording import Sentence

_VLESS: Final = ("network", "security", "sni", "path", "host", "flow", "pbk", "sid", "fp", "name")
_VMESS: Final = ("alterId", "cipher", "network", "security", "sni", "path", "host", "name")
_V2RAY_START: Final = ("scheme", "uuid", "server", "port")
_ITS_OWN: Final = ("uuid", "server", "port", "alterId", "cipher", "flow", "name")
"""Fields of a ``vless|`` or ``vmess|`` row that are not parameters of its layers."""
_COLUMN_OF: Final = {**PARAMETER_OF, "network": "network", "grpc-opts.grpc-service-name": "path"}


def socks5_row(row: str) -> ParsedNode:
    """Read ``IP,Port[,User,Pass[,Name]]``. Raises Unreadable."""
    found = fields(row)
    if len(found) not in (2, 4, 5):
        raise Unreadable(
            "a socks5 node is IP,Port,User,Pass or IP,Port,User,Pass,Name, or host:port:user:pass"
        )
    server, port, username, password, name = [*found, "", "", ""][:5]
    config = {"server": server, "port": number_or(port)}
    if username or password:
        config |= {"username": username, "password": password}
    return ParsedNode("socks5", config, name)


def node_of_seller(row: SellerRow) -> ParsedNode:
    """Return a SOCKS5 node, since sellers' rows without a scheme mean SOCKS5."""
    config: dict[str, Any] = {"server": row.host, "port": row.port}
    credentials = {"username": row.username, "password": row.password}
    config |= {key: value for key, value in credentials.items() if value}
    return ParsedNode("socks5", config, row.name)


def ss_row(row: str) -> ParsedNode:
    """Read ``IP,Port,Cipher,Password[,Name]``. Raises Unreadable."""
    found = fields(row)
    if len(found) not in (4, 5):
        raise Unreadable("an ss node is IP,Port,Cipher,Password or IP,Port,Cipher,Password,Name")
    server, port, cipher, password, name = [*found, ""][:5]
    config = {"server": server, "port": number_or(port), "cipher": cipher, "password": password}
    return ParsedNode("ss", config, name)


def vlessvmess_row(row: str) -> ParsedNode:
    """Read a ``|`` separated row. All but the scheme, uuid, server and port may be missing.

    ``vless|uuid|server|port|network|security|sni|path|host|flow|pbk|sid|fp|name`` or
    ``vmess|uuid|server|port|alterId|cipher|network|security|sni|path|host|name``. With gRPC the
    path is the service's name. Raises Unreadable.
    """
    found = separated(row, "|")
    protocol = found[0].lower()
    if protocol not in ("vless", "vmess"):
        raise Unreadable("the row must begin with vless| or vmess|")
    form = (*_V2RAY_START, *(_VLESS if protocol == "vless" else _VMESS))
    if not len(_V2RAY_START) <= len(found) <= len(form):
        raise Unreadable(f"a {protocol} node is {'|'.join((protocol, *form[1:]))}")
    given = {key: value for key, value in zip(form[1:], found[1:], strict=False) if value}
    server = given.get("server", "")
    config: dict[str, Any] = {
        "server": server,
        "port": number_or(given.get("port", "")),
        "uuid": given.get("uuid", ""),
    }
    if "alterId" in given:
        config["alterId"] = number_or(given["alterId"])
    config |= {key: given[key] for key in ("cipher", "flow") if key in given}
    is_grpc = given.get("network", "").lower() == "grpc"
    layers = Parameters(
        ("serviceName" if key == "path" and is_grpc else key, value)
        for key, value in given.items()
        if key not in _ITS_OWN
    )
    notes: list[Sentence] = []
    config |= read_layers(
        layers,
        name_key="servername",
        server=server,
        notes=notes,
        has_name_of_host=protocol == "vmess",
    )
    notes += map(no_effect, layers.unused())
    return ParsedNode(protocol, config, given.get("name", ""), tuple(notes), _COLUMN_OF)


def clash_node(entry: Any) -> ParsedNode:
    """Return the node of a Clash entry. Raises Unreadable."""
    if not isinstance(entry, dict) or all(map(is_absent, entry.values())):
        raise Unreadable(
            f"type must be one of {', '.join(PROTOCOLS)}: the row is no entry, nor a share "
            "link, host:port:user:password, or base64 of these"
        )
    # These keys may be in any case, as the other keys may (`clash_keys`).
    own = {folded: key for key in entry if (folded := key.lower()) in ("name", "type")}
    name, kind = (text_of(entry.get(own.get(key, key))) for key in ("name", "type"))
    protocol = protocol_of(kind)
    if protocol not in PROTOCOLS:
        return ParsedNode(protocol, {})
    normal = normalised(protocol, {k: v for k, v in entry.items() if k not in own.values()})
    if normal.problems:
        raise Unreadable(*normal.problems)
    kinds = PROTOCOLS[protocol].table.keys
    config = {key: to_json(value, kinds.get(key)) for key, value in normal.fields.items()}
    notes = tuple(map(no_effect, normal.idle))
    return ParsedNode(protocol, config, name, notes)
