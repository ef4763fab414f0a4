"""A lab for the tests of a module, and the end of its device's log when one of them fails."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from typing import Final

import pytest

from egressd_lab.lab import Lab
from tests.support import postgres
from tests.support.device import add_nodes, clear
from tests.support.needs import Need
from tests.support.paired_lab import PairedLab

SAID_LAST: Final = 8_000
"""Characters of the device's log that a failed test shows."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the device's log if a test fails."""
    report = yield
    lab = getattr(item, "funcargs", {}).get("lab")
    if report.failed and isinstance(lab, Lab):
        for file in sorted(lab.folder.glob("*/egressd.log")):
            said = file.read_text(errors="replace")[-SAID_LAST:]
            report.sections.append((f"end of the log of {file.parent.name}", said))
    return report


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    """Yield the default lab with egressd running in its router, without any rule."""
    with Lab() as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture
def nodes(lab: Lab) -> Iterator[None]:
    """Make the lab's nodes the device's, too. No rule and no node is left after the test."""
    add_nodes(lab)
    yield
    clear(lab)


@pytest.fixture
def pair(need: Need, request: pytest.FixtureRequest) -> Iterator[PairedLab]:
    """Two boxes in step, one of them active: `made`. No rule is left after the test."""
    need("the package postgresql", bool(postgres.PROGRAMS))
    for name in ("keepalived", "conntrackd"):
        need(f"the package {name}", shutil.which(name) is not None)
    made: PairedLab = request.getfixturevalue("made")
    yield made
    made.mend()
    for rule in made.boxes[1].api.get("/rules")["data"]:
        made.boxes[1].api.delete(f"/rules/{rule['id']}")
