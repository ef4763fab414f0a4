"""Import rows of proxy services, whose number of fields decides their form."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.formats.hosts import parse_port
from egressd.formats.rows import Accepted, BadRow, Unreadable, each_row, fields
from egressd.model.drafts import ProxyServiceDraft

_FORMS = (
    "a proxy service is name,outbound_interface,port,username,password or the same "
    "without the name, the password, the username"
)


def parse_proxy_services(text: str) -> Iterator[Accepted[ProxyServiceDraft] | BadRow]:
    """Return the proxy services of `text`. A missing name becomes ``outbound_interface:port``.

    It does not check that the interface, the port and the name may be used.
    """
    return each_row(text, _draft)


def _draft(row: str) -> ProxyServiceDraft:
    found = fields(row)
    if not 2 <= len(found) <= 5:
        raise Unreadable(_FORMS)
    name = found.pop(0) if len(found) == 5 else ""
    interface, port_text, username, password = [*found, "", ""][:4]
    try:
        port = parse_port(port_text)
    except ValueError:
        raise Unreadable("port must be a whole number from 1 to 65535") from None
    if not interface:
        raise Unreadable("outbound_interface must not be empty")
    return ProxyServiceDraft(
        name=name or f"{interface}:{port}",
        outbound_interface=interface,
        port=port,
        username=username,
        password=password,
    )
