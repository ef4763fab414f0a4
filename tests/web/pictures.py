"""The pictures of the console in the documents, made from a lab.

``.venv/bin/python -m tests.web.pictures`` makes all of them again, as root, in two minutes.
`tests/web/test_pictures.py` checks that documents show them, and that they can still be made.

Clients, nodes and names are invented; addresses are those of `egressd_lab.spec`. The pages show
real traffic, real delays and a real failure: the clients exchange what the pictures show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect

from egressd_lab.lab import Lab
from egressd_lab.spec import WEB_SERVERS, LabSpec
from tests.web.palette import reduced
from tests.web.site import Site, first_start

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SCALE: Final = 2
"""Pixels of a picture in each CSS pixel, for screens that have as many."""
HISTORY_S: Final = 75
"""Seconds of traffic before the pictures are made. The throughput chart draws a minute at least."""
TOP_UP_S: Final = 3
"""Seconds of traffic before each picture: rates are those of the last two seconds."""
HOSTNAME: Final = "gateway.example.net"
DOWN: Final = "osaka"
"""The node that does not run, so that its clients are blocked."""
NODES: Final = (
    ("tokyo-1", "ss", "tokyo"),
    ("tokyo-2", "socks5", "tokyo"),
    (DOWN, "socks5", ""),
    ("frankfurt", "http", ""),
)
"""Each node's name, its kind (`egressd_lab.nodes`), and its group."""
MB: Final = 1_000_000


@dataclass(frozen=True)
class Member:
    """A client of the household, and its rule.

    The traffic is in bytes for each turn of `exchange`: half a second or more.
    """

    comment: str
    target: str
    received: float = 0.0
    sent: float = 0.0
    limit_kbps: int = 0
    """kbit/s of the rule's download limit; 0 for none."""
    is_enabled: bool = True


HOUSEHOLD: Final = (
    Member("living-room TV", "Group_tokyo", received=2.4 * MB),
    Member("kitchen phone", "Group_tokyo", received=0.7 * MB),
    Member("laptop, study", "Group_tokyo", received=0.4 * MB, sent=0.2 * MB),
    Member("office laptop", "frankfurt", received=1.1 * MB, sent=0.3 * MB),
    Member("office phone", "frankfurt"),
    Member("game console", "Interface:wan2", received=1.6 * MB),
    Member("backup server", "Interface:wan2", sent=0.9 * MB),
    Member("guest tablet", "DIRECT", received=0.6 * MB, limit_kbps=20_000),
    Member("guest phone", "DIRECT", received=0.2 * MB, limit_kbps=20_000),
    Member("printer", "REJECT"),
    Member("doorbell", "REJECT"),
    Member("bedroom TV", DOWN),
    Member("old tablet", "tokyo-1", is_enabled=False),
)
"""The rules of the lab's clients 1, 2, and so on, in this order."""


def show_overview(page: Page) -> None:
    """Wait until the traffic is drawn, and the cause of the blocked client is named."""
    flows = page.get_by_role("region", name="Traffic flow")
    expect(flows.get_by_text("shows the current traffic")).to_be_visible(timeout=30_000)
    problems = page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text(DOWN, timeout=30_000)


def show_rules(page: Page) -> None:
    """Wait until the rules are there, with the traffic of their clients."""
    row = page.get_by_role("row").filter(has_text=HOUSEHOLD[0].comment)
    expect(row).to_contain_text("MiB", timeout=30_000)


def show_editor(page: Page) -> None:
    """Edit a rule, with the exits listed whose names match the text typed."""
    show_rules(page)
    page.get_by_role("button", name="Edit the rule of 10.77.0.13").click()
    page.get_by_label("Exit").fill("to")
    expect(page.get_by_role("option", name="tokyo-1")).to_be_visible()


@dataclass(frozen=True)
class Picture:
    """A picture: the page, the window, and the function that brings the page into its state."""

    path: str
    width: int
    height: int
    show: Callable[[Page], None]
    theme: str = "light"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the file in pixels."""
        return SCALE * self.width, SCALE * self.height

    def visit(self, site: Site) -> AbstractContextManager[Page]:
        """Open the page in its window."""
        return site.visit(
            self.path, width=self.width, height=self.height, scale=SCALE, theme=self.theme
        )


PICTURES: Final = {
    "overview-dark": Picture("#/overview", 1120, 822, show_overview, theme="dark"),
    "phone-light": Picture("#/overview", 390, 844, show_overview),
    "rules-light": Picture("#/rules", 1280, 780, show_rules),
    "rule-editor-light": Picture("#/rules", 1280, 780, show_editor),
}
"""By name: the file's, without its ending."""


def furnish(lab: Lab) -> None:
    """Give the device nodes, rules and a whitelist."""
    settings = lab.api.ask("GET", "/ops/settings").body
    # The lab has no such host as the device's default.
    delay_url = f"http://{WEB_SERVERS[2]}/generate_204"
    lab.api.ask("PUT", "/ops/settings", settings | {"delay_url": delay_url})
    lab.api.put("/whitelist", {"domains": "bank.example", "ips": "", "node": "DIRECT"})
    for name, kind, group in NODES:
        node = lab.add_node(kind, name)
        lab.api.post("/nodes", node.draft(group))
    lab.nodes[DOWN].program.kill()
    for client, member in zip(lab.clients, HOUSEHOLD, strict=True):
        rule = {
            "ip": client.address,
            "target_node": member.target,
            "comment": member.comment,
            "download_limit_kbps": member.limit_kbps,
            "is_enabled": member.is_enabled,
        }
        lab.api.post("/rules", rule)


def exchange(lab: Lab, page: Page, seconds: float) -> None:
    """Let the clients exchange data for `seconds`, in turns of varying size."""

    def uptime() -> float:
        return float(lab.api.ask("GET", "/ops/overview").body["uptime_s"])

    url = f"http://{WEB_SERVERS[0]}"
    turn, until = 0, uptime() + seconds
    while uptime() < until:
        for number, (client, member) in enumerate(zip(lab.clients, HOUSEHOLD, strict=True)):
            wave = 1 + 0.5 * math.sin(turn / (3 + number) + number)
            if member.received:
                client.http(f"{url}/bytes/{round(member.received * wave)}")
            if member.sent:
                client.http(f"{url}/", method="POST", upload=round(member.sent * wave))
            if member.target == DOWN:
                client.http(f"{url}/", timeout=0.2)
        turn += 1
        page.wait_for_timeout(500)


def make(folder: Path, history_s: float = HISTORY_S) -> None:
    """Write all pictures into `folder`, after `history_s` seconds of traffic."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = LabSpec(clients=len(HOUSEHOLD), nodes=())
    with first_start(spec) as site, ExitStack() as visits:
        site.log_in()
        furnish(site.lab)
        pages = {name: visits.enter_context(it.visit(site)) for name, it in PICTURES.items()}
        exchange(site.lab, next(iter(pages.values())), history_s)
        for name, page in pages.items():
            exchange(site.lab, page, TOP_UP_S)
            PICTURES[name].show(page)
            # The device has the name of the machine that makes the pictures.
            page.locator(".brand small").evaluate_all(
                "(all, name) => all.forEach((each) => { each.textContent = name; })", HOSTNAME
            )
            picture = reduced(site.browser, page.screenshot())
            (folder / f"{name}.png").write_bytes(picture)


if __name__ == "__main__":
    make(FOLDER)
