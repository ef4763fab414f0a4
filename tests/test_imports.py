"""The rooms that each room may import, each ban with its reason. See ARCHITECTURE.md."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
SOURCE = ROOT / "src" / "egressd"
LAB = ROOT / "lab" / "src" / "egressd_lab"
"""A distribution of its own."""

ROOMS: dict[str, set[str]] = {
    "model": set(),
    "formats": {"model"},
    "planner": {"model", "formats"},
    "store": {"model"},
    "license": {"model"},
    "service": {"model", "formats", "planner"},
    "api": {"model", "service"},
    "console": {"model", "service"},
    "netd": {"model", "planner"},
}
"""Room -> the other rooms it may import. `app` and `cli` wire everything and may import all."""

WINGS: dict[str, tuple[set[str], str]] = {
    "system": (set(), "processes, files and timers know nothing of networks"),
    "kernel": (set(), "an adapter does one thing, and knows neither plans nor other programs"),
    "engine": ({"system", "kernel"}, "workers know neither rules nor lines"),
    "lines": ({"system", "kernel"}, "a line is dialled regardless of its clients"),
    "cluster": (
        {"system", "kernel"},
        "addresses and flows move regardless of rules, nodes and lines",
    ),
    "errands": (
        {"system", "engine"},
        "an errand is done regardless of clients: by the marks of its own target",
    ),
    "ports": ({"engine"}, "it has the types of netd's parts, of the engine's the data too"),
    "dataplane": (
        {"kernel", "engine", "ports"},
        "it does what a plan asks for, and decides nothing",
    ),
    "health": (
        {"system", "kernel", "engine", "dataplane", "ports"},
        "checks report what they find, and the reconciler acts on it",
    ),
    "reconciler": (
        {"system", "kernel", "engine", "lines", "dataplane", "health", "ports"},
        "it knows nothing of the socket that its callers use",
    ),
    "ipc": (
        {"system", "engine", "reconciler", "ports"},
        "a request reaches kernel and engine through the reconciler alone",
    ),
}
"""Wing of netd -> the other wings it may import, and the reason why no more. Lowest first: none
imports a wing that follows it. `ports` is a module of its own beside the wings."""

BEHIND_PORTS = {
    f"egressd.netd.{name}"
    for name in ("dataplane.kernel_state", "dataplane.speed_limits", "engine.pool", "lines.lines")
}
"""Modules that the other wings know by their ports, so that `app` and tests compose them."""

PURE = ("model", "formats", "planner")
IMPURE_MODULES = {
    "asyncio": "a plan must not depend on scheduling",
    "logging": "a pure function answers; whoever calls it logs",
    "os": "files, environment and processes are outside",
    "pathlib": "files are outside",
    "random": "the same input must give the same plan",
    "secrets": "the same input must give the same plan",
    "shutil": "files are outside",
    "socket": "the network is outside",
    "sqlite3": "storage is outside",
    "structlog": "a pure function answers; whoever calls it logs",
    "subprocess": "processes are outside",
    "tempfile": "files are outside",
    "threading": "a plan must not depend on scheduling",
    "time": "the clock is outside",
}

CONFINED = {
    "singbox": ("netd/engine", "it is under the GPL, and starts a runtime with its own threads"),
    "sqlalchemy": ("store", "the store alone knows how things are stored"),
    "alembic": ("store", "the store alone knows how things are stored"),
    "fastapi": ("api", "the use cases know nothing of HTTP"),
    "apprise": ("netd/errands", "it talks to strangers: only its own process has it"),
    "urllib3": ("netd/errands", "it talks to strangers: only its own process has it"),
    "uvicorn": ("api", "the use cases know nothing of HTTP"),
}
"""Third-party package -> the only place that may import it, and the reason."""

MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Return every module that a file imports, anywhere in it."""
    found: set[str] = set()
    for part in ast.walk(ast.parse(path.read_text())):
        if isinstance(part, ast.Import):
            found |= {alias.name for alias in part.names}
        elif isinstance(part, ast.ImportFrom) and part.module:
            assert part.level == 0, "imports are absolute"
            found.add(part.module)
            if part.module.split(".")[0] in ("egressd", "tests"):
                found |= {f"{part.module}.{alias.name}" for alias in part.names}
    return found


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_import_only_what_their_room_allows(path: Path) -> None:
    room = room_of(path)
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "egressd" and rest and room in ROOMS:
            allowed = ROOMS[room] | {room, "__version__"}
            assert rest[0] in allowed, f"{room} may not import {name}"
        if room in PURE and top in IMPURE_MODULES:
            pytest.fail(f"{room} is pure and may not import {top}: {IMPURE_MODULES[top]}")
        if top in CONFINED:
            place, reason = CONFINED[top]
            inside = path.relative_to(SOURCE).as_posix().startswith(place)
            assert inside, f"only {place} may import {top}: {reason}"


def test_no_module_names_the_lab_which_devices_do_not_have() -> None:
    assert [path for path in MODULES if LAB.name in path.read_text()] == []


@pytest.mark.parametrize(
    "path", sorted(LAB.rglob("*.py")), ids=lambda p: str(p.relative_to(LAB.parent))
)
def test_the_lab_imports_of_egressd_its_errors_only(path: Path) -> None:
    """The lab runs nodes of its own by the engine, and calls egressd as an outsider does."""
    for name in imports(path):
        top = name.partition(".")[0]
        assert top not in CONFINED.keys() - {"singbox"}, f"the lab may not import {name}"
        is_error = name == "egressd.model.errors" or name.startswith("egressd.model.errors.")
        assert top != "egressd" or is_error, f"the lab may not import {name}"


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "netd").rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_modules_of_netd_import_only_what_their_wing_allows(path: Path) -> None:
    wing = path.relative_to(SOURCE / "netd").parts[0].removesuffix(".py")
    allowed, reason = WINGS.get(wing, (set(), "the package itself imports nothing"))
    for name in imports(path):
        if not name.startswith("egressd.netd."):
            continue
        other = name.split(".")[2]
        assert other in {wing, *allowed}, f"{wing} may not import {name}: {reason}"
        is_own = name.startswith(f"egressd.netd.{wing}.")
        assert is_own or name not in BEHIND_PORTS, f"{wing} may import {name} by its port only"


def test_the_wings_of_netd_form_no_circle() -> None:
    below: set[str] = set()
    for wing, (allowed, _) in WINGS.items():
        assert allowed <= below, f"{wing} imports a wing that is not below it"
        below.add(wing)
    modules = {path.stem for path in (SOURCE / "netd").glob("*.py")}
    packages = {path.parent.name for path in (SOURCE / "netd").glob("*/__init__.py")}
    assert modules | packages == {*WINGS, "__init__"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither at their beginning nor within functions, nor for types alone."""
    below = {
        # Names without the packages that the module is in, of which it imports other modules.
        name: {each for each in imports(path) if not f"{name}.".startswith(f"{each}.")}
        for path in MODULES
        for name in [module_of(path)]
    }
    TopologicalSorter(below).prepare()  # raises CycleError, which names the circle


def test_every_room_has_a_docstring() -> None:
    for package in sorted([*SOURCE.rglob("__init__.py"), *LAB.rglob("__init__.py")]):
        if package.stat().st_size or package.parent.name in ROOMS:
            text = ast.get_docstring(ast.parse(package.read_text())) or ""
            assert text or package.parent == SOURCE, f"{package.parent.name} has no docstring"


def test_nothing_is_imported_from_test_modules_and_conftests() -> None:
    faults = [
        f"{path.relative_to(TESTS)} imports {name}"
        for folder in (TESTS, TESTS.parent / "bench")
        for path in sorted(folder.rglob("*.py"))
        for name in imports(path)
        if name.startswith("tests.")
        and any(part == "conftest" or part.startswith("test_") for part in name.split("."))
    ]
    assert faults == []


def test_helpers_of_several_folders_are_in_support() -> None:
    faults = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in imports(path)
        if name.startswith("tests.")
        and (TESTS / name.split(".")[1]).is_dir()
        and name.split(".")[1] not in ("support", path.relative_to(TESTS).parts[0])
    ]
    assert faults == []
