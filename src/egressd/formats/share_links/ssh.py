"""``ssh://`` links, as Hiddify writes them.

``pk`` is a private key of OpenSSH without its first and last line, and ``hk`` lists the server's.
"""

from __future__ import annotations

from typing import Any, Final

from egressd.formats.config_json import NodeConfig
from egressd.formats.node_draft import ParsedNode
from egressd.formats.share_links.layers import needs_plain_tcp
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import encoded, link_to, number_or, split, user_and_password

_BEGIN: Final = "-----BEGIN OPENSSH PRIVATE KEY-----"
_END: Final = "-----END OPENSSH PRIVATE KEY-----"
_PARAMETER_OF: Final = {
    "private-key": "pk",
    "private-key-passphrase": "passphrase",
    "host-key": "hk",
    "host-key-algorithms": "hka",
    "udp": "",
}


def read_ssh(link: str) -> ParsedNode:
    """Read ``ssh://user:password@host:port?pk=…&hk=…``, whose port is 22 when there is none.

    Raises Unreadable.
    """
    uri = split(link)
    query = uri.query
    username, password = user_and_password(uri.user)
    config: dict[str, Any] = {"server": uri.host, "port": number_or(uri.port, 22)}
    given = {
        "username": username,
        "password": password,
        "private-key-passphrase": query.get("passphrase"),
        "host-key-algorithms": _listed(query.get("hka")),
        "host-key": _listed(query.get("hk", "hostkey")),
    }
    config |= {key: value for key, value in given.items() if value}
    if key := query.get("pk", "privatekey"):
        # A plus in a link stands for a blank, and not all programs escape it.
        letters = key.removeprefix(_BEGIN).removesuffix(_END).replace(" ", "+")
        config["private-key"] = [_BEGIN, letters, _END]
    needs_plain_tcp(query)
    return node_of("ssh", config, uri, words=_PARAMETER_OF)


def write_ssh(config: NodeConfig, name: str) -> str:
    """Return the node as an ``ssh://`` link. It cannot express a private key in another form than
    OpenSSH's.
    """
    fields = config.fields
    lines = fields.get("private-key", [])
    query = {
        "pk": "".join(lines[1:-1]) if lines and lines[0] == _BEGIN else "",
        "passphrase": fields.get("private-key-passphrase", "") if lines else "",
        "hk": ",".join(fields.get("host-key", ())),
        "hka": ",".join(fields.get("host-key-algorithms", ())),
    }
    user = encoded(fields.get("username", ""))
    if "password" in fields or "%3A" in user:  # programs take an escaped colon for one
        user += f":{encoded(fields.get('password', ''))}"
    return link_to("ssh", user, fields, query, name)


def _listed(text: str) -> list[str]:
    """Return the items between commas."""
    return [item.strip() for item in text.split(",") if item.strip()]
