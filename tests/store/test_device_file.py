"""The file of the devices of LANs."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
import structlog

from egressd.model.devices import DEVICES_MAX, DeviceAddress, LanDevice
from egressd.model.errors import Failed
from egressd.store.device_file import DeviceFile

ANNA = LanDevice(
    mac="02:00:5e:00:53:01",
    name="Anna's phone",
    comment="客厅",
    hostname="anna-phone",
    vendor_class="android-dhcp-13",
    first_seen=1,
    last_seen=2,
    addresses=(DeviceAddress("10.0.0.5", "lan0", 2), DeviceAddress("10.0.0.6", "", 0)),
)
TV = LanDevice(mac="02:00:5e:00:53:02", first_seen=3, last_seen=4)


async def test_devices_outlive_a_restart(tmp_path: Path) -> None:
    assert await DeviceFile(tmp_path).load() == []
    await DeviceFile(tmp_path).write([ANNA, TV], [])
    assert {*await DeviceFile(tmp_path).load()} == {ANNA, TV}
    assert (tmp_path / "devices.db").stat().st_mode & 0o777 == 0o600
    file = DeviceFile(tmp_path)
    await file.write([LanDevice(mac=TV.mac, first_seen=3, last_seen=9)], [ANNA.mac])
    assert [device.last_seen for device in await file.load()] == [9]


@pytest.mark.parametrize("content", [b"x" * 4096, b"SQLite format 3\0" + b"\xff" * 4080])
async def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "devices.db").write_bytes(content)
    with structlog.testing.capture_logs() as entries:
        assert await DeviceFile(tmp_path).load() == []
    assert [entry["log_level"] for entry in entries] == ["error"]
    assert (tmp_path / "devices.db.damaged").read_bytes() == content
    await DeviceFile(tmp_path).write([ANNA], [])
    assert await DeviceFile(tmp_path).load() == [ANNA]


@pytest.mark.parametrize(
    "damage",
    [
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 7",
        "DROP TABLE devices",
        "UPDATE devices SET addresses = '[[1]]'",
        "UPDATE devices SET mac = 'none'",
        "UPDATE devices SET first_seen = 'early'",
        "UPDATE devices SET name = x'ff'",
    ],
)
async def test_content_of_another_form_is_set_aside(tmp_path: Path, damage: str) -> None:
    await DeviceFile(tmp_path).write([ANNA], [])
    with sqlite3.connect(tmp_path / "devices.db") as connection:
        connection.execute(damage)
    connection.close()
    assert await DeviceFile(tmp_path).load() == []
    await DeviceFile(tmp_path).write([TV], [])
    assert await DeviceFile(tmp_path).load() == [TV]


async def test_a_disk_that_fails_is_no_damage(tmp_path: Path) -> None:
    file = DeviceFile(tmp_path / "missing")
    with pytest.raises(Failed):
        await file.write([ANNA], [])
    (tmp_path / "missing").mkdir()
    await file.write([ANNA], [])
    assert await file.load() == [ANNA]


async def test_a_caller_that_is_cancelled_leaves_a_whole_file(tmp_path: Path) -> None:
    file = DeviceFile(tmp_path)
    await file.write([ANNA], [])
    leaving = asyncio.create_task(file.write([TV], [ANNA.mac]))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await file.load() in ([ANNA], [TV])


async def test_a_full_table_is_stored_and_read(tmp_path: Path) -> None:
    devices = [
        LanDevice(
            mac="02:" + n.to_bytes(5, "big").hex(":"),
            first_seen=n,
            last_seen=n,
            addresses=(DeviceAddress(f"10.0.{n >> 8}.{n & 255}", "lan0", n),),
        )
        for n in range(DEVICES_MAX)
    ]
    file = DeviceFile(tmp_path)
    await file.write(devices, [])
    assert len(await file.load()) == DEVICES_MAX
    assert (tmp_path / "devices.db").stat().st_size < 12 << 20
