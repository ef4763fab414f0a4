"""The demonstration on a terminal: each scene in readable form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from egressd_lab import scenes

_NEXT: Final[Mapping[type[scenes.Scene] | None, str]] = {
    None: "building a network of namespaces",
    scenes.Built: "letting everybody out, to see that the captures see",
    scenes.Control: "starting egressd, with a rule for each client",
    scenes.Started: "asking the servers whom they see",
    scenes.Departures: "changing one client's rule in the middle of everybody's downloads",
    scenes.Change: "killing a node in the middle of everybody's downloads",
    scenes.Outage: "starting the node again",
    scenes.Return: "searching every captured packet",
}
"""The work that follows each scene, for the waiting line."""

_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")
_TRACE: Final = {"#": "━", ".": "╌", "x": " "}


class Show:
    """Prints scenes as they end, with a waiting line in between on a terminal."""

    def __init__(self, console: Console, waiting: Console) -> None:
        self._console = console
        self._waiting = waiting
        self._colours: dict[str, str] = {}

    def play(self, story: Iterator[scenes.AnyScene]) -> list[scenes.AnyScene]:
        """Show every scene, and return all of them."""
        played: list[scenes.AnyScene] = []
        while True:
            before = type(played[-1]) if played else None
            with self._waiting.status(f"[dim]{_NEXT.get(before, 'cleaning up')} …"):
                scene = next(story, None)
            if scene is None:
                return played
            played.append(scene)
            self._console.print(self._drawn(scene))

    def _drawn(self, scene: scenes.Scene) -> RenderableType:
        draw: Mapping[type[scenes.Scene], Callable[[Any], RenderableType]] = {
            scenes.Built: self._built,
            scenes.Control: self._control,
            scenes.Started: self._started,
            scenes.Departures: self._departures,
            scenes.Change: self._change,
            scenes.Outage: self._outage,
            scenes.Return: self._return,
            scenes.Verdict: self._verdict,
        }
        return draw[type(scene)](scene)

    def _built(self, scene: scenes.Built) -> RenderableType:
        for colour, egress in zip(_COLOURS, (*scene.nodes, *scene.wans), strict=False):
            self._colours[egress] = colour
        wans = [f"{name} {address}" for name, address in scene.wans.items()]
        nodes = [f"{name} {address}" for name, address in scene.nodes.items()]
        head = f"{scene.clients} clients ── egressd "
        middle = " ┬ internet "
        gap = " " * len(head)
        wide = max(map(len, wans))
        picture = Text(
            f"{head}┬ {wans[0]:<{wide}}{middle}┬ {nodes[0]}\n"
            f"{gap}└ {wans[1]:<{wide}} ┘{' ' * (len(middle) - 2)}├ {nodes[1]}\n"
            f"{gap}  {'':{wide}}{' ' * len(middle)}└ {nodes[2]}"
        )
        picture.highlight_words(["egressd"], "bold")
        for egress, colour in self._colours.items():
            picture.highlight_words([f"{egress} "], colour)
        title = f"[bold]egressd lab[/] · {scene.lab} · built in {scene.seconds:.1f} s"
        return Panel(picture, title=title, box=box.ROUNDED, border_style="dim", expand=False)

    def _control(self, scene: scenes.Control) -> RenderableType:
        return _line(
            scene.ok,
            f"without egressd the captures see {scene.seen} of {scene.clients} clients leave:"
            " they are not blind",
        )

    def _started(self, scene: scenes.Started) -> RenderableType:
        return _line(
            scene.ok,
            f"egressd healthy in {scene.health_seconds:.1f} s; {scene.nodes} nodes and"
            f" {scene.rules} rules in force, [bold]{scene.rule_seconds * 1000:.0f} ms[/] a rule",
        )

    def _departures(self, scene: scenes.Departures) -> RenderableType:
        table = _table("Who left where", "as the servers on the internet saw them")
        for name in ("client", "rule", "HTTP", "UDP", "DNS", ""):
            table.add_column(name)
        for row in scene.rows:
            table.add_row(
                row.client,
                self._target(row.target),
                *(place or "[dim]blocked[/]" for place in (row.http, row.udp, row.dns)),
                _mark(row.ok),
            )
        return Group("", table)

    def _change(self, scene: scenes.Change) -> RenderableType:
        caption = (
            f"the PUT took [bold]{scene.request_seconds * 1000:.0f} ms[/]; the very next request"
            f" left by [bold]{scene.next_seen or 'nothing'}[/]"
        )
        title = f"{scene.client} moves: {scene.before} → {scene.after}"
        return Group("", self._timeline(title, scene), _line(scene.ok, caption))

    def _outage(self, scene: scenes.Outage) -> RenderableType:
        caption = (
            f"{scene.client} tried {scene.tries} ways out and got"
            f" [bold]{len(scene.got_out) or 'none'}[/]; a new request failed in"
            f" {scene.error_seconds * 1000:.0f} ms; [bold]{scene.packets}[/] of its packets on"
            " any other egress"
        )
        title = f"node {scene.node} is killed"
        return Group("", self._timeline(title, scene), _line(scene.ok, caption))

    def _return(self, scene: scenes.Return) -> RenderableType:
        return _line(
            scene.ok,
            f"node {scene.node} is back: {scene.client} leaves by {scene.seen or 'nothing'}"
            f" [bold]{scene.back_seconds:.2f} s[/] after its start",
        )

    def _verdict(self, scene: scenes.Verdict) -> RenderableType:
        if scene.ok:
            text = Text.from_markup(
                f"[bold green]What leaked: nothing.[/]  {scene.packets:,} packets captured on the"
                f" internet's side, {scene.tokens} tokens searched for."
            )
            return Group("", Panel(text, box=box.ROUNDED, border_style="green", expand=False))
        table = _table("What leaked", "packets that were where their client's rule does not lead")
        for name in ("interface", "protocol", "from", "to", "port", "packets"):
            table.add_column(name)
        for flow in scene.leaks:
            table.add_row(
                flow.interface,
                flow.protocol,
                flow.source,
                flow.destination,
                str(flow.port),
                str(flow.packets),
            )
        return Group("", table)

    def _timeline(self, title: str, scene: scenes.Event) -> RenderableType:
        table = _table(title, "all downloads, a mark each 0.1 s")
        table.add_column("client")
        table.add_column("leaves by")
        table.add_column(" " * (scene.event_tick) + "▼", no_wrap=True)
        table.add_column("pause", justify="right")
        table.add_column("")
        for row in scene.held:
            colour = "red" if row.is_subject else "green"
            trace = "".join(_TRACE[letter] for letter in row.trace)
            if row.is_subject and "x" in row.trace:
                at = row.trace.index("x")
                trace = trace[:at] + "✕" + trace[at + 1 :]
            fate = "cut, as due" if row.is_subject else "untouched"
            table.add_row(
                row.client,
                self._target(row.target),
                Text(trace, style=colour),
                "" if row.is_subject else f"{row.longest_pause * 1000:.0f} ms",
                f"{_mark(row.ok)} {fate}" if row.ok else f"{_mark(False)} {row.error or 'wrong'}",
            )
        return table

    def _target(self, target: str) -> str:
        egress = {"DIRECT": "wan1"}.get(target, target.removeprefix("Interface:"))
        colour = self._colours.get(egress, "red" if target == "REJECT" else "dim")
        return f"[{colour}]{target}[/]"


def _table(title: str, caption: str) -> Table:
    return Table(
        title=f"[bold]{title}[/]  [dim]{caption}[/]",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        header_style="dim",
        show_edge=False,
        pad_edge=False,
    )


def _mark(ok: bool) -> str:
    return "[green]✔[/]" if ok else "[bold red]✘[/]"


def _line(ok: bool, text: str) -> Text:
    return Text.from_markup(f"{_mark(ok)} {text}")
