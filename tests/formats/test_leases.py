"""Files of leases of DHCP servers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.leases import LEASES_MAX, read_leases
from egressd.model.devices import DhcpLease, is_random_mac, normal_mac

DNSMASQ = """\
1795987200 02:00:5e:00:53:01 10.0.7.3 anna-phone 01:02:00:5e:00:53:01
1795987200 02:00:5e:00:53:02 10.0.7.4 * *
duid 00:01:00:01:30
1795987200 1234 fd00::1 host 00:01
1795987200 02:00:5e:00:53:03 10.0.7.5 \x1b[2Jtv *
"""
KEA = """\
address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context,pool_id
10.0.7.3,02:00:5e:00:53:01,01:02:00:5e:00:53:01,3600,1795987200,1,0,0,anna-phone,0,,0
10.0.7.4,02:00:5e:00:53:02,,3600,1795987200,1,0,0,,0,,0
10.0.7.4,02:00:5e:00:53:02,,0,1795987200,1,0,0,,0,,0
10.0.7.5,,,3600,1795987200,1,0,0,declined,1,,0
10.0.7.6,02:00:5e:00:53:04,,3600
"""
DHCPD = """\
# The format of this file is documented in the dhcpd.leases(5) manual page.
authoring-byte-order little-endian;

lease 10.0.7.3 {
  starts 0 2026/11/29 18:00:00;
  binding state active;
  next binding state free;
  hardware ethernet 02:00:5e:00:53:01;
  uid "\\001\\002\\000^\\000S\\001";
  client-hostname "anna-phone";
}
lease 10.0.7.4 {
  binding state active;
  hardware ethernet 02:00:5e:00:53:02;
}
lease 10.0.7.4 {
  binding state free;
  hardware ethernet 02:00:5e:00:53:02;
}
lease 10.0.7.5 {
  binding state active;
  hardware ethernet 02:00:5e:00:53:03;
  client-hostname "\\033[2Jtv";
}
"""
ANNA = DhcpLease(mac="02:00:5e:00:53:01", ip="10.0.7.3", hostname="anna-phone")
TV = DhcpLease(mac="02:00:5e:00:53:03", ip="10.0.7.5", hostname="tv")


def test_the_files_of_three_servers_are_read() -> None:
    nameless = DhcpLease(mac="02:00:5e:00:53:02", ip="10.0.7.4")
    assert read_leases(DNSMASQ.splitlines(keepends=True)) == [ANNA, nameless, TV]
    late = DhcpLease(mac="02:00:5e:00:53:04", ip="10.0.7.6")
    assert read_leases(KEA.splitlines(keepends=True)) == [ANNA, late]
    assert read_leases(DHCPD.splitlines(keepends=True)) == [ANNA, TV]
    assert read_leases([]) == []


def test_the_number_of_leases_is_bounded() -> None:
    lines = (
        f"1 02:00:5e:{n >> 16:02x}:{n >> 8 & 255:02x}:{n & 255:02x} 10.{n >> 16}.{n >> 8 & 255}."
        f"{n & 255} * *"
        for n in range(LEASES_MAX + 10)
    )
    assert len(read_leases(lines)) == LEASES_MAX


def test_a_line_without_the_form_of_the_file_spoils_no_other() -> None:
    head, *lines = KEA.splitlines()
    whole = read_leases([head, *lines])
    for broken in ("\r0", '"', 'a,"b', "\0"):
        assert read_leases([head, broken, *lines]) == whole


@given(
    st.sampled_from([[], DNSMASQ.splitlines(), KEA.splitlines()[:1], DHCPD.splitlines()]),
    st.lists(st.text(max_size=80)),
)
def test_no_content_raises_an_error(first: list[str], lines: list[str]) -> None:
    for lease in read_leases([*first, *lines]):
        assert normal_mac(lease.mac) == lease.mac
        assert lease.hostname.isprintable()


def test_hardware_addresses_have_one_form() -> None:
    assert normal_mac("02-00-5E-00-53-0A") == normal_mac("02:00:5e:00:53:0a") == "02:00:5e:00:53:0a"
    for text in (
        "",
        "02:00:5e:00:53",
        "02:00:5e-00:53:0a",
        "01:00:5e:00:53:0a",
        "0" * 12,
        "00:" * 6,
    ):
        assert normal_mac(text) is None
    assert normal_mac("00:00:00:00:00:00") is None
    assert is_random_mac("02:00:5e:00:53:0a")
    assert not is_random_mac("00:00:5e:00:53:0a")
