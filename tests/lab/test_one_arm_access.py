"""Connections to a one-armed device itself, from its LAN and from another network."""

from __future__ import annotations

import subprocess

import pytest

from egressd_lab import netns
from egressd_lab.device import API_PORT
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, ONE_ARM_GATEWAY, LabSpec
from tests.support.device import SERVER, eventually

pytestmark = pytest.mark.lab

URL = f"http://{LAN_ADDRESS}:{API_PORT}/"
PLAIN = ("python3", "-m", "http.server", "--bind", str(LAN_ADDRESS), str(API_PORT))
"""A server in place of the device's own, before that starts."""


def is_reached(lab: Lab, source: str) -> bool:
    """Return whether a host with this address, behind the LAN's router, gets an answer."""
    argv = ("curl", "-s", "-m", "2", "-o", "/dev/null", "--interface", source, URL)
    space = netns.namespace(lab.name, "internet")
    return subprocess.run(netns.exec_argv(space, argv), check=False).returncode == 0


def test_one_arm_use_cuts_connections_from_other_networks(namespaces: None) -> None:
    """`egressd check` says so before the first start (`preflight.one_arm`)."""
    with Lab(LabSpec(one_arm=True, wans=1, nodes=(), clients=1)) as lab:
        space = netns.namespace(lab.name, "router")
        with subprocess.Popen(
            netns.exec_argv(space, PLAIN), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            try:
                eventually(lambda: is_reached(lab, SERVER))
            finally:
                server.kill()
        lab.start_egressd()
        assert is_reached(lab, str(ONE_ARM_GATEWAY))
        assert not is_reached(lab, SERVER)
