"""Links as people paste them: several on a line, behind a dash, in quotes, broken by a mailer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from egressd.formats.rows import INVISIBLE, ROW_MAX, trimmed
from egressd.formats.seller_rows import seller_rows

_SCHEMES: Final = (
    "vless|vmess|trojan|hysteria2|hy2|tuic|anytls|socks5h|socks5|socks|ssh|ss"
    "|ssr|hysteria|wireguard|wg|socks4a|socks4|snell|juicity|mieru|trojan-go"
)
"""The supported schemes, and others that programs write, each of which ends the link before it."""
_START: Final = re.compile(
    rf"(?:{_SCHEMES})://"
    r"|(?<=[\s,;|\"'])https?://(?:[^\s/?#@]+@[^\s/?#]+|[^\s/?#:@]+:[0-9]+(?![^\s/?#]))",
    re.IGNORECASE,
)
"""The start of a link. A web address in a name is not one: it has neither a user nor a port."""
_LINK: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}://")
_LEAD: Final = re.compile(
    rf"""[^\w#/;!{{]{{0,16}}(?:[0-9]{{1,4}}[.):、．][^\w#/;!{{]{{0,16}})?(?={_LINK.pattern})"""  # noqa: RUF001
)
"""The text before a row's first link: bullets, a number, opening quotes and brackets. Signs of
comments do not belong to it.
"""
_INSIDE: Final = frozenset("#/:@&")
"""Characters before a scheme that is part of a link and does not begin one."""
_CLOSING: Final = {
    **{quote: quote for quote in "\"'`"},
    **dict(zip("<([{【（「《“‘«", ">)]}】）」》”’»", strict=True)),  # noqa: RUF001
}
_SEPARATORS: Final = frozenset(",;|" + INVISIBLE)
_LINE_BREAKS: Final = ("\\n", "\\r", "<br>", "<br/>", "<br />")
"""Line ends as JSON escapes them, and in HTML."""

_QUOTED: Final = re.compile(r"(?:[^=]++|=[0-9A-F]{2})*+\Z")
_QUOTED_LINE: Final = range(64, 77)
"""Characters of a line in quoted-printable that continues below (RFC 2045, section 6.7): at most
76, its ``=`` included, and not many fewer.
"""
_ALL_BASE64: Final = re.compile(rf"{_LINK.pattern}[A-Za-z0-9+/_-]+=*\Z")
_OF_ITS_OWN: Final = re.compile(r"[{\[#]|- |[A-Za-z_-]+:(?:\s|\Z)")
"""The start of a line that does not continue a link above it."""


def is_row_of_links(row: str) -> bool:
    """True if a row begins with a link, of any scheme. A dash or quotes may stand before it."""
    return _beginning(row) >= 0


def links_of(row: str) -> Iterator[str]:
    """Yield the links of a row, or none if it does not begin with one."""
    begin = start = _beginning(row)
    if start < 0:
        return
    opening = row[begin - 1] if begin else ""
    scheme, query = _places(row, start)
    if row.find("://", scheme + 3) >= 0:
        for match in _START.finditer(row, begin + 1):
            at = match.start()
            before = row[at - 1]
            is_value = before == "=" and 0 <= query < at
            if before not in _INSIDE and not is_value and scheme < at:
                yield row[start : _end(row, start, at, opening)]
                start = at
                scheme, query = _places(row, start)
    yield row[start : _end(row, start, len(row), opening)]


def _places(row: str, start: int) -> tuple[int, int]:
    """Return the offsets of the scheme's end and of the parameters of the link at `start`, or -1.
    The search for parameters covers the length that a link may have.
    """
    return row.find("://", start), row.find("?", start, start + ROW_MAX)


def _beginning(row: str) -> int:
    """Return the offset of the first link, or -1."""
    if _LINK.match(row):
        return 0
    lead = _LEAD.match(row)
    return lead.end() if lead else -1


def _end(row: str, start: int, end: int, opening: str) -> int:
    """Return the end of a link that begins at `start`: before the text that separates it from the
    next one at `end`. `opening` is the character before the row's first link.
    """
    closing = _CLOSING.get(opening)
    while end > start:
        last = row[end - 1]
        if (
            last in _SEPARATORS
            or last.isspace()
            or (closing and last == opening)
            or (last == closing and _is_over(row, start, end, opening + closing))
        ):
            end -= 1
        elif line_break := next((b for b in _LINE_BREAKS if row.endswith(b, start, end)), ""):
            end -= len(line_break)
        else:
            break
    return end


def _is_over(row: str, start: int, end: int, pair: str) -> bool:
    """True if the range has more closing brackets than opening ones."""
    opened, closed = (row.count(bracket, start, end) for bracket in pair)
    return closed > opened


def unbroken(text: str, start: int, end: int) -> tuple[str, int]:
    """Return the row from `start` to `end`, and its end. Lines that a mailer's quoted-printable
    broke off are joined to it, and its escapes are removed.
    """
    parts = [text[start:end]]
    while True:
        line = parts[-1].rstrip("\r")
        begin, below = end + 1, text.find("\n", end + 1)
        following = text[begin : below if below >= 0 else len(text)]
        is_whole = _ALL_BASE64.match(line) and len(trimmed(line)) not in _QUOTED_LINE
        if not line.endswith("=") or is_whole or _stands_alone(trimmed(following)):
            break
        if end - start > ROW_MAX:
            break  # no link is this long
        parts[-1] = line[:-1]
        parts.append(following)
        end = begin + len(following)
    row = trimmed("".join(parts))
    return (_unquoted(row) if len(parts) > 1 or "=3D" in row else row), end


def _stands_alone(row: str) -> bool:
    """True if a line does not belong to a link that may have been broken above it."""
    is_of_its_own = not row or _OF_ITS_OWN.match(row) is not None
    return is_of_its_own or is_row_of_links(row) or bool(seller_rows(row))


def _unquoted(row: str) -> str:
    """Return a row without the escapes of quoted-printable, if each ``=`` in it is part of one."""
    if len(row) > ROW_MAX or not _QUOTED.match(row):
        return row
    data = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), row.encode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return row
