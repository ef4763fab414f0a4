"""The possible requests of a compromised api to netd: only those that the model has."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from egressd.model.errors import Invalid
from egressd.model.messages import (
    ApplyChange,
    MeasureDelay,
    RequestBody,
    SetPlan,
    Try,
)
from egressd.model.plan import Plan, difference
from egressd.netd.ipc.server import read_request
from egressd.netd.reconciler import validation
from egressd.planner.documents import document_of, probe_document
from tests.netd.hostile import (
    Json,
    at,
    engine_keys,
    good,
    having,
    is_table,
    objects,
    raw,
)

SECRET = "/etc/shadow"
VALUES: tuple[Any, ...] = (
    SECRET,
    22,
    True,
    {"enabled": True, "path": SECRET},
    [{"type": "tun", "auto_route": True, "path": SECRET}],
)
"""Values with which the engine would do harm, of each JSON type."""


# --- Messages that pass the decoder, and the resulting documents. ----------------------------


def keys_of(value: Any, place: str = "") -> set[str]:
    """Return every key of a document, with its place; a header's name is the user's own."""
    if isinstance(value, dict):
        if place.endswith(".headers"):
            return set()
        own = {f"{place}.{key}" for key in value}
        return own.union(*(keys_of(item, f"{place}.{key}") for key, item in value.items()))
    if isinstance(value, list):
        return set[str]().union(*(keys_of(item, place) for item in value))
    return set()


def documents(asked: RequestBody) -> list[Json]:
    """Return the engine's documents for a request."""
    match asked:
        case SetPlan(plan=plan):
            texts = [document_of(each.work) for each in plan.instances.values()]
        case ApplyChange(change=change):
            texts = [document_of(each.work) for each in change.instances.put.values()]
        case Try(paths=paths):
            texts = [*map(probe_document, paths)]
        case MeasureDelay(probes=probes):
            texts = [probe_document(probe.path) for probe in probes]
        case _:
            texts = []
    return [json.loads(text) for text in texts]


def checked(body: Json) -> RequestBody:
    """Return the request that netd would act on. Raises Invalid."""
    asked = read_request(msgspec.msgpack.encode(body))
    if isinstance(asked, ApplyChange):
        validation.check(asked.change, Plan())
    if isinstance(asked, SetPlan):
        validation.check(difference(Plan(), asked.plan), Plan())
    return asked


GOOD = {name: raw(message) for name, message in good().items()}
KNOWN: set[str] = set()
for _message in good().values():
    KNOWN |= keys_of(documents(_message))


def test_messages_of_the_model_are_decoded_unchanged() -> None:
    for name, message in good().items():
        assert checked(GOOD[name]) == message
    assert {".outbounds.type", ".outbounds.plugin_opts", ".outbounds.tls.ech.config"} <= KNOWN
    assert len(KNOWN) > 80


def test_no_key_but_that_of_rule_sets_names_a_file_or_program() -> None:
    named = {key for key in KNOWN if key.rpartition(".")[2] in ("path", "output")}
    assert named == {".outbounds.transport.path", ".route.rule_set.path"}
    assert not {key for key in KNOWN if "_path" in key or "executable" in key or "file" in key}


def test_the_engines_dangerous_keys_are_covered() -> None:
    wanted = {"executable_path", "torrc", "certificate_path", "cache_file", "output", "auto_route"}
    wanted |= {"private_key_path", "listen_port", "peers", "netns", "bind_interface", "endpoints"}
    assert wanted <= set(engine_keys())


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.slow
def test_engine_keys_missing_in_the_model_are_not_passed_on(name: str) -> None:
    message, came_through, told = GOOD[name], set(), set()
    for place in [*objects(message)]:
        fields = {*at(message, place)}
        for key in engine_keys():
            is_known = key in fields or is_table(place)
            for value in VALUES if is_known else VALUES[:1]:
                with having(message, place, key, value):
                    try:
                        asked = checked(message)
                    except Invalid as refused:
                        if not is_known and key not in str(refused):
                            told.add((place, key, str(refused)))
                        continue
                if key not in fields:
                    came_through.add((place, key))
                assert keys_of(documents(asked)) <= KNOWN, (place, key, value)
    assert came_through == set()
    assert told == set()
