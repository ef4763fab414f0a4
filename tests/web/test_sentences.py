"""The device's own sentences on the Chinese page: known by their codes, and shown."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from egressd.model.sentences import OF_EVENTS, SENTENCES
from egressd.model.wording import OTHER
from tests.web.site import Site

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "web" / "src"
CATALOGUE = PAGE / "messages" / "sentences_zh.ts"
LEAST = 20
"""Characters of a sentence that the page's code cannot contain by chance."""


def catalogue() -> dict[str, str]:
    """Return the page's sentences by code."""
    text = CATALOGUE.read_text().partition("export const wordsZh")[0]
    quoted = r'"(?:[^"\\]|\\.)*"' + "|" + r"'(?:[^'\\]|\\.)*'"
    found = re.findall(rf'^ {{2}}(?:"([^"]+)"|(\w+)):\s+({quoted}),$', text, re.MULTILINE)
    return {code or bare: sentence[1:-1] for code, bare, sentence in found}


def test_every_sentence_is_translated_with_its_values() -> None:
    translated = catalogue()
    assert translated.keys() == SENTENCES.keys() - OF_EVENTS.keys() - {OTHER}
    for code, sentence in translated.items():
        places = set(re.findall(r"\{>?(\w+)(?::[^}]*)?\}", sentence))
        wanted = set(re.findall(r"(?<!\{)\{(\w+)", SENTENCES[code]))
        # A field need not be named where the sentence is shown at it.
        assert places - {"field"} == wanted - {"field"}, code


def test_every_code_is_used() -> None:
    used = {
        node.value
        for file in (ROOT / "src" / "egressd").rglob("*.py")
        if file.name != "sentences.py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    switched = {f"{what}-{word}" for what in ("rule", "some") for word in ENDINGS}
    of_kind = {code for code in SENTENCES if code.startswith("address-")}
    assert SENTENCES.keys() - used - switched - of_kind == set()


ENDINGS = ("enabled", "disabled")


def test_no_code_of_the_page_has_a_sentence_of_the_device() -> None:
    own = {PAGE / "messages" / "en.ts"}
    code = "\n".join(
        file.read_text()
        for file in PAGE.rglob("*")
        if file.suffix in (".ts", ".svelte") and file not in own
    )
    parts = {
        part.strip()
        for sentence in SENTENCES.values()
        for part in re.split(r"\{[^}]*\}", sentence)
        if len(part.strip()) >= LEAST
    }
    assert len(parts) > 100
    assert [part for part in sorted(parts) if part in code] == []


@pytest.mark.lab
@pytest.mark.browser
def test_reasons_changes_and_errors_are_shown_in_chinese(site: Site) -> None:
    api = site.lab.api
    node = api.post("/nodes", site.lab.nodes["socks5"].draft("pool"))
    api.post("/rules", {"ip": "10.77.6.1", "target_node": "socks5"})
    line = {"type": "pptp", "name": "pptp_zh", "server": "192.0.2.1", "username": "a"}
    api.post("/vpn-lines", {**line, "password": "b"})
    api.post("/rules", {"ip": "10.77.6.2", "target_node": "Interface:pptp_zh"})
    api.delete(f"/nodes/{node['id']}")

    with site.visit("#/overview", language="zh-CN") as page:
        blocked = page.get_by_role("region", name="问题")
        expect(blocked.get_by_text("节点 socks5 不存在")).to_be_visible()
        expect(blocked.get_by_text(re.compile("^线路 pptp_zh 离线"))).to_be_visible()
        changes = page.get_by_role("region", name="最近变更")
        expect(changes.get_by_text("已添加 10.77.6.1 的规则")).to_be_visible()
        expect(
            changes.get_by_text(re.compile("1 条规则被阻断.原因.节点 socks5 不存在"))
        ).to_be_visible()

        page.goto(page.url.replace("overview", "lines"))
        state = page.get_by_role("row").filter(has_text="pptp_zh")
        # The reason why it is not dialled depends on the machine that the lab is on.
        why = "正在拨号 192.0.2.1|192.0.2.1 无响应|没有路由|当前内核不支持 PPP"
        expect(state).to_contain_text(re.compile(why))

        page.goto(page.url.replace("lines", "rules"))
        page.get_by_role("button", name="添加规则").click()
        form = page.get_by_role("form", name="添加规则")
        form.get_by_label("客户端").fill("10.77.6.3/33")
        form.get_by_label("出口").fill("nobody")
        form.get_by_role("button", name="保存").click()
        expect(form.get_by_label("客户端")).to_have_accessible_description(
            re.compile("^客户端应为.IPv4 地址或没有主机位的 CIDR$")
        )
