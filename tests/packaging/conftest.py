"""Fixtures of the tests of packages: a lab for a machine, and the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.packaging import machine
from tests.support.box import CONFIGURATION


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    """Build a lab whose router is empty."""
    with Lab(LabSpec(nodes=("socks5",), clients=3)) as lab:
        yield lab


@pytest.fixture
def box(lab: Lab, suite: str, repository: Path) -> Iterator[machine.Machine]:
    """Boot a machine as an operator has it, with the repository configured."""
    with machine.Machine(lab.router, suite, repository) as box:
        box.boot()
        box.write("/etc/egressd/egressd.toml", CONFIGURATION)
        box.add_repository()
        yield box
