"""docs/metrics.md: it names every metric, and every kind of bound."""

from __future__ import annotations

import re
from pathlib import Path

from egressd.api.bounds import CallBounds, CallerShare
from egressd.api.metrics import of_connections
from egressd.model.messages import Status
from egressd.model.wording import NONE
from egressd.netd.kernel import refused
from egressd.service.overview import TimedBackups
from tests.support.api_device import Device

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
NAMED = set(re.findall(r"`((?:egressd|process)_\w+)", TEXT))


async def test_every_metric_of_a_scrape_is_named(fresh_device: Device) -> None:
    device = fresh_device
    device.bench.netd.shown = Status(state="running", revision=0, tracked_max=1, refused={"api": 1})
    device.timed_backups = TimedBackups(
        folder="/mnt", every_h=24, keep=14, last_success="", next_run="", problem=NONE
    )
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    await device.client.get("http://device/ops/health")
    scraped = (await device.client.get("http://device/ops/metrics")).text
    names = set(re.findall(r"^# TYPE (\w+) ", scraped, re.MULTILINE))
    assert "egressd_http_requests_total" in names
    assert len([name for name in names if "backup" in name or "limit" in name]) == 3
    assert {name for name in names if not name.endswith("_created")} - NAMED == set()


def test_every_metric_of_connections_is_named() -> None:
    families = [family for each in of_connections(CallBounds()) for family in each.collect()]
    names = {f"{it.name}_total" if it.type == "counter" else it.name for it in families}
    assert len(names) == 3
    assert names - NAMED == set()


def test_every_value_of_a_label_is_named() -> None:
    kinds = {
        value for name, value in vars(refused).items() if name.isupper() and type(value) is str
    }
    shares = {share.name.lower() for share in CallerShare}
    assert {value for value in kinds | shares if f"`{value}`" not in TEXT} == set()
    assert len(kinds) == 12
