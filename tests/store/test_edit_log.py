"""The formats of edits in the log of a site, which members of an older egressd read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from egressd.model import nouns
from egressd.model.desired import Edit
from egressd.store import edit_log

ROWS: dict[str, tuple[int, type[msgspec.Struct], str]] = {
    "nodes": (
        4,
        nouns.Node,
        "id name protocol config_json group created_at change_ip_url change_ip_via subscription"
        " name_there gone_at",
    ),
    "rules": (
        2,
        nouns.Rule,
        "id ip mac bound_mac comment is_enabled target_node upload_limit_kbps download_limit_kbps"
        " created_at updated_at",
    ),
    "lines": (
        1,
        nouns.Line,
        "id type name server port username password secret interface comment dns_profile"
        " dns_servers is_enabled",
    ),
    "services": (
        1,
        nouns.ProxyService,
        "id name outbound_interface port username password is_enabled created_at",
    ),
    "whitelist": (1, nouns.Whitelist, "domains ips node"),
    "alert_channels": (2, nouns.AlertChannel, "id name url via is_enabled created_at"),
    "settings": (
        2,
        nouns.Settings,
        "unmanaged delay_url check_interval_s group_strategy sniff_domains stopped opened alerts"
        " alerts.on alerts.for_s alerts.quiet alerts.channels",
    ),
    "groups": (
        4,
        nouns.TargetGroup,
        "id name strategy members weights filter check_url check_interval_s tolerance_ms"
        " failback_min on_switch rotate_every_s created_at",
    ),
    "subscriptions": (
        4,
        nouns.Subscription,
        "id name url user_agent headers group interval_s via include exclude rename gone is_enabled"
        " created_at",
    ),
}
"""Table -> the format that has its rows, their type, and all their fields."""


def fields(row: type[msgspec.Struct], place: str = "") -> list[str]:
    found = []
    for field in msgspec.structs.fields(row):
        found.append(place + field.name)
        inner: Any = field.type
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            found += fields(inner, f"{place}{field.name}.")
    return found


@pytest.mark.parametrize("table", ROWS)
def test_a_new_field_is_a_new_format(table: str) -> None:
    """An older member would drop the field, and have another state in force than the others. If
    this fails, raise `edit_log.FORMAT`, and have the table begin with it.
    """
    since, row, known = ROWS[table]
    assert fields(row) == known.split()
    assert edit_log.format_of([Edit(table, 1, None)]) == since <= edit_log.FORMAT


def test_each_table_has_a_format() -> None:
    assert {*ROWS, "numbers", "last_ids"} == edit_log.TABLES
    assert max(since for since, _, _ in ROWS.values()) == edit_log.FORMAT
