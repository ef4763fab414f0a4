"""egressd in the lab: started, queried, stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import time

import pytest

from egressd.model.errors import Failed
from egressd_lab.lab import Lab
from egressd_lab.spec import WEB_SERVERS, LabSpec

pytestmark = pytest.mark.lab

URL = f"http://{WEB_SERVERS[0]}/"


def _wait_until_seen(lab: Lab, seen: str) -> None:
    deadline = time.monotonic() + 20
    while lab.client(1).http(URL, timeout=2).seen != seen:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_client_keeps_its_egress_through_every_restart(lab: Lab) -> None:
    node = lab.nodes["socks5"]
    lab.api.post("/nodes", node.draft())
    lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": node.name})
    assert lab.client(1).http(URL).seen == node.address
    assert not lab.client(2).http(URL, timeout=2).ok

    assert lab.device.stop() < 30
    assert not lab.device.program.running
    with pytest.raises(Failed):
        lab.api.get("/rules")
    assert lab.device.start() > 0
    assert len(lab.api.get("/rules")["data"]) == 1
    _wait_until_seen(lab, node.address)

    for part in ("egressd.app netd", "egressd.app api"):
        (before,) = lab.device.pids(part)
        os.kill(before, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while lab.device.pids(part) in ([], [before]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        lab.device.wait_healthy()
        _wait_until_seen(lab, node.address)

    lab.device.kill()
    lab.start_egressd()
    _wait_until_seen(lab, node.address)


def test_a_failed_api_call_names_its_reason(lab: Lab) -> None:
    with pytest.raises(Failed, match=r"POST /rules: 400: .*target_node"):
        lab.api.post("/rules", {"ip": "10.77.0.12"})
    answer = lab.api.ask("GET", "/svc/api/v1/rules", headers={"Authorization": "Bearer x"})
    assert (answer.status, answer.body) == (401, {"error": "API Token invalid"})
    assert lab.api.ask("GET", "/ops/health").status == 200


def test_commands_run_with_the_devices_configuration(lab: Lab) -> None:
    assert lab.device.run("token", "show").strip() == lab.api.token


def test_egressd_starts_from_a_shell_with_a_restrictive_umask(namespaces: None) -> None:
    before = os.umask(0o077)
    try:
        with Lab(LabSpec(nodes=())) as lab:
            lab.start_egressd()
            lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "DIRECT"})
            assert lab.client(1).http(URL).seen == lab.wan(1).address
    finally:
        os.umask(before)
