"""The benchmarks' command lines: ``--help`` says what a benchmark does, and starts nothing."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from bench import commits, regression
from bench.arguments import Arguments
from bench.figures import keep
from egressd_lab.lab import Lab

BENCH = Path(__file__).parents[1] / "bench"
PROGRAMS = sorted(
    "bench" if path.stem == "__main__" else f"bench.{path.stem}"
    for path in BENCH.glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)

Run = Callable[..., int | str | None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a way to run ``python -m NAME ARGUMENTS``, which must end before it starts anything.

    It returns the exit status.
    """

    def start(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it has begun")

    for owner, name in ((subprocess, "run"), (subprocess.Popen, "__init__"), (Lab, "__init__")):
        monkeypatch.setattr(owner, name, start)

    def ended(name: str, *arguments: str) -> int | str | None:
        module = "bench.__main__" if name == "bench" else name
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as end:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        return end.value.code

    return ended


def test_the_programs_are_found() -> None:
    assert {"bench", "bench.api", "bench.engine", "bench.plots"} <= {*PROGRAMS}
    assert len(PROGRAMS) > 15


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_describes_a_benchmark(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(name, "--help") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: python -m {name} ")
    spec = importlib.util.find_spec("bench.__main__" if name == "bench" else name)
    assert spec is not None
    assert spec.origin is not None
    (docstring,) = re.findall(r'\A"""(.*?)"""', Path(spec.origin).read_text(), re.DOTALL)
    assert docstring.strip() in shown
    assert "--help" in shown


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unknown_argument_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(name, "--no-such-option") == 2
    assert f"python -m {name}: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "rounds", "parts"),
    [
        ([], 5, []),
        (["ss"], 5, ["ss"]),
        (["many", "--rounds", "2", "ss"], 2, ["many", "ss"]),
    ],
)
def test_options_stand_anywhere_and_parts_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch, words: list[str], rounds: int, parts: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", *words])
    arguments = Arguments("x", "")
    arguments.parts({"ss": 1, "many": 2})
    arguments.number("--rounds", 5, "rounds")
    given = arguments.read()
    assert (given.rounds, given.parts, given.json) == (rounds, parts, None)


def test_an_unknown_part_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "sss"])
    arguments = Arguments("x", "")
    arguments.parts(["ss", "many"])
    with pytest.raises(SystemExit):
        arguments.read()
    assert "there is no sss" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["--json={}", "--json {}"])
def test_kept_figures_have_the_command_without_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "kept.json"
    words = form.format(file).split()
    monkeypatch.setattr(sys, "argv", ["x", "ss", *words, "--rounds", "2"])
    keep("nodes", {"figure": 1}, file)
    kept = json.loads(file.read_text())
    assert kept["nodes"] == {"figure": 1}
    assert kept["command"] == ".venv/bin/python -m bench.nodes ss --rounds 2"


@pytest.mark.parametrize(
    ("figure", "ratio", "verdict"),
    [
        ("moves, 10 rules: median (ms)", 1.03, ""),
        ("moves, 10 rules: median (ms)", 1.04, "worse"),
        ("moves, 10 rules: median (ms)", 0.5, ""),
        ("forwarding, DIRECT: TCP up (Gbit/s)", 0.97, ""),
        ("forwarding, DIRECT: TCP up (Gbit/s)", 0.96, "worse"),
        ("forwarding, DIRECT: connections (1/s)", 0.96, "worse"),
        ("forwarding, DIRECT: CPU (s/GB)", 1.04, "worse"),
    ],
)
def test_a_figure_worse_than_noise_is_a_regression(figure: str, ratio: float, verdict: str) -> None:
    row = {"ratio": ratio, "ratio min": ratio, "ratio max": ratio}
    ((named, judgement),) = regression.judged({figure: {commits.AFTER: row}})
    assert (named, judgement["verdict"]) == (figure, verdict)


def test_an_older_egressd_gets_the_part_of_a_configuration_that_it_knows(tmp_path: Path) -> None:
    older = tmp_path / "egressd"
    older.write_text(
        "#!/bin/sh\n"
        "for key in exits lan.arms; do\n"
        '  grep -q "^\\[$key\\]\\|^${key#lan.} = " "$4" || continue\n'
        '  echo "egressd: $key is not a key of the configuration" >&2; exit 1\n'
        "done\n"
    )
    older.chmod(0o755)
    config = tmp_path / "egressd.toml"
    config.write_text('[lan]\ninterfaces = ["lan0"]\narms = 1\n[exits]\na = 1\n[wan]\nb = 2\n')
    known = commits.known_part(str(older), config)
    assert known.read_text() == '[lan]\ninterfaces = ["lan0"]\n[wan]\nb = 2\n'
