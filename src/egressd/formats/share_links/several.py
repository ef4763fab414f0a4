"""Links as people paste them: several on a line, behind a dash, in quotes, broken by a mailer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from egressd.formats.rows import INVISIBLE, ROW_MAX, trimmed
from egressd.formats.seller_rows import seller_rows

_SCHEMES: Final = (
    "vless|vmess|trojan|hysteria2|hy2|tuic|anytls|socks5h|socks5|socks|ss"
    "|ssr|hysteria|wireguard|socks4a|socks4|snell|juicity|mieru|trojan-go"
)
"""Those that are read, and others that programs write, which are no part of the link before."""
_START: Final = re.compile(
    rf"(?:{_SCHEMES})://"
    r"|(?<=[\s,;|\"'])https?://(?:[^\s/?#@]+@[^\s/?#]+|[^\s/?#:@]+:[0-9]+(?![^\s/?#]))",
    re.IGNORECASE,
)
"""Where a link begins. A web address in a name is none: it has neither a user nor a port."""
_LINK: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}://")
_LEAD: Final = re.compile(
    rf"""[^\w#/;!{{]{{0,16}}(?:[0-9]{{1,4}}[.):、．][^\w#/;!{{]{{0,16}})?(?={_LINK.pattern})"""  # noqa: RUF001
)
"""What may stand before a row's first link: bullets, a number, opening quotes and brackets. Signs
of comments are none of it.
"""
_INSIDE: Final = frozenset("#/:@&")
"""What stands before a scheme that is part of a link, and does not begin one."""
_CLOSING: Final = {
    **{quote: quote for quote in "\"'`"},
    **dict(zip("<([{【（「《“‘«", ">)]}】）」》”’»", strict=True)),  # noqa: RUF001
}
_SEPARATORS: Final = frozenset(",;|" + INVISIBLE)
_LINE_BREAKS: Final = ("\\n", "\\r", "<br>", "<br/>", "<br />")
"""Line ends as JSON escapes them, and as HTML has them."""

_QUOTED: Final = re.compile(r"(?:[^=]++|=[0-9A-F]{2})*+\Z")
_QUOTED_LINE: Final = range(64, 77)
"""Characters of a line in quoted-printable that goes on below (RFC 2045, section 6.7): at most 76,
its ``=`` included, and not many fewer.
"""
_ALL_BASE64: Final = re.compile(rf"{_LINK.pattern}[A-Za-z0-9+/_-]+=*\Z")
_OF_ITS_OWN: Final = re.compile(r"[{\[#]|- |[A-Za-z_-]+:(?:\s|\Z)")
"""How a line begins that does not go on with a link above it."""


def is_row_of_links(row: str) -> bool:
    """Whether a row begins with a link, of any scheme; perhaps behind a dash, or in quotes."""
    return _beginning(row) >= 0


def links_of(row: str) -> Iterator[str]:
    """The links of a row; none if it does not begin with one."""
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
    """Where the scheme of the link at `start` ends, and where its parameters begin, or -1. They are
    looked for in as much as a link may have.
    """
    return row.find("://", start), row.find("?", start, start + ROW_MAX)


def _beginning(row: str) -> int:
    """Where the first link begins, or -1."""
    if _LINK.match(row):
        return 0
    lead = _LEAD.match(row)
    return lead.end() if lead else -1


def _end(row: str, start: int, end: int, opening: str) -> int:
    """Where a link ends that begins at `start`: before what parts it from the next one at `end`.
    `opening` stands before the row's first link.
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
    """Whether more brackets close there than open."""
    opened, closed = (row.count(bracket, start, end) for bracket in pair)
    return closed > opened


def unbroken(text: str, start: int, end: int) -> tuple[str, int]:
    """The row from `start` to `end`, and where it ends, with the lines that a mailer's
    quoted-printable broke it into, and without its escapes.
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
            break  # no link is so long
        parts[-1] = line[:-1]
        parts.append(following)
        end = begin + len(following)
    row = trimmed("".join(parts))
    return (_unquoted(row) if len(parts) > 1 or "=3D" in row else row), end


def _stands_alone(row: str) -> bool:
    """Whether a line has nothing to do with a link that may have been broken above it."""
    is_of_its_own = not row or _OF_ITS_OWN.match(row) is not None
    return is_of_its_own or is_row_of_links(row) or bool(seller_rows(row))


def _unquoted(row: str) -> str:
    """A row without the escapes of quoted-printable, if it has no other ``=`` than theirs."""
    if len(row) > ROW_MAX or not _QUOTED.match(row):
        return row
    data = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), row.encode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return row
