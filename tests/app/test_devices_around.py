"""The makers of network cards, and the leases of DHCP servers, from the machine's files."""

from __future__ import annotations

import os
from pathlib import Path

from egressd.app.lease_files import LeaseFiles
from egressd.app.vendors import IeeeVendors

HEAD = "Registry,Assignment,Organization Name,Organization Address\r\n"
OUI = HEAD + (
    "MA-L,002272,American Micro-Fuel Device Corp.,2181 Buchanan Loop Ferndale WA US 98248 \r\n"
    'MA-L,A483E7,"Apple, Inc.",1 Infinite Loop Cupertino CA US 95014 \r\n'
    "MA-L,741AE0,IEEE Registration Authority,445 Hoes Lane Piscataway NJ US 08554 \r\n"
    "MA-L,70B3D5,IEEE Registration Authority,445 Hoes Lane Piscataway NJ US 08554 \r\n"
    "MA-L,00DEAD,\x1b[2J<b>Bad</b>,\r\nMA-L,00BEEF\r\n"
)
MAM = HEAD + "MA-M,741AE09,Small Maker,\r\n"
OUI36 = HEAD + 'MA-S,70B3D5F2F,TELEPLATFORMS,"Polbina st., 3/1 Moscow  RU 109388 "\r\n'


async def test_makers_are_found_by_the_longest_prefix(tmp_path: Path) -> None:
    folder = tmp_path / "ieee-data"
    assert await IeeeVendors([folder]).names(["00:22:72:00:00:01"]) == {}
    folder.mkdir()
    assert await IeeeVendors([folder]).names(["00:22:72:00:00:01"]) == {}
    for name, text in {"oui.csv": OUI, "mam.csv": MAM, "oui36.csv": OUI36}.items():
        (folder / name).write_bytes(text.encode())
    macs = (
        "00:22:72:00:00:01", "a4:83:e7:00:00:01", "a4:83:e7:00:00:02", "74:1a:e0:9f:00:01",
        "70:b3:d5:f2:f0:01", "74:1a:e0:1f:00:01", "00:de:ad:00:00:01", "00:be:ef:00:00:01",
    )  # fmt: skip
    assert await IeeeVendors([tmp_path / "other", folder]).names(macs) == {
        "00:22:72:00:00:01": "American Micro-Fuel Device Corp.",
        "a4:83:e7:00:00:01": "Apple Inc.",
        "a4:83:e7:00:00:02": "Apple Inc.",
        "74:1a:e0:9f:00:01": "Small Maker",
        "70:b3:d5:f2:f0:01": "TELEPLATFORMS",
        "00:de:ad:00:00:01": "bBadb",
    }


async def test_leases_are_read_when_their_file_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "dnsmasq.leases"
    leases = LeaseFiles([tmp_path / "missing", tmp_path, file])
    assert await leases.read() == []
    file.write_text("1 02:00:5e:00:53:01 10.0.0.5 anna-phone *\n")
    assert [lease.hostname for lease in await leases.read()] == ["anna-phone"]
    assert await leases.read() == []
    file.write_bytes(
        b"1 02:00:5e:00:53:01 10.0.0.5 \xff\x1b[2J *\n1 02:00:5e:00:53:02 10.0.0.6 tv *\n"
    )
    os.utime(file, ns=(1, 1))
    assert [lease.hostname for lease in await leases.read()] == ["", "tv"]
