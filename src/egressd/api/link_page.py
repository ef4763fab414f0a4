"""The pages of rotation links: no script, nothing fetched from anywhere, no key but in the form.

A page sends no referrer and is kept nowhere. Only its button's POST rotates.
"""

# ruff: noqa: RUF001 - Chinese has punctuation of its own

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from typing import Final

from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from egressd.api.negotiation import wants_chinese, wants_html
from egressd.api.refusals import refusal
from egressd.model.faults import fault
from egressd.model.names import parse_target
from egressd.model.rotations import FollowedRotation
from egressd.model.wording import Sentence
from egressd.service.rotations import ALL, LinkView

_STYLE: Final = files("egressd.api").joinpath("docs/link.css").read_text("utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "vary": "accept, accept-language",
    "x-robots-tag": "noindex",
}
_AGAIN_S: Final = 2
"""Seconds after which a page asks for what came of a rotation."""

_ENGLISH: Final[Mapping[str, str]] = {
    "title": "Rotation",
    "another": "Another exit for this device",
    "another-for-all": "Another exit for all clients of the group {name}",
    "another-for-node": "Another exit for the node {name}",
    "of-all-clients": "All clients of the node leave by it.",
    "changing": "The node is changing its exit. This takes up to two minutes…",
    "not-a-client": "This device is no client of the group: the button is for all of its clients.",
    "new-connections": "New connections leave by another member of the group {name}.",
    "rotate": "Rotate",
    "rotate-all": "Rotate all clients",
    "again": "Rotate again",
    "running": "Asking for the new exit…",
    "done": "Done",
    "done-for-all": "Done. Clients with another member: {n}",
    "failed": "It did not work",
    "client": "Device",
    "member": "Member",
    "node": "Node",
    "exit": "Exit",
    "before": "Before",
    "now": "Now",
    "unknown": "unknown",
}
_CHINESE: Final[Mapping[str, str]] = {
    "title": "轮换出口",
    "another": "为本设备更换出口",
    "another-for-all": "为组 {name} 的所有客户端更换出口",
    "another-for-node": "为节点 {name} 更换出口",
    "of-all-clients": "该节点的所有客户端都使用该出口。",
    "changing": "节点正在更换出口，最多需要两分钟…",
    "not-a-client": "本设备不是该组的客户端。按钮将作用于该组的所有客户端。",
    "new-connections": "新连接将走组 {name} 的其他成员。",
    "rotate": "更换",
    "rotate-all": "更换所有客户端",
    "again": "再次更换",
    "running": "正在查询新的出口…",
    "done": "已完成",
    "done-for-all": "已完成，{n} 个客户端换用了其他成员",
    "failed": "未成功",
    "client": "设备",
    "member": "成员",
    "node": "节点",
    "exit": "出口",
    "before": "之前",
    "now": "现在",
    "unknown": "未知",
}
_SENTENCES: Final[Mapping[str, str]] = {
    "no-such-link": "该链接不存在或已失效",
    "no-such-rotation": "没有此次轮换的记录",
    "exit-before-unknown": "现在的出口为 {ip}，之前的地址未知",
    "rotation-too-late": "重启之前尚未请求其页面，现在已经太晚",
    "exit-unchanged": "要求更换地址 {seconds} 秒后，出口仍为 {ip}",
    "node-changes-already": "节点 {name} 正在更换地址",
    "rotation-alone": "组 {name} 没有其他可用成员",
    "rotation-gone": "该链接对应的 {target} 已不存在",
    "rotation-needs-sticky": "组 {name} 的策略应为 sticky",
    "rotation-of-no-client": "client 应为自己的规则指向组 {name} 的客户端",
    "rotation-too-soon": "更换过于频繁，请在 {seconds} 秒后重试",
    "rotation-unused": "没有规则的客户端经由组 {name}",
}
"""The sentences in Chinese that a page is likely to show; others stay as they are."""


def of_link(scope: Scope, path: str, view: LinkView) -> Response:
    """Return the page of a link at `path`, with its button."""
    texts, name = _texts(scope), view.target.name
    if view.client:
        rows = [("client", view.client), ("member", view.member), ("exit", view.exit_ip)]
        about = [texts["new-connections"].format(name=name)]
        form = _form(path, "", texts["rotate"])
        return _page(scope, texts["another"], about, form, rows=rows)
    if view.target.kind == "node":
        heading = texts["another-for-node"].format(name=name)
        form = _form(path, "", texts["rotate"])
        return _page(scope, heading, [texts["of-all-clients"]], form, rows=[("exit", view.exit_ip)])
    heading = texts["another-for-all"].format(name=name)
    form = _form(path, ALL, texts["rotate-all"])
    return _page(scope, heading, [texts["not-a-client"]], form)


def of_rotation(scope: Scope, path: str, rotation: FollowedRotation, status: int = 200) -> Response:
    """Return the page of a rotation by the link at `path`. While that runs, it asks again."""
    texts = _texts(scope)
    rows = []
    is_node = parse_target(rotation.target).kind == "node"
    if rotation.client or is_node:
        now = rotation.exit_after or (texts["unknown"] if rotation.ended_at else "…")
        rows = [
            ("client", rotation.client),
            ("node", rotation.target if is_node else ""),
            ("member", rotation.member),
            ("before", rotation.exit_before or texts["unknown"]),
            ("now", now),
        ]
    form = _form(path, "" if is_node else rotation.client or ALL, texts["again"])
    heading = texts["changing" if is_node and not rotation.ended_at else rotation.state]
    if not rotation.client and not is_node:
        heading = texts["done-for-all"].format(n=rotation.clients)
    about = [_said(scope, rotation.reason)] if rotation.reason else []
    is_running = rotation.state == "running"
    again = f"{path}/{rotation.id}" if is_running else ""
    return _page(
        scope, heading, about, form * (not is_running), rows=rows, again=again, status=status
    )


def of_problem(scope: Scope, text: Sentence, status: int) -> Response:
    """Return the page of a request that is not carried out."""
    return _page(scope, _texts(scope)["failed"], [_said(scope, text)], status=status)


def link_refusal(scope: Scope, text: Sentence, status: int) -> Response:
    """Return the answer to a request without a key that counts, in the form that it asks for."""
    if wants_html(scope):
        return of_problem(scope, text, status)
    return refusal(scope, str(text), status, [fault("", text.code, **text.values)])


def _texts(scope: Scope) -> Mapping[str, str]:
    return _CHINESE if wants_chinese(scope) else _ENGLISH


def _said(scope: Scope, text: Sentence) -> str:
    if wants_chinese(scope) and text.code in _SENTENCES:
        return _SENTENCES[text.code].format(**text.values)
    return str(text)


def _form(path: str, client: str, text: str) -> str:
    action = f"{path}?client={client}" if client else path
    return (
        f'<form method="post" action="{escape(action)}">'
        f'<button type="submit">{escape(text)}</button></form>'
    )


def _page(
    scope: Scope,
    heading: str,
    about: Iterable[str] = (),
    form: str = "",
    *,
    rows: Iterable[tuple[str, str]] = (),
    again: str = "",
    status: int = 200,
) -> Response:
    texts = _texts(scope)
    language = "zh" if texts is _CHINESE else "en"
    listed = "".join(
        f"<dt>{escape(texts[key])}</dt><dd>{escape(value)}</dd>" for key, value in rows if value
    )
    # As the element `meta` of this name does (HTML standard, "The Refresh header").
    headers = {**_HEADERS, "refresh": f"{_AGAIN_S};url={again}"} if again else _HEADERS
    return HTMLResponse(
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(texts['title'])}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(heading)}</h1>"
        f"{''.join(f'<p>{escape(text)}</p>' for text in about)}"
        f"{f'<dl>{listed}</dl>' if listed else ''}{form}</main></body></html>",
        status,
        headers,
    )
