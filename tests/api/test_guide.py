"""The guide's recipes run unchanged, with a real curl against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.api.server import ApiListener, serve

if TYPE_CHECKING:
    from tests.support.api_device import Device


DOCS = Path(__file__).parent.parent.parent / "docs"
GUIDE = (DOCS / "api.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
PROBLEM_DOCUMENTS = re.findall(
    r"^```json\n(\{\n  \"type\".*?)^```$", GUIDE, re.DOTALL | re.MULTILINE
)
PAGES = ("api.md", "api-semantics.md")


async def run(script: str, port: int, token: str) -> str:
    """Return bash's output for the script, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "BASE": f"http://127.0.0.1:{port}", "TOKEN": token},
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_every_recipe_works_as_described(fresh_device: Device) -> None:
    assert shutil.which("curl"), "the recipes are for curl"
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(fresh_device.app, [ApiListener(bound)], stop))
    output = await run("\n".join(BLOCKS), bound.getsockname()[1], fresh_device.token)
    stop.set()
    await serving
    answers = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    problems = [answer for answer in answers if "type" in answer]
    assert problems == [json.loads(document) for document in PROBLEM_DOCUMENTS]
    assert problems
    answers = [answer for answer in answers if "type" not in answer]
    assert (
        len(answers) == len(re.findall(r"^(api|ops) ", GUIDE, re.MULTILINE)) + 2
    )  # health and token
    for answer in answers:
        assert "error" not in answer, answer
        assert not answer.get("errors"), answer
        assert answer.get("skipped", 0) == 0, answer
    assert "etag: " in output
    assert "egressd_up 1.0" in output
    state = fresh_device.bench.state
    assert {rule.target_node for rule in state.rules.values()} == {
        "Group_hk",
        "Group_sg",
        "Interface:l2tp_osaka",
        "DIRECT",
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_existing_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text("utf-8")):
        assert "://" in target or (DOCS / target).exists(), target


async def test_the_guide_names_existing_endpoints_only(device: Device) -> None:
    document = (await device.client.get("http://device/ops/openapi.json")).json()
    endpoints = {
        f"{method.upper()} {path.removeprefix('/svc/api/v1')}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    calls = re.findall(r"^api (\w+) \"?(/[^\s'\"?]*)", GUIDE, re.MULTILINE)
    assert len(calls) > 20
    for method, path in calls:
        template = re.sub(r"/\d+", "/{id}", path)
        template = re.sub(r"/(l2tp|pptp)/\w+", "/{type}/{name}", template)
        assert f"{method} {template}" in endpoints
