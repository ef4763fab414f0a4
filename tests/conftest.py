"""Fixtures of all tests.

Tests that need network namespaces are skipped without root on a developer's machine, and fail in CI
(``CI=true``), where a test that silently does not run is a hole.
"""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from egressd.planner import nodes
from egressd.planner.outbounds import engine
from egressd_lab.ownership import remove_abandoned
from tests.support.needs import Need
from tests.support.netns import Namespace
from tests.support.packages import SUITES, repository_of_run

# Nothing that is imported and collected is garbage. `pytest_collection_finish` ends this.
gc.disable()

# A failed assertion in a helper shows its values, as one in a test does. `tests.support`, which is
# imported above, has a registration of its own.
pytest.register_assert_rewrite(
    *(
        f"tests.{folder.name}"
        for folder in Path(__file__).parent.iterdir()
        if folder.is_dir() and folder.name != "support"
    )
)

# A busy machine is no fault, so an example has no deadline.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
settings.register_profile("fast", max_examples=10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first, so that short ones fill the end of the run: emulated machines, then
    namespaces, which mostly wait, mixed with browsers, which mostly compute.
    """

    def place(item: pytest.Item) -> tuple[int, str, str]:
        if item.get_closest_marker("vm"):
            return 0, "", ""
        is_long = item.get_closest_marker("lab") or item.get_closest_marker("browser")
        return (1, item.path.name, str(item.path)) if is_long else (2, "", "")

    items.sort(key=place)


LONGEST_MACHINE = "tests/vm/test_lines_vm.py"
"""The machine that takes as long as all other tests: it waits for daemons for half of its time."""


class FewMachinesAtATime(LoadFileScheduling):  # type: ignore[misc]  # its class has no types
    """Files are run side by side, but those of emulated machines one after another, beside the
    longest one: a machine takes up to a whole core, and most of the other tests wait.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/vm" if file.startswith("tests/vm/") and file != LONGEST_MACHINE else file


@pytest.hookimpl(optionalhook=True)  # a run may be without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Return the scheduler of ``--dist loadfile``."""
    return FewMachinesAtATime(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of collected tests, which stay to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    """Return the only event loop that egressd runs on."""
    return "asyncio"


@contextmanager
def _engine_of(version: tuple[int, ...]) -> Iterator[None]:
    caches = (engine.affected_protocols, nodes._lost_by_engine, nodes.outbound_of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "version", lambda: version)
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def old_engine() -> Iterator[None]:
    """Make the planner assume engine version 1.14.2, which loses early data with VMess."""
    with _engine_of((1, 14, 2)):
        yield


@pytest.fixture(scope="module")
def new_engine() -> Iterator[None]:
    """Make the planner assume engine version 1.14.3, whichever this Python has."""
    with _engine_of((1, 14, 3)):
        yield


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip or fail without the right to make namespaces, and remove those of dead runs."""
    if os.geteuid() != 0:
        reason = "network namespaces need root"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    remove_abandoned()


@pytest.fixture(scope="session", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """Return a release that packages are tried on."""
    found: str = request.param
    return found


@pytest.fixture(scope="session")
def repository(suite: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that is an apt repository of two versions for one release."""
    folder = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ  # whose folder is in that of the run
    return repository_of_run(folder.parent if is_worker else folder, suite)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Yield a network with nothing but a loopback."""
    with Namespace() as made:
        yield made


@pytest.fixture
def inside(namespace: Namespace) -> None:
    """Run the test in the namespace, in a process of its own, if it is asynchronous."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test that uses `inside`. Anyio's plugin runs all others."""
    test = pyfuncitem.obj
    if "inside" not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(test):
        return None
    namespace = pyfuncitem.funcargs["namespace"]
    assert isinstance(namespace, Namespace)
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    namespace.run_async(test, **arguments)
    return True


@pytest.fixture
def need() -> Need:
    """Return a check that skips the test if the machine lacks something, and fails it in CI."""

    def check(what: str, present: bool) -> None:
        if present:
            return
        if os.environ.get("CI") == "true":
            pytest.fail(f"this machine lacks {what}")
        pytest.skip(f"this machine lacks {what}")

    return check
