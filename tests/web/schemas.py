"""The page's types of the API's documents, made from the OpenAPI document.

``.venv/bin/python -m tests.web.schemas`` writes them again; `tests/web/test_sources.py` compares
them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from tests.support.api_device import start_device
from tests.web.node import WEB, node

FILE: Final = WEB / "src" / "lib" / "schemas.ts"
_HEAD: Final = (
    "// The schemas of the OpenAPI document. `python -m tests.web.schemas` writes this file.\n"
)
_PROSE: Final = ("title", "description", "examples")


def schemas() -> str:
    """Return the text that the file of types has to have."""
    described = asyncio.run(_document())
    document = {
        "openapi": described["openapi"],
        "info": {"title": "egressd", "version": "1"},
        "paths": {},
        "components": {"schemas": _without_prose(described["components"]["schemas"])},
    }
    argv = ("node_modules/openapi-typescript/bin/cli.js", "--alphabetize", "--root-types")
    return _HEAD + node(*argv, "--root-types-no-schema-prefix", given=json.dumps(document))


async def _document() -> dict[str, Any]:
    device = await start_device()
    answer = await device.client.get("http://device/ops/openapi.json")
    document: dict[str, Any] = answer.json()
    return document


def _without_prose(schema: Any) -> Any:
    """Return a schema without titles and descriptions: a new wording makes no new type."""
    if isinstance(schema, list):
        return [_without_prose(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if name not in _PROSE}
    fields = kept.pop("properties", None)
    bare = {name: _without_prose(part) for name, part in kept.items()}
    if fields is not None:
        bare["properties"] = {name: _without_prose(field) for name, field in fields.items()}
    return bare


if __name__ == "__main__":
    FILE.write_text(schemas())
