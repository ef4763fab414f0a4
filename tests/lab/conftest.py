"""Fixtures of the tests that need network namespaces.

Without root the tests are skipped on a developer's machine and fail in CI (``CI=true``), where a
test that silently does not run is a hole.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Final

import pytest

from egressd.lab.lab import Lab
from egressd.lab.ownership import remove_abandoned
from tests.lab.device_state import add_nodes, clear
from tests.lab.netns import Namespace

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


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip or fail without the right to make namespaces, and remove those of dead runs."""
    if os.geteuid() != 0:
        reason = "network namespaces need root"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    remove_abandoned()


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
def namespace() -> Iterator[Namespace]:
    """Yield a network with nothing but a loopback."""
    with Namespace() as made:
        yield made
