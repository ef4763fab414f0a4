"""Line ends, byte order marks, invisible characters and base64 around the rows of a text do not
change its nodes; and line numbers are those of the original text.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats import rows as rows_module
from egressd.formats.nodes import parse_nodes
from egressd.formats.rows import Accepted
from egressd.model.drafts import BadRow
from egressd.model.errors import Invalid
from tests.support.nodes.corpora import Case, cases, imported

pytestmark = pytest.mark.usefixtures("new_engine")
CASES = cases()
FEED = "trojan://p@203.0.113.1:443#a\ntrojan://q@203.0.113.2:443#b\nsocks5://203.0.113.3#c\n"
NAMES = ["a", "b", "c"]


def outcome(text: str, import_type: str = "others") -> list[tuple[int, str]]:
    """Return each row's line, and its node's configuration or the reason that there is none."""
    return [
        (row.line, row.draft.config_json if isinstance(row, Accepted) else row.reason)
        for row in parse_nodes(import_type, text)
    ]


def names(text: str, import_type: str = "others") -> list[str]:
    return [row.draft.name for row in parse_nodes(import_type, text) if isinstance(row, Accepted)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows_line_ends_and_byte_order_marks_change_nothing(case: Case) -> None:
    text = "\ufeff" + case.text.replace("\n", "\r\n") + "\r\n\ufeff\u200b"
    assert imported(text, case.import_type) == list(case.expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reported_line_numbers_are_those_of_the_text(case: Case) -> None:
    before = outcome(case.text, case.import_type)
    text = f"# nodes\n\n\u200b\n{case.text}"
    assert outcome(text, case.import_type) == [(line + 3, what) for line, what in before]


def is_plain(case: Case) -> bool:
    """True if a case's text holds no base64 of its own."""
    return not re.search(
        r"^[\"\s]*(?:data:.*,)?[A-Za-z0-9+/_-]{16,}(?:=|%3D)*\"?\s*$", case.text, re.MULTILINE
    )


ENCODERS: list[Callable[[bytes], str]] = [
    lambda plain: b64encode(plain).decode(),
    lambda plain: urlsafe_b64encode(plain).decode().rstrip("="),
    lambda plain: re.sub("(.{76})", r"\1\r\n", b64encode(plain).decode()) + "\r\n",
]


@pytest.mark.parametrize("case", [*filter(is_plain, CASES)], ids=str)
def test_base64_of_a_text_gives_its_nodes(case: Case) -> None:
    rows = list(parse_nodes(case.import_type, case.text))
    if not any(isinstance(row, Accepted) for row in rows):
        return  # nothing shows that it has nodes
    for encode in ENCODERS:
        found = parse_nodes(case.import_type, encode(case.text.encode()))
        for decoded, row in zip(found, rows, strict=True):
            assert decoded.line == 1
            if isinstance(row, Accepted):
                assert isinstance(decoded, Accepted)
                assert decoded.draft == row.draft
            else:
                reason = f"in line {row.line} of what it encodes: {row.reason}"
                assert isinstance(decoded, BadRow)
                assert decoded.reason == reason


@pytest.mark.parametrize("import_type", ["socks5", "ss", "vlessvmess", "others"])
@pytest.mark.parametrize("encode", ENCODERS)
def test_a_subscription_is_read_for_every_import_type(
    import_type: str, encode: Callable[[bytes], str]
) -> None:
    assert names(FEED, import_type) == NAMES
    assert names(encode(FEED.encode()), import_type) == NAMES


def test_base64_inside_base64_is_not_decoded() -> None:
    twice = b64encode(b64encode(FEED.encode())).decode()
    assert names(twice) == []
    ((line, reason),) = outcome(twice)
    assert line == 1
    assert reason.startswith("in line 1 of what it encodes: type must be one of")


@given(st.lists(st.sampled_from(FEED.split("\n")[:3]), min_size=1, max_size=6), st.data())
def test_links_may_be_separated_by_anything(links: list[str], data: st.DataObject) -> None:
    parts = st.sampled_from(
        [
            *("\n", "\r\n", "\r", " ", "\t", ", ", ";", "|", "\u3000", "\x85", "\u2028"),
            *("\\n", "<br>", "\n- ", "\n2. ", "\n\ufeff", "\u200b \u2060", "\n\n# c\n", '"\n"'),
        ]
    )
    text = links[0]
    for link in links[1:]:
        text += data.draw(parts) + link
    bare = [name[0] for name in names(text)]  # without the number of a twin
    assert bare == [link[-1] for link in links]


def test_lines_and_rows_inside_base64_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LINES_MAX", 20)
    monkeypatch.setattr(rows_module, "ROWS_MAX", 5)
    row = "trojan://p@203.0.113.1:443\n"
    for text, reason in ((row + "#\n" * 20, "at most 20 lines"), (row * 6, "at most 5 rows")):
        with pytest.raises(Invalid, match=reason):
            outcome(b64encode(text.encode()).decode())
