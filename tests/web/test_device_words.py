"""The device's own sentences on the Chinese page: known, and shown."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from egressd.model.faults import OTHER
from egressd.model.sentences import SENTENCES
from tests.web.site import Site

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "web" / "src" / "messages" / "device_zh.ts"
FAULTS = CATALOGUE.with_name("faults_zh.ts")
ROOMS = ("api", "console", "formats", "model", "netd", "planner", "service")


def constants() -> str:
    """Return all text constants of the rooms that produce text for operators."""
    return "\n".join(
        node.value
        for room in ROOMS
        for file in (ROOT / "src" / "egressd" / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_every_translated_sentence_is_one_of_the_device() -> None:
    said = constants()
    pattern = r"""^ {2}(?:"([^"]+)"|'([^']+)'|(\w+)):"""
    texts = re.findall(pattern, CATALOGUE.read_text(), re.MULTILINE)
    assert len(texts) > 100
    unsaid = [
        part
        for text in texts
        for part in re.split(r"\{>?\w+\}|\(s\)", "".join(text))
        if part.strip(" :,;()`") and part.strip() not in said
    ]
    assert unsaid == []


def test_every_fault_has_a_sentence_in_chinese_with_its_values() -> None:
    text = FAULTS.read_text()
    found = re.findall(r'^ {2}(?:"([^"]+)"|(\w+)):\s+"((?:[^"\\]|\\.)*)",$', text, re.MULTILINE)
    translated = {quoted or bare: sentence for quoted, bare, sentence in found}
    assert translated.keys() == SENTENCES.keys() - {OTHER}
    for code, sentence in translated.items():
        places = set(re.findall(r"\{>?(\w+)\}", sentence))
        wanted = set(re.findall(r"\{(\w+)", SENTENCES[code]))
        # A field need not be named where the sentence is shown at it.
        assert places - {"field"} == wanted - {"field"}, code


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
            re.compile("^ip 应为.IPv4 地址或没有主机位的 CIDR$")
        )
