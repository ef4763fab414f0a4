"""Advice on missing kernel modules, from the kernel's error messages."""

from __future__ import annotations

import pytest

from egressd.model.errors import Failed
from egressd.netd.kernel.modules import for_netlink, for_nft
from egressd.netd.kernel.nft import Nft, _reason
from tests.support.netns import Namespace

UNKNOWN = "Could not process rule: No such file or directory"


@pytest.mark.parametrize(
    ("reason", "culprit", "module"),
    [
        (UNKNOWN, "tproxy ip to 127.0.0.1:20000", "nft_tproxy"),
        (UNKNOWN, "ct mark set 0x1", "nft_ct"),
        ("Could not process rule: Operation not supported", "masquerade", "nft_masq"),
        (UNKNOWN, "@hosts", ""),
        ("Could not process rule: Device or resource busy", "ct mark", ""),
    ],
)
def test_an_unknown_expression_names_its_module(reason: str, culprit: str, module: str) -> None:
    told = for_nft(reason, culprit)
    assert told == (f"; the kernel lacks a module: modprobe {module}" if module else "")


@pytest.mark.parametrize(
    ("reason", "module"),
    [
        ("Specified qdisc kind is unknown.", "sch_htb"),
        ("Unknown device type.", "ifb"),
        ("No such device", ""),
    ],
)
def test_an_unknown_queue_or_device_type_names_its_module(reason: str, module: str) -> None:
    assert (f"modprobe {module}" in for_netlink(reason)) == bool(module)


def test_the_advice_follows_the_error_of_nft() -> None:
    source = "add rule inet t c tproxy to :9"
    said = f"/dev/stdin:1:1-1: Error: {UNKNOWN}\n{source}\n                  ^^^^^^^^^^^^\n"
    assert _reason(said).endswith("(tproxy to :9); the kernel lacks a module: modprobe nft_tproxy")


@pytest.mark.lab
def test_the_running_kernels_error_has_the_advice() -> None:
    """The kernel that the tests run on reports an expression that it lacks."""

    def ask() -> str:
        rule = "add chain inet t c { type filter hook input priority 0; }; add rule inet t c queue"
        try:
            Nft().run(f"add table inet t; {rule}")
        except Failed as error:
            return error.cause
        return ""

    with Namespace() as network:
        if not (told := network.run(ask)):
            pytest.skip("this kernel has the expression queue")
        assert "modprobe nft_queue" in told
