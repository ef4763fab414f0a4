"""The keys by which cut flows are kept cut."""

from socket import IPPROTO_TCP, inet_aton

from egressd.netd.kernel import uapi
from egressd.netd.kernel.cut_flows import key_of
from egressd.netd.kernel.netlink import attribute, attributes, nest


def test_a_flow_whose_state_the_kernel_does_not_tell_has_a_key() -> None:
    """One in another program's flowtable (ctnetlink_fill_info of nf_conntrack_netlink.c)."""
    addresses = attribute(uapi.CTA_IP_V4_SRC, inet_aton("10.0.0.2"))
    addresses += attribute(uapi.CTA_IP_V4_DST, inet_aton("192.0.2.1"))
    ports = attribute(uapi.CTA_PROTO_NUM, bytes([IPPROTO_TCP]))
    ports += attribute(uapi.CTA_PROTO_SRC_PORT, b"\x12\x34")
    ports += attribute(uapi.CTA_PROTO_DST_PORT, b"\x01\xbb")
    parts = nest(uapi.CTA_TUPLE_IP, addresses), nest(uapi.CTA_TUPLE_PROTO, ports)
    entry = attributes(nest(uapi.CTA_TUPLE_ORIG, *parts))
    key = b"\x0a\x00\x00\x02\x12\x34\x00\x00\xc0\x00\x02\x01\x01\xbb\x00\x00"
    assert key_of(entry) == key
