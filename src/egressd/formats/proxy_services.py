"""Import rows of proxy services, whose number of fields decides their form."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.formats.hosts import PORT_MAX, parse_port
from egressd.formats.rows import Accepted, Unreadable, each_row, fields
from egressd.model.drafts import BadRow, ProxyServiceDraft
from egressd.model.faults import fault

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
        raise Unreadable(fault("port", "whole-number", least=1, most=PORT_MAX)) from None
    if not interface:
        raise Unreadable(fault("outbound_interface", "empty"))
    return ProxyServiceDraft(
        name=name or f"{interface}:{port}",
        outbound_interface=interface,
        port=port,
        username=username,
        password=password,
    )
