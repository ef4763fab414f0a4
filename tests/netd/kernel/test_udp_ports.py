"""UDP ports that this machine's programs listen on."""

from __future__ import annotations

from pathlib import Path

from egressd.netd.kernel.udp_ports import listened_on

TABLE = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
  121: 00000000:01BB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
  122: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 1 2 0 0
  123: 0100007F:0143 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
  124: 00000000:4E1F 00000000:0000 07 00000000:00000000 00:00000000 00000000   990        0 1 2 0 0
  125: 00000000:9C40 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
  126: 00000000:CA6C 0101A8C0:0035 01 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
"""


def test_ports_at_any_address_are_found_in_order(tmp_path: Path) -> None:
    file = tmp_path / "udp"
    file.write_text(TABLE)
    assert listened_on(but=990, table=file) == [53, 443]
    assert listened_on(but=101, table=file) == [443, 0x4E1F]


def test_the_kernels_own_table_is_read() -> None:
    assert all(0 < port < 32_768 for port in listened_on(but=0))
