"""Import rows of VPN lines, with or without a port."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.formats.hosts import PORT_MAX, parse_host, parse_port
from egressd.formats.rows import Accepted, Unreadable, each_row, fields
from egressd.model.drafts import BadRow, LineDraft
from egressd.model.faults import fault

_FORMS = {
    "l2tp": ("server", "port", "username", "password", "secret", "name", "comment"),
    "pptp": ("server", "port", "username", "password", "name", "comment"),
}
_LEAST = 3
"""The number of fields of the shortest row: a server, a user name and a password."""


def parse_lines(
    type: str,  # noqa: A002 (the API's word)
    text: str,
    *,
    needs_name: bool = True,
) -> Iterator[Accepted[LineDraft] | BadRow]:
    """Return the lines of `text`, all of `type` (``l2tp`` or ``pptp``).

    The comment, for L2TP the secret, and the name where it is not needed, may be missing at the end
    of a row. Of the values only the server and the port are checked.
    """
    return each_row(
        text, lambda row: _draft(type, _by_name(type, fields(row)), needs_name=needs_name)
    )


def _by_name(line_type: str, found: list[str]) -> dict[str, str]:
    form = _FORMS[line_type]
    short = tuple(field for field in form if field != "port")
    used = form if _has_port(line_type, found) else short
    if len(found) < _LEAST or any(found[len(used) :]):
        raise Unreadable(f"a line is {','.join(form)} or {','.join(short)}")
    return dict(zip(used, found, strict=False))


def _has_port(line_type: str, found: list[str]) -> bool:
    """True if the second field is the port. The place of the name decides.

    Without a name in its place (it is automatic), the number of fields decides; in a row between
    the shortest and the longest, a second field that is a valid port is taken as the port. A user
    name may be all digits, too.
    """
    form = _FORMS[line_type]
    if len(found) <= _LEAST:
        return False
    place = form.index("name")
    prefix = f"{line_type}_"
    named = [index for index, field in enumerate(found) if field.startswith(prefix)]
    if len(found) >= len(form):
        # A secret may begin like a name, and short rows may have an extra comma at their end.
        is_full = place in named or place - 1 not in named
        return is_full or (not found[place] and _is_port(found[1]))
    if place - 1 in named or place in named:
        return place - 1 not in named
    return len(found) < len(form) - 1 and _is_port(found[1])


def _is_port(text: str) -> bool:
    try:
        parse_port(text)
    except ValueError:
        return False
    return True


def _draft(line_type: str, found: dict[str, str], *, needs_name: bool) -> LineDraft:
    problems = []
    try:
        server = parse_host(found["server"])
    except ValueError:
        problems.append(fault("server", "host"))
    port_text = found.get("port", "")
    try:
        port = parse_port(port_text) if port_text else 0
    except ValueError:
        problems.append(fault("port", "whole-number", least=1, most=PORT_MAX))
    if needs_name and not found.get("name"):
        problems.append(fault("name", "empty"))
    if problems:
        raise Unreadable(*problems)
    return LineDraft(
        type=line_type,
        name=found.get("name", ""),
        server=server,
        port=port,
        username=found.get("username", ""),
        password=found.get("password", ""),
        secret=found.get("secret", ""),
        comment=found.get("comment", ""),
    )
