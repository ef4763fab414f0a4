"""Event loops of the tests: a plugin makes them, and the few modules that are listed here."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
MAKE: Final = {"run", "Runner", "new_event_loop"}
"""Functions of asyncio that make an event loop."""
MAKERS: Final = {
    "api/test_fuzz.py": "schemathesis calls the API synchronously",
    "app/test_single_netd.py": "a child process stops in the middle of its work",
    "app/test_timed_backups.py": "the process that makes backups runs a loop",
    "cli/conftest.py": "commands run a loop, and the device has one in a thread",
    "cli/test_backup_cli.py": "commands run a loop",
    "cli/test_lines_cli.py": "commands run a loop, and netd has one in a thread",
    "cli/test_timed_backup_cli.py": "commands run a loop",
    "store/test_site_database.py": "a fixture founds a site before an asynchronous test",
    "store/boxes.py": "commands run between the steps of synchronous tests",
    "store/test_site_joining.py": "commands run between the steps of synchronous tests",
    "store/test_site_key.py": "commands run between the steps of synchronous tests",
    "store/test_site_leaving.py": "commands run between the steps of synchronous tests",
    "netd/conftest.py": "synchronous tests use the fixture, too",
    "planner/test_outbounds_carry.py": "the engine is called while a server runs in a thread",
    "service/test_history.py": "Hypothesis calls state machines synchronously",
    "store/test_users.py": "a child process of another user",
    "support/crowd.py": "it is a process in a namespace",
    "support/netns.py": "coroutine functions run in a process in a namespace",
}
"""Module -> the reason why it makes an event loop. Programs have one anyway."""


def makes_a_loop(path: Path) -> bool:
    """Return True if a module makes event loops, unless it is a program."""
    text = path.read_text()
    if "asyncio" not in text or 'if __name__ == "__main__"' in text:
        return False
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("asyncio", name) for name in MAKE}
        for node in ast.walk(ast.parse(text))
    )


def test_only_programs_and_listed_modules_make_event_loops() -> None:
    paths = (path for path in TESTS.rglob("*.py") if TESTS / "vm" not in path.parents)
    assert {str(path.relative_to(TESTS)) for path in paths if makes_a_loop(path)} == {*MAKERS}
