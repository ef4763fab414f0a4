"""Draw the plots of docs/performance.md from bench/results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.arguments import Arguments

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "bench" / "results"
PLOTS: Final = ROOT / "docs" / "plots"

_OWN, _BASE, _PEER = "#0f766e", "#64748b", "#d97706"
Figures = Mapping[str, Any]


@cache
def pyplot() -> Any:
    """Return matplotlib's, which only ``script/setup --bench`` installs."""
    import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]

    mpl.use("svg")
    from matplotlib import pyplot as found  # type: ignore[import-not-found, unused-ignore]

    return found


def draw() -> list[Path]:
    """Draw every plot whose results exist, and return the written files."""
    plt = pyplot()
    plt.rcParams.update(
        {
            "svg.hashsalt": "egressd",  # the same figures give the same file
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "figure.facecolor": "white",  # also on a dark page
        }
    )
    PLOTS.mkdir(exist_ok=True)
    written = []
    for name, plot in PLOTTERS.items():
        results = RESULTS / f"{name}.json"
        if not results.exists():
            continue
        plot(json.loads(results.read_text())[name])
        plt.tight_layout()
        file = PLOTS / f"{name}.svg"
        plt.savefig(file, metadata={"Date": None})
        plt.close("all")
        # matplotlib ends lines with blanks.
        lines = [line.rstrip() for line in file.read_text().splitlines()]
        file.write_text("\n".join(lines) + "\n")
        written.append(file)
    return written


def colour(name: str, base: str = "plain") -> str:
    """Return a colour: one for egressd, one for the base of the comparison, one for all others."""
    if name.startswith("egressd"):
        return _OWN
    return _BASE if name.startswith(base) else _PEER


def forwarding(figures: Figures) -> None:
    """Draw a bar for each router, as a share of plain forwarding."""
    shown = (
        ("TCP up (Gbit/s)", "TCP throughput"),
        ("CPU (s/GB)", "processor time per GB"),
        ("small packets (1/s)", "64-byte packets a second"),
        ("connections (1/s)", "connections a second"),
        ("CPU of a small packet (µs)", "processor time per small packet"),
        ("round trip (µs)", "round trip"),
    )
    _, axes = pyplot().subplots(3, 2, figsize=(10, 9), sharey=True)
    for axis, (figure, title) in zip(axes.flat, shown, strict=True):
        _bars(axis, figures[figure], "plain")
        axis.set_title(f"{title}, plain Linux = 1")


def nodes(figures: Figures) -> None:
    """Draw a bar for each proxy, as a share of one sing-box process; a panel for each
    kind of node.
    """
    _, axes = pyplot().subplots(len(figures), 2, figsize=(10, 2.1 * len(figures)))
    for row, (kind, tables) in zip(axes, figures.items(), strict=True):
        for axis, way in zip(row, ("up", "down"), strict=True):
            _bars(axis, tables[f"{way} (Gbit/s)"], "sing-box")
            axis.set_title(f"{kind}: {way}, sing-box = 1")


def _bars(axis: Any, rows: Mapping[str, Mapping[str, float]], base: str) -> None:
    names = list(rows)[::-1]
    ratios = [rows[name]["ratio"] for name in names]
    reach = [
        [ratio - rows[name]["ratio min"] for name, ratio in zip(names, ratios, strict=True)],
        [rows[name]["ratio max"] - ratio for name, ratio in zip(names, ratios, strict=True)],
    ]
    axis.barh(names, ratios, color=[colour(name, base) for name in names])
    axis.errorbar(ratios, names, xerr=reach, fmt="none", ecolor="#1e293b", linewidth=1, capsize=2)
    axis.axvline(1, color=_BASE, linewidth=0.8, linestyle=":")


def moves(figures: Figures) -> None:
    """Draw the time to effect by number of rules, and the number of cut connections."""
    _, axis = pyplot().subplots(figsize=(8, 4.5))
    counts = [int(title.split()[0].replace(",", "")) for title in figures]
    for name in next(iter(figures.values())):
        rows = [table[name] for table in figures.values()]
        last = rows[-1]
        cut = (
            f" (others cut: {last['others cut']:.0f} of {last['others']:.0f})"
            if last.get("others")
            else ""
        )
        axis.plot(
            counts,
            [row["median"] for row in rows],
            marker="o",
            color=None if not name.startswith("egressd") else _OWN,
            linewidth=2.5 if name.startswith("egressd") else 1.2,
            label=name + cut,
        )
    axis.set(xscale="log", yscale="log", xlabel="rules", ylabel="request to effect (ms)")
    axis.set_title("one client's move")
    axis.legend(frameon=False)


def scale(figures: Figures) -> None:
    """Draw start-up, memory and change latency, with a row for each growing quantity."""
    groups = (
        ("seconds", ("traffic flows (s)", "healthy (s)", "start's CPU (s)", "import (s)")),
        ("MB", ("netd and api (MB)", "workers (MB)")),
        ("ms", ("change p50 (ms)", "change's CPU (ms)", "GET /rules (ms)")),
    )
    height = 2.6 * len(figures)
    _, axes = pyplot().subplots(len(figures), len(groups), figsize=(11, height), squeeze=False)
    for row, (kind, points) in zip(axes, figures.items(), strict=True):
        counts = [int(count) for count in points]
        for axis, (unit, names) in zip(row, groups, strict=True):
            for name in names:
                label = name.rpartition(" ")[0]
                values = [point[name] for point in points.values()]
                axis.plot(counts, values, marker=".", label=label)
            axis.set(xscale="log", xlabel=kind, ylabel=unit)
            axis.set_ylim(bottom=0)
            axis.legend(frameon=False, fontsize=7)


def api(figures: Figures) -> None:
    """Draw percentiles of the loads."""
    loads = figures["loads"]
    _, axis = pyplot().subplots(figsize=(8, 2.8))
    names = list(loads)[::-1]
    for offset, quantile in enumerate(("p50", "p99")):
        places = [number + (0.2 - 0.4 * offset) for number in range(len(names))]
        axis.barh(places, [loads[name][quantile] for name in names], height=0.38, label=quantile)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("ms from when it was due until it was answered")
    axis.legend(frameon=False)


PLOTTERS: Final[Mapping[str, Callable[[Figures], None]]] = {
    "forwarding": forwarding,
    "nodes": nodes,
    "moves": moves,
    "scale": scale,
    "api": api,
}


def main() -> None:
    """Draw, and print the names of the files."""
    Arguments("plots", __doc__, keeps=False).read()
    for drawn in draw():
        print(drawn.relative_to(ROOT))


if __name__ == "__main__":
    main()
