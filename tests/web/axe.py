"""axe-core's judgement of a page's accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

AXE: Final = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"


def serious(page: Page, *rules: str) -> list[str]:
    """Return the findings of axe-core that are serious or worse, and their places: by `rules`, or
    by all.
    """
    if not page.evaluate("Boolean(globalThis.axe)"):
        page.evaluate(AXE.read_text())
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found: dict[str, Any] = page.evaluate("options => axe.run(options)", options)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
