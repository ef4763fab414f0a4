"""The outbounds of imported nodes, held against the real engine: it starts with all of them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import singbox

from egressd.planner.options import ENDPOINTS
from tests.support.nodes.corpora import CORPUS, cases_of, outbounds


def problem(told: Sequence[dict[str, Any]]) -> str:
    """Return the engine's reason for refusing one of the outbounds, else an empty string."""
    tagged = [{**outbound, "tag": str(at)} for at, outbound in enumerate(told)]
    document = {
        "log": {"disabled": True},
        "dns": {"servers": [{"type": "local", "tag": "device"}]},
        "outbounds": [each for each in tagged if each["type"] not in ENDPOINTS],
        "endpoints": [each for each in tagged if each["type"] in ENDPOINTS],
        "route": {"final": "0", "default_domain_resolver": "device"},
    }
    instance = singbox.SingBox()
    try:
        instance.startFromJSON(json.dumps(document))
    except singbox.SingBoxError as error:
        return str(error)
    instance.stop()
    return ""


@pytest.mark.parametrize("name", sorted(file.stem for file in CORPUS.glob("*.txt")))
def test_the_engine_starts_with_imported_outbounds(name: str) -> None:
    told = [outbound for case in cases_of(CORPUS / f"{name}.txt") for outbound in outbounds(case)]
    assert told
    assert problem(told) == ""


def test_the_engine_names_the_problem() -> None:
    told = {"type": "trojan", "server": "a.example", "server_port": 1, "tls": {"enabled": True}}
    assert problem([told, {**told, "tls": {"enabled": True, "min_version": "9"}}])
