"""Schemathesis against the whole API in process: the API behaves as its document describes.

Two of its checks are left out, since the contract differs: an unknown method is answered 403 (not
405), and a body that fits its schema may still name objects that do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import BaseSchema, Case, Response
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
)

from egressd.api.app import ROUTERS
from egressd.model.desired import DesiredState
from tests.support.api_device import TOKEN, Device, start_device

pytestmark = [
    pytest.mark.timeout(480),
    pytest.mark.slow,
]  # thousands of requests, on a machine that may be busy

EXAMPLES = 10
EXCLUDED: list[Any] = [unsupported_method, positive_data_acceptance]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
LEFT_OUT = ["/ops/events", "/ops/restore", "/ops/openapi.json"]
"""Paths that are not tried: one never ends, one takes a file, and the last is the document."""
OPERATIONS = [
    f"{endpoint.method} {endpoint.path}"
    for router in ROUTERS
    for endpoint in router.endpoints
    if endpoint.path not in LEFT_OUT
]


def excluded(case: Case[Any]) -> list[Any]:
    """Return the checks to leave out. Each request has the token, so a case whose only wrong part
    was that header is a correct one.
    """
    part = case.meta.components.get(ParameterLocation.HEADER) if case.meta is not None else None
    if part is not None and part.mode is GenerationMode.NEGATIVE:
        return [*EXCLUDED, negative_data_rejection]
    return EXCLUDED


async def seeded(device: Device) -> DesiredState:
    """Return a state with the objects of the document's examples, and more of each kind."""
    config = '{"server": "203.0.113.9", "port": 1080}'
    line = {"server": "vpn.example.com", "username": "u", "password": "p"}
    for number in range(1, 9):
        node = {"name": f"node {number}", "protocol": "socks5", "config_json": config}
        service = {"name": f"service {number}", "outbound_interface": "wan1"}
        name = f"pptp_{number}" if number > 1 else "l2tp_tokyo"
        kind = name.partition("_")[0]
        for path, body in (
            ("/nodes", node | {"group": "hk"}),
            ("/proxy-services", service | {"port": 18100 + number}),
            ("/vpn-lines", line | {"type": kind, "name": name}),
            ("/rules", {"ip": f"10.0.0.{number}", "target_node": "Group_hk"}),
        ):
            await device.answer("POST", path, body)
    return device.bench.state


async def start() -> tuple[Device, DesiredState]:
    device = await start_device()
    return device, await seeded(device)


@pytest.fixture(scope="module")
def begun() -> tuple[Device, DesiredState]:
    """Return a device, and the state that each case meets, so that none is refused because of an
    earlier one.
    """
    return asyncio.run(start())


@pytest.fixture(scope="module")
def document(begun: tuple[Device, DesiredState]) -> BaseSchema:
    """Return the document of the endpoints that are tested."""
    device, _ = begun
    return schemathesis.openapi.from_asgi("/ops/openapi.json", device.app).exclude(path=LEFT_OUT)


@pytest.fixture(scope="module")
def behaviours(
    begun: tuple[Device, DesiredState], document: BaseSchema
) -> dict[str, Callable[[], None]]:
    """Return a test of each operation, by its method and path.

    To make them takes ten seconds, so the worker that runs them does, and not each that collects.
    """
    device, seed = begun

    def behaves(case: Case[Any]) -> None:
        asyncio.run(device.become(seed))
        case.call_and_validate(headers=HEADERS, excluded_checks=excluded(case))

    tried = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    found = {}
    for made in get_all_tests(
        schema=document, test_func=behaves, settings=tried, given_kwargs=None
    ):
        assert isinstance(made, Ok), made.err()
        operation, test = made.ok()
        found[operation.label] = test
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_api_behaves_as_its_document_describes(
    operation: str, behaviours: dict[str, Callable[[], None]]
) -> None:
    behaviours[operation]()


def test_each_operation_of_the_document_is_tried(
    behaviours: dict[str, Callable[[], None]],
) -> None:
    assert sorted(behaviours) == sorted(OPERATIONS)


def test_sequences_of_calls_behave_as_the_document_describes(
    begun: tuple[Device, DesiredState], document: BaseSchema
) -> None:
    device, seed = begun

    class Caller(document.as_state_machine()):  # type: ignore[misc]
        """Follows the links between operations: one creates an object, others change and delete
        it.
        """

        def setup(self) -> None:
            asyncio.run(device.become(seed))

        def get_call_kwargs(self, case: Case[Any]) -> dict[str, object]:
            return {"headers": HEADERS}

        def validate_response(self, response: Response, case: Case[Any], **kwargs: object) -> None:
            case.validate_response(response, excluded_checks=excluded(case))

    Caller.run(
        settings=settings(
            max_examples=5,
            stateful_step_count=8,
            suppress_health_check=list(HealthCheck),
        )
    )
