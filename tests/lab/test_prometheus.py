"""A real Prometheus on a client's host reads the metrics, as docs/metrics.md has it: every alert of
`packaging/` loads, and every query of the dashboard finds something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import yaml

from egressd_lab.device import TLS_PORT
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import eventually, send

pytestmark = pytest.mark.lab

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "packaging" / "prometheus" / "egressd-alerts.yml"
DASHBOARD: Final = ROOT / "packaging" / "grafana" / "egressd.json"
DOCUMENT: Final = ROOT / "docs" / "metrics.md"
YAML: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LISTEN: Final = "127.0.0.1:9090"
LINE: Final = {"type": "l2tp", "server": "192.0.2.250", "username": "u", "password": "p"}


class Prometheus:
    """Prometheus in a lab client's namespace, with the documented configuration."""

    def __init__(self, lab: Lab) -> None:
        self._client = lab.client(1)
        folder = lab.folder / "prometheus"
        folder.mkdir()
        (folder / "token").write_text(lab.api.token)
        (config,) = re.findall(
            r"^```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL
        )
        settings = yaml.safe_load(config)
        (job,) = settings["scrape_configs"]
        job["tls_config"]["ca_file"] = str(lab.device.data / "api" / "tls-certificate.pem")
        job["authorization"]["credentials_file"] = str(folder / "token")
        job["static_configs"] = [{"targets": [f"{LAN_ADDRESS}:{TLS_PORT}"]}]
        settings["rule_files"] = [str(ALERTS)]
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        argv = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={LISTEN}",
        ]
        self.program = Program(self._client.host.namespace, argv, folder / "log")
        self.program.start()

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its HTTP API."""
        reply = self._client.http(f"http://{LISTEN}/api/v1/{path}?{urlencode(query)}")
        return json.loads(reply.body)["data"] if reply.status == 200 else {}

    def result(self, expression: str) -> list[Any]:
        """Return the series that an expression has now."""
        found: list[Any] = self.ask("query", query=expression).get("result", [])
        return found

    def alerts(self) -> dict[str, str]:
        """Return the states of the alerts that are pending or firing, by name."""
        alerts = self.ask("alerts").get("alerts", [])
        return {each["labels"]["alertname"]: each["state"] for each in alerts}


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5",))) as lab:
        lab.start_egressd()
        lab.api.post("/nodes", lab.nodes["socks5"].draft() | {"group": "hk"})
        send(lab, 1, "Group_hk")
        lab.api.post("/vpn-lines", LINE | {"name": "l2tp_office"})
        lab.device.run("backup", "--every", "24h", "--to", str(lab.folder))
        yield lab


@pytest.fixture(scope="module")
def prometheus(lab: Lab) -> Iterator[Prometheus]:
    prometheus = Prometheus(lab)
    try:
        eventually(lambda: bool(prometheus.result('up{job="egressd"} == 1')), 60)
        yield prometheus
    finally:
        prometheus.program.kill()


def expressions() -> list[str]:
    """Return the queries of the dashboard's panels, with its variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "10s").replace("$instance", ".+") for each in found]


def test_every_alert_loads_and_only_the_line_that_is_down_is_one(prometheus: Prometheus) -> None:
    wanted = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"]
              for rule in group["rules"]}  # fmt: skip

    def loaded() -> dict[str, str]:
        groups = prometheus.ask("rules").get("groups", [])
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    eventually(lambda: loaded() == dict.fromkeys(wanted, "ok"), 60)
    eventually(lambda: "EgressdLineDown" in prometheus.alerts(), 60)
    # The line is a problem, too, and no client's.
    assert set(prometheus.alerts()) <= {"EgressdLineDown", "EgressdProblems"}


def test_every_query_of_the_dashboard_finds_something(lab: Lab, prometheus: Prometheus) -> None:
    lab.api.post("/rules", {"ip": "10.77.200.1", "target_node": "DIRECT"})
    wanted = expressions()
    assert len(wanted) > 30
    eventually(lambda: all(map(prometheus.result, wanted)), 60)


def test_a_device_that_is_stopped_is_an_alert(lab: Lab, prometheus: Prometheus) -> None:
    assert "EgressdNotInForce" not in prometheus.alerts()
    lab.api.ask("POST", "/ops/stop", {})
    try:
        eventually(lambda: "EgressdNotInForce" in prometheus.alerts(), 60)
    finally:
        lab.api.ask("POST", "/ops/start", {})
    eventually(lambda: "EgressdNotInForce" not in prometheus.alerts(), 60)


def test_repairs_and_accepted_changes_are_counted(lab: Lab, prometheus: Prometheus) -> None:
    def changes() -> float:
        (series,) = prometheus.result("egressd_changes_total")
        return float(series["value"][1])

    before = changes()
    rule = {"ip": "10.77.200.2", "target_node": "DIRECT"}
    lab.api.post("/rules", rule)
    assert lab.api.ask("POST", "/svc/api/v1/rules", rule).status == 400
    lab.router.run("nft", "flush", "table", "inet", "egressd")
    eventually(lambda: bool(prometheus.result('egressd_heals_total{what="nftables"} > 0')), 60)
    eventually(lambda: changes() > before, 60)
    assert changes() == before + 1
    (durations,) = prometheus.result("egressd_change_duration_seconds_count")
    assert float(durations["value"][1]) == before + 1
