"""Rows, their fields, and the small row formats: rules, lines, proxy services."""

import time
import unicodedata
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats import rows as rows_module
from egressd.formats.clash_document import document_items
from egressd.formats.default_names import automatic_names
from egressd.formats.lines import parse_lines
from egressd.formats.nodes import parse_nodes
from egressd.formats.proxy_services import parse_proxy_services
from egressd.formats.rows import (
    ROW_MAX,
    Accepted,
    Unreadable,
    fields,
    guarded,
    rows,
)
from egressd.formats.rules import parse_rules
from egressd.formats.scalars import Scalar
from egressd.model.drafts import BadRow, LineDraft, ProxyServiceDraft, RuleDraft
from egressd.model.errors import Invalid


@pytest.mark.parametrize(
    "read",
    [
        parse_rules,
        parse_proxy_services,
        lambda text: parse_lines("l2tp", text),
        lambda text: parse_nodes("socks5", text),
        lambda text: parse_nodes("others", text),
        lambda text: parse_nodes("others", f"proxies:\n{text.replace('x', '- x')}"),
        lambda text: parse_nodes("others", f"[{text.replace(chr(10), ',')}]"),
    ],
)
def test_the_number_of_rows_is_limited(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str], Iterator[object]]
) -> None:
    monkeypatch.setattr(rows_module, "ROWS_MAX", 20)
    assert len(list(read("x\n" * 20))) == 20
    with pytest.raises(Invalid, match=r"^text must have at most 20 rows$"):
        list(read("x\n" * 21))


def test_the_number_of_lines_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LINES_MAX", 20)
    assert list(rows("#\n" * 20)) == []
    for text in ("#\n" * 21, "\n" * 21):
        with pytest.raises(Invalid, match=r"^text must have at most 20 lines$"):
            list(rows(text))
        with pytest.raises(Invalid):
            list(parse_nodes("others", text))


def test_the_number_of_fields_is_limited() -> None:
    assert len(fields("," * 63)) == 64
    with pytest.raises(Unreadable, match="must not have over 64 fields"):
        fields("," * 64)


def test_a_too_long_entry_does_not_affect_the_others() -> None:
    text = "proxies:\n- name: a\n" + "  b: c\n" * 900_000 + "- name: d\n"
    (line, reason), second = list(document_items(text) or ())
    assert (line, str(reason)) == (2, f"the entry must not be over {ROW_MAX} characters")
    assert second == (900_003, {"name": Scalar("d", "d")})


@pytest.mark.parametrize("kind", ["socks5", "others"])
def test_a_name_with_thousands_of_combining_marks_is_cut_quickly(kind: str) -> None:
    name = "a" + "\u0301\u0316" * 30_000  # sorting the marks takes a second or more
    row = {
        "socks5": f"8.8.8.8,1080,u,p,{name}",
        "others": f"{{name: {name}, type: socks5, server: 8.8.8.8, port: 1080}}",
    }[kind]
    began = time.process_time()
    first, *others = parse_nodes(kind, "\n".join([row] * 5))
    assert time.process_time() - began < 2.0
    assert isinstance(first, Accepted)
    assert first.draft.name == unicodedata.normalize("NFC", name[:256])[:64]
    assert first.notes == ("the name was cut to 64 characters",)
    assert len(others) == 4


def test_the_length_of_a_name_is_that_of_its_normal_form() -> None:
    (node,) = parse_nodes("socks5", "8.8.8.8,1080,u,p," + "\u1100\u1161\u11a8" * 64)
    assert isinstance(node, Accepted)
    assert node.draft.name == "\uac01" * 64


def test_a_name_of_commas_alone_is_none() -> None:
    (node,) = parse_nodes("others", "{name: ',,', type: socks5, server: 8.8.8.8, port: 1080}")
    assert isinstance(node, Accepted)
    assert node.draft.name == "8.8.8.8:1080"


def test_only_the_first_faults_of_a_row_are_reported() -> None:
    keys = ",".join(f"k{n}-path: 1" for n in range(3000))
    (row,) = parse_nodes("others", f"{{type: socks5, server: 8.8.8.8, port: 1080, {keys}}}")
    assert isinstance(row, BadRow)
    assert "k7-path must not be given: it can name a file of this device" in row.reason
    assert row.reason.endswith("; and 2900 more")


@given(st.text(alphabet="'=+-@;\uff1da \"", max_size=6))
def test_a_guarded_field_is_read_back(field: str) -> None:
    written = guarded(field).replace('"', '""')
    assert fields(f'"{written}","x"') == [field, "x"]


def test_blank_lines_and_comments_are_skipped_but_counted() -> None:
    text = "\ufeff# head\r\n\r\n a \n\n\n#x\nb\r\n  # y\nc"
    assert [(row.line, row.text) for row in rows(text)] == [(3, "a"), (7, "b"), (9, "c")]


@given(
    st.lists(st.sampled_from(["", "a", "#x", " b "]), max_size=20), st.sampled_from(["\n", "\r\n"])
)
def test_line_numbers_count_every_kind_of_line_end(lines: list[str], ending: str) -> None:
    found = {row.line: row.text for row in rows(ending.join(lines))}
    expected = {n: line.strip() for n, line in enumerate(lines, 1) if line not in ("", "#x")}
    assert found == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("a, b ,c", ["a", "b", "c"]),
        ('a,"b,c", "d ""e"""', ["a", "b,c", 'd "e"']),
        ('"#a"," b ", " c" ,d ', ["#a", " b ", " c", "d"]),
        ('a "b", "" ,c"', ['a "b"', "", 'c"']),
        ("a,,", ["a", "", ""]),
        ("a\tb c\td", ["a", "b c", "d"]),
        ("a;b;c|d", ["a", "b", "c|d"]),
        ("a，b", ["a", "b"]),  # noqa: RUF001
        ("a", ["a"]),
        ("a,'b", ["a", "'b"]),
        ("'=a,''=b,'''+c", ["=a", "'=b", "''+c"]),
        ('"\'=a",\' =b,\'"-c"', ["=a", "' =b", '\'"-c"']),
        ("\"a;'=b\",\"a;'b;''@c\"", ["a;=b", "a;'b;'@c"]),
    ],
)
def test_rows_are_split_into_fields(row: str, expected: list[str]) -> None:
    assert fields(row) == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('a,"b', "a double quote that opens a field must close it"),
        ('a,"b"c', "a double quote that opens a field must close it"),
        ('a,"b""', "a double quote that opens a field must close it"),
        ('a," b\r"', "the row must not contain control characters"),
        ("a,b\x00", "the row must not contain control characters"),
        ("a,\ud800", "the row must not contain control characters"),
        ("a," + "x" * ROW_MAX, f"the row must not be over {ROW_MAX} characters"),
    ],
)
def test_invalid_quoting_is_refused(row: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        fields(row)


def told(results: Any) -> list[object]:
    """Return each row's draft, or its reason as it is shown."""
    return [r.draft if isinstance(r, Accepted) else str(r) for r in results]


def test_a_row_with_a_quoted_first_field_is_no_comment() -> None:
    assert [row.text for row in rows('"#a",b\n#a,b')] == ['"#a",b']


def test_rules_are_parsed() -> None:
    text = (
        "10.0.0.5,DIRECT\n10.1.0.0/16,Group_a,Lab, second floor\n,x\n10.0.0.6\n"
        '10.0.0.7,DIRECT, a,b ; "c"\n10.0.0.8,DIRECT," a,b"\n'
        '10.0.0.9,DIRECT,"TV" room, "big\n'
    )
    assert told(parse_rules(text)) == [
        RuleDraft(ip="10.0.0.5", target_node="DIRECT"),
        RuleDraft(ip="10.1.0.0/16", target_node="Group_a", comment="Lab, second floor"),
        "line 3: a rule is IP,target,comment",
        "line 4: a rule is IP,target,comment",
        RuleDraft(ip="10.0.0.7", target_node="DIRECT", comment='a,b ; "c"'),
        RuleDraft(ip="10.0.0.8", target_node="DIRECT", comment=" a,b"),
        RuleDraft(ip="10.0.0.9", target_node="DIRECT", comment='"TV" room, "big'),
    ]


def test_proxy_services_are_parsed() -> None:
    text = 'office,wan1,1080,u,p\nwan1,1081,u,"p,q"\nwan1,1082,u\nwan1,1083\n,wan1,1084,,\n'
    assert told(parse_proxy_services(text)) == [
        ProxyServiceDraft(
            name="office", outbound_interface="wan1", port=1080, username="u", password="p"
        ),
        ProxyServiceDraft(
            name="wan1:1081", outbound_interface="wan1", port=1081, username="u", password="p,q"
        ),
        ProxyServiceDraft(name="wan1:1082", outbound_interface="wan1", port=1082, username="u"),
        ProxyServiceDraft(name="wan1:1083", outbound_interface="wan1", port=1083),
        ProxyServiceDraft(name="wan1:1084", outbound_interface="wan1", port=1084),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("wan1", "line 1: a proxy service is name,outbound_interface"),
        ("a,b,1,c,d,e", "line 1: a proxy service is name,outbound_interface"),
        ("wan1,0", "line 1: port must be a whole number from 1 to 65535"),
        ("wan1,http", "line 1: port must be a whole number from 1 to 65535"),
        (",1080", "line 1: outbound_interface must not be empty"),
    ],
)
def test_invalid_proxy_services_have_a_reason(row: str, reason: str) -> None:
    ((only),) = told(parse_proxy_services(row))
    assert str(only).startswith(reason)


def line(**given: Any) -> LineDraft:
    common = {"server": "vpn.example", "username": "u", "password": "p"}
    return LineDraft(**{**common, **given})


@pytest.mark.parametrize(
    ("line_type", "row", "draft"),
    [
        (
            "l2tp",
            "vpn.example,1702,u,p,s,l2tp_1,c",
            line(type="l2tp", port=1702, secret="s", name="l2tp_1", comment="c"),
        ),
        (
            "l2tp",
            "vpn.example,u,p,s,l2tp_1,c",
            line(type="l2tp", secret="s", name="l2tp_1", comment="c"),
        ),
        (
            "l2tp",
            "vpn.example,1702,u,p,s,l2tp_1",
            line(type="l2tp", port=1702, secret="s", name="l2tp_1"),
        ),
        (
            "l2tp",
            "vpn.example,10086,p,s,l2tp_1,l2tp_2",
            line(type="l2tp", username="10086", secret="s", name="l2tp_1", comment="l2tp_2"),
        ),
        (
            "l2tp",
            "vpn.example,1001,p,s,l2tp_1,c,",
            line(type="l2tp", username="1001", secret="s", name="l2tp_1", comment="c"),
        ),
        (
            "l2tp",
            "vpn.example,1702,u,p,l2tp_s,l2tp_1,c",
            line(type="l2tp", port=1702, secret="l2tp_s", name="l2tp_1", comment="c"),
        ),
        (
            "l2tp",
            "vpn.example,1702,u,p,l2tp_s,l2tp_1,c,",
            line(type="l2tp", port=1702, secret="l2tp_s", name="l2tp_1", comment="c"),
        ),
        (
            "l2tp",
            "vpn.example,1702,u,p,s,l2tp_1,c,,",
            line(type="l2tp", port=1702, secret="s", name="l2tp_1", comment="c"),
        ),
        ("l2tp", "vpn.example,u,p,,l2tp_1", line(type="l2tp", name="l2tp_1")),
        ("l2tp", "vpn.example,,u,p,s,l2tp_1,", line(type="l2tp", secret="s", name="l2tp_1")),
        (
            "l2tp",
            "[2001:DB8::1],u,p,s,l2tp_1,",
            line(type="l2tp", server="2001:db8::1", secret="s", name="l2tp_1"),
        ),
        (
            "pptp",
            "vpn.example,1724,u,p,pptp_1,c",
            line(type="pptp", port=1724, name="pptp_1", comment="c"),
        ),
        ("pptp", "vpn.example,u,p,pptp_1,c", line(type="pptp", name="pptp_1", comment="c")),
        ("pptp", "vpn.example,1724,u,p,pptp_1", line(type="pptp", port=1724, name="pptp_1")),
        ("pptp", "vpn.example,u,p,pptp_1", line(type="pptp", name="pptp_1")),
    ],
)
def test_lines_are_parsed(line_type: str, row: str, draft: LineDraft) -> None:
    assert told(parse_lines(line_type, row)) == [draft]


@pytest.mark.parametrize("line_type", ["l2tp", "pptp"])
def test_the_shortest_row_has_no_port(line_type: str) -> None:
    (draft,) = told(parse_lines(line_type, "vpn.example,10086,hunter2", needs_name=False))
    assert draft == line(type=line_type, username="10086", password="hunter2", name="")


@pytest.mark.parametrize("comment", ["", "Tokyo"])
def test_a_secret_may_look_like_an_automatic_name(comment: str) -> None:
    row = f"vpn.example,1702,u,p,l2tp_s,,{comment}"
    (draft,) = told(parse_lines("l2tp", row, needs_name=False))
    assert draft == line(type="l2tp", port=1702, secret="l2tp_s", name="", comment=comment)


def test_lines_without_a_name_are_parsed() -> None:
    text = "a.example,u,p,s\nb.example,1702,u,p,s\n-x,u,p,s\nc.example,u,p,s,l2tp_9,note\n"
    first, second, third, fourth = told(parse_lines("l2tp", text, needs_name=False))
    assert first == line(type="l2tp", server="a.example", secret="s", name="")
    assert second == line(type="l2tp", server="b.example", port=1702, secret="s", name="")
    assert third == "line 3: server must be a host name or an IP address"
    assert fourth == line(
        type="l2tp", server="c.example", secret="s", name="l2tp_9", comment="note"
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a.example,u", "a line is server,port,username,password,name,comment or server,username"),
        ("a.example,1,u,p,pptp_1,c,d", "a line is server,port"),
        ("a.example,1001,p,pptp_1,c,d", "a line is server,port"),
        ("a b,x,u,p,pptp_1,c", "server must be a host name or an IP address; port must be"),
        ("a.example,u,p", "name must not be empty"),
    ],
)
def test_invalid_lines_have_a_reason(row: str, reason: str) -> None:
    (only,) = told(parse_lines("pptp", row))
    assert str(only).startswith(f"line 1: {reason}")


def test_automatic_names_skip_names_in_use() -> None:
    names = automatic_names("socks5", 1, {"socks5_1", "socks5_3"})
    assert list(islice(names, 3)) == ["socks5_2", "socks5_4", "socks5_5"]


def test_an_invalid_row_does_not_affect_the_others() -> None:
    text = 'wan1,1\n"\nwan1,2\nwan1,x\nwan1,3'
    results = list(parse_proxy_services(text))
    assert [isinstance(r, BadRow) for r in results] == [False, True, False, True, False]


@given(st.text() | st.text(alphabet='a1.,|;"\t\r\n#[]: l2tp_', max_size=60))
def test_any_row_gives_a_draft_or_a_reason(text: str) -> None:
    results = [
        *parse_rules(text),
        *parse_proxy_services(text),
        *parse_lines("l2tp", text),
        *parse_lines("pptp", text, needs_name=False),
    ]
    assert len(results) == 4 * sum(1 for _ in rows(text))


def test_results_are_produced_while_the_text_is_read() -> None:
    results = parse_rules("10.0.0.1,DIRECT\n" * 50_000)
    assert isinstance(next(results), Accepted)
    assert sum(1 for _ in results) == 49_999


def test_trailing_empty_fields_count_in_tab_separated_rows() -> None:
    assert [row.text for row in rows("a\tb\t\t \r\n a,b\t\nvmess://x\t\n a;b\t \n\t\n")] == [
        "a\tb\t\t",
        "a,b",
        "vmess://x",
        "a;b",
    ]
    (service,) = parse_proxy_services("name\twan1\t18080\t\t")
    assert service == next(parse_proxy_services("name,wan1,18080,,"))
