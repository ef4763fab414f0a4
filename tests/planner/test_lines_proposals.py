"""The encryptions that IPsec servers are offered."""

from __future__ import annotations

import pytest

from egressd.planner.lines.proposals import ESP_OFFERS, IKE_OFFERS, in_use

FIRST_PACKET_MAX = 1024
OVERHEAD = 160
"""Bytes of a first packet around its proposals: headers, and the names of what charon can do."""


@pytest.mark.parametrize(
    "wanted",
    [
        "3des-sha1-modp1024",
        "3des-md5-modp1024",
        "aes256-sha256-modp1024",
        "aes256-sha1-modp1536",
        "aes192-sha1-modp1024",
        "aes256-sha256-ecp256",
        "aes256-sha256-modp2048",
        "aes128-sha1-modp1024",
        "aes128-sha512-modp3072",
        "3des-md5-modp1536",
        "aes256-sha384-curve25519",
    ],
)
def test_a_server_that_takes_one_ike_proposal_is_offered_it(wanted: str) -> None:
    assert any(wanted in offer for offer in IKE_OFFERS)


@pytest.mark.parametrize(
    "wanted",
    ["aes256-sha256", "aes192-sha1", "3des-md5", "aes128gcm16", "aes128-sha1-modp1024"],
)
def test_a_server_that_takes_one_esp_proposal_is_offered_it(wanted: str) -> None:
    assert any(wanted in offer for offer in ESP_OFFERS)


def test_an_offer_fits_a_first_packet_that_old_servers_take() -> None:
    assert max(36 * len(offer) for offer in IKE_OFFERS) + OVERHEAD <= FIRST_PACKET_MAX
    assert len(IKE_OFFERS[1]) <= 6, "for those that ignore a longer one"


def test_no_offer_has_two_groups_for_its_one_exchange_of_keys() -> None:
    def group(proposal: str) -> str:
        last = proposal.rpartition("-")[2]
        return last if last.startswith(("modp", "ecp", "curve")) else ""

    groups = [{group(proposal) for proposal in offer} for offer in ESP_OFFERS]
    assert all(len(each) == 1 for each in groups)
    assert len(set().union(*groups)) == len(ESP_OFFERS) - 1, "two are without one"


def test_the_weak_come_after_the_strong() -> None:
    for offer in (*IKE_OFFERS, *ESP_OFFERS):
        weak = [("3des" in each) + ("md5" in each) for each in offer]
        assert weak[0] <= weak[-1]
    assert not any(part in IKE_OFFERS[0][0] for part in ("3des", "md5", "sha1", "modp1024"))


IKE = {
    "encr-alg": b"AES_CBC",
    "encr-keysize": b"256",
    "integ-alg": b"HMAC_SHA2_256_128",
    "prf-alg": b"PRF_HMAC_SHA2_256",
    "dh-group": b"MODP_2048",
}
CHILD = {"encr-alg": b"AES_GCM_16", "encr-keysize": b"128"}


def test_algorithms_in_use_are_named() -> None:
    ike = "IKE AES_CBC_256/HMAC_SHA2_256_128/MODP_2048"
    assert in_use(IKE, CHILD, is_forced=False) == f"{ike}, ESP AES_GCM_16_128"
    in_udp = CHILD | {"encap": b"yes"}
    assert in_use(IKE, in_udp, is_forced=False) == f"{ike}, ESP in UDP AES_GCM_16_128"
    told = f"{ike}, ESP in UDP (by itself it does not come through) AES_GCM_16_128"
    assert in_use(IKE, in_udp, is_forced=True) == told
    assert in_use(IKE, CHILD, is_forced=True) == f"{ike}, ESP AES_GCM_16_128", "it takes no UDP"


def test_weak_algorithms_are_named() -> None:
    ike = IKE | {"encr-alg": b"3DES_CBC", "integ-alg": b"HMAC_MD5_96", "dh-group": b"MODP_1024"}
    del ike["encr-keysize"]
    child = {"encr-alg": b"3DES_CBC", "integ-alg": b"HMAC_SHA1_96"}
    assert in_use(ike, child, is_forced=False) == (
        "IKE 3DES_CBC/HMAC_MD5_96/MODP_1024, ESP 3DES_CBC/HMAC_SHA1_96; "
        "weak: 3DES_CBC, HMAC_MD5_96, MODP_1024"
    )


def test_algorithms_in_use_have_a_code_and_values() -> None:
    found = in_use(IKE, CHILD, is_forced=False)
    ike = ("AES_CBC_256", "HMAC_SHA2_256_128", "MODP_2048")
    assert (found.code, found.values) == ("ipsec", {"ike": ike, "esp": ("AES_GCM_16_128",)})
    weak = in_use(IKE | {"dh-group": b"MODP_1024"}, CHILD, is_forced=False)
    assert weak.code == "with-weak-parts"
    assert weak.values["parts"] == ("MODP_1024",)
