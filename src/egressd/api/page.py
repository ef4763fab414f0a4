"""The OpenAPI document as one page for people: no script, nothing fetched from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Any, Final

from egressd.api.problems import Problems

_STYLE: Final = files("egressd.api").joinpath("docs/page.css").read_text("utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(document: dict[str, Any]) -> bytes:
    """The page of an OpenAPI document, in UTF-8."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in info["description"].split("\n\n"))
    problems = Problems(lambda: document)
    menu, sections = [], []
    for tag in document["tags"]:
        operations = list(_operations(document, tag["name"]))
        menu.append(f"<b>{escape(tag['name'])}</b>")
        sections.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        for method, path, operation in operations:
            anchor = escape(operation["operationId"])
            menu.append(f'<a href="#{anchor}">{escape(operation["summary"])}</a>')
            sections.append(_operation(method, path, operation, problems))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><nav>{''.join(menu)}</nav><main><h1>{title}</h1>{paragraphs}"
        '<p>The same as <a href="openapi.json">an OpenAPI 3.1 document</a>. Every endpoint takes '
        "the header <code>Authorization: Bearer &lt;API token&gt;</code> unless it says otherwise, "
        "and <code>Content-Type: application/json</code> where it has a body.</p>"
        f"{''.join(sections)}</main></body></html>"
    ).encode()


def _operations(document: dict[str, Any], tag: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["tags"] == [tag]:
                yield method, path, operation


def _operation(method: str, path: str, operation: dict[str, Any], problems: Problems) -> str:
    parts = []
    if operation.get("security") == []:
        how = "by the key in its path" if "{key}" in path else "without a token"
        parts.append(f"<p>Open {how}.</p>")
    if operation.get("description"):
        parts.append(f"<p>{escape(operation['description'])}</p>")
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            (p["name"], p["required"], str(problems.takes(p["schema"])), p["schema"])
            for p in parameters
        ]
        parts.append("<h3>Parameters</h3>" + _table(rows))
    body = operation.get("requestBody", {}).get("content", {})
    for media_type in body.keys() - {"application/json"}:
        parts.append(f"<h3>Body</h3><p>A file: <code>{escape(media_type)}</code></p>")
    if "application/json" in body:
        content = body["application/json"]
        schema = problems.resolved(content["schema"])
        required = schema.get("required", [])
        rows = [
            (name, name in required, str(problems.takes(field)), field)
            for name, field in schema["properties"].items()
        ]
        parts.append("<h3>Body</h3>" + _table(rows) + _json(content["example"]))
    for status, response in operation["responses"].items():
        parts += _examples(status, response)
    # The id is on the inside: going to it opens the details around it.
    return (
        f'<details><summary><code class="method {method}">{method.upper()}</code>'
        f"<code>{escape(path)}</code><span>{escape(operation['summary'])}</span></summary>"
        f'<div id="{escape(operation["operationId"])}">{"".join(parts)}</div></details>'
    )


def _table(rows: list[tuple[str, bool, str, dict[str, Any]]]) -> str:
    """Fields: name, whether it must be there, what it takes, its schema."""
    cells = []
    for name, is_required, takes, schema in rows:
        default = schema.get("default")
        unless = "required" if is_required else "optional"
        if default is not None:
            unless = f"default <code>{escape(json.dumps(default))}</code>"
        cells.append(
            f"<tr><td><code>{escape(name)}</code></td><td>{unless}</td><td>{escape(takes)}"
            f"{'. ' if 'description' in schema else ''}{escape(schema.get('description', ''))}"
            "</td></tr>"
        )
    return f"<table><tr><th>Field</th><th></th><th>Takes</th></tr>{''.join(cells)}</table>"


def _examples(status: str, response: dict[str, Any]) -> Iterator[str]:
    content = response.get("content", {}).get("application/json", {})
    for example in content.get("examples", {}).values():
        yield f"<h3>Answer {escape(status)}</h3>" + _json(example["value"])


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
