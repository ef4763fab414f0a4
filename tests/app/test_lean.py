"""Modules that processes do not load, and models that are made later."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import uvicorn.config
from fastapi import FastAPI

from egressd.api import document
from egressd.api.app import ROUTERS

# Older versions of uvicorn load click with their settings, 0.30 for one.
IS_CLICK_UVICORNS = "import click" in Path(uvicorn.config.__file__).read_text("utf-8")
KNOWS_VERSION_1 = find_spec("fastapi._compat.v1") is not None
"""True of a FastAPI that takes models of pydantic's version 1: up to 0.125."""
UNUSED = {
    "api": (
        *("rich", "greenlet", "alembic", "cryptography", "uvicorn.main", "multiprocessing"),
        *(() if IS_CLICK_UVICORNS else ("click",)),
        *(() if KNOWS_VERSION_1 else ("pydantic.v1",)),
    ),
    "netd": ("rich", "greenlet", "ssl", "sqlalchemy", "pydantic", "fastapi", "argparse"),
    "worker": ("ssl", "h11", "structlog", "argparse", "egressd.model.messages"),
    "trial worker": ("structlog", "argparse", "egressd.model.messages"),
}
"""Process -> modules that it has no use for."""

LOADED = """
import sys
from importlib import import_module
from egressd.app import lean
lean.keep_out({process!r})
import_module("egressd.app.{process}_process")
"""
WORKER = """
import sys
from egressd.netd.engine import worker
words = "--socket /proc/none/worker.sock --uid 1 --gid 1 --descriptors 1024"
try:
    worker.main([*words.split(), *{kind}])
except FileNotFoundError:  # it has loaded what it needs, and finds no run directory
    from egressd.netd.engine import server
"""
CODES = {
    "api": LOADED.format(process="api"),
    "netd": LOADED.format(process="netd"),
    "worker": WORKER.format(kind=[]),
    "trial worker": WORKER.format(kind=["--trial"])
    + "    from egressd.netd.engine import delay, serving\n",
}
"""Process -> code that loads its modules, as the process does."""


def output(code: str) -> str:
    """Return what a fresh interpreter prints."""
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("process", UNUSED)
def test_a_process_loads_no_module_without_use(process: str) -> None:
    code = CODES[process] + "print(*(name for name, module in sys.modules.items() if module))"
    loaded = output(code).split()
    assert "egressd.model.wording" in loaded
    assert not {*loaded} & {*UNUSED[process]}


def test_the_api_looks_for_no_plugins() -> None:
    code = (
        "from importlib import metadata\n"
        "def look(*_: object, **__: object) -> None:\n"
        "    raise AssertionError('looked for plugins')\n"
        "metadata.entry_points = metadata.distributions = look\n"
    )
    assert output(code + CODES["api"] + "print('loaded')") == "loaded\n"


def test_an_endpoint_is_made_for_its_first_request() -> None:
    code = CODES["api"] + (
        "import json\n"
        "from egressd.api.app import ROUTERS\n"
        "endpoints = [endpoint for router in ROUTERS for endpoint in router.endpoints]\n"
        "made = [each.path for each in endpoints if 'route' in vars(each)]\n"
        "print(json.dumps([len(endpoints), made]))\n"
    )
    endpoints, made = json.loads(output(code))
    assert endpoints > 100
    assert made == []


def test_fastapis_models_are_made_for_the_document() -> None:
    code = CODES["api"] + (
        "import json\n"
        "from fastapi import FastAPI\n"
        "from fastapi.openapi.models import OpenAPI\n"
        "from egressd.api import document\n"
        "from egressd.api.app import ROUTERS\n"
        "before = OpenAPI.__pydantic_complete__\n"
        "endpoints = [endpoint for router in ROUTERS for endpoint in router.endpoints]\n"
        "loaded = {*sys.modules}\n"
        "made = document.build(FastAPI(title='t'), endpoints)\n"
        "late = [*{*sys.modules} - loaded]\n"
        "print(json.dumps([before, OpenAPI.__pydantic_complete__, made, late]))\n"
    )
    before, after, made, loaded_late = json.loads(output(code))
    assert (before, after, loaded_late) == (False, True, [])
    endpoints = [endpoint for router in ROUTERS for endpoint in router.endpoints]
    assert made == json.loads(json.dumps(document.build(FastAPI(title="t"), endpoints)))
