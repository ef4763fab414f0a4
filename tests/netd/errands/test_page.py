"""The reasons of errands that fail: no secret is in them, nor what a server sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

from egressd.model.wording import as_sentence
from egressd.netd.errands import page
from egressd.netd.errands.order import PageErrand
from egressd.netd.errands.reasons import reason_of

URL: Final = "https://lists.example.com/get/s3cret%2Dkey?token=f%C3%B6rtytwo"


@contextmanager
def redirecting(location: str) -> Iterator[int]:
    """Serve redirects to a location on the loopback; yield the port."""

    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirect) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_reason_is_one_clean_line_without_parts_of_the_url() -> None:
    said = str(
        reason_of(URL, "no\x1b[31m\nway to /get/s3cret%2Dkey, s3cret-key, f%C3%B6rtytwo, förtytwo")
    )
    assert said.startswith("no [31m way to")
    for part in ("s3cret", "B6rtytwo", "örtytwo", "\x1b"):
        assert part not in said


def test_a_redirect_to_no_url_is_not_repeated() -> None:
    with redirecting("http://k3y-of-the-redirect:no-port/") as port:
        errand = PageErrand(
            url=f"http://127.0.0.1:{port}/", headers={"User-Agent": "x"}, fields=(), read_max=10
        )
        outcome = page.prepared(errand, as_sentence, lambda _: None)()
    assert not outcome.is_done
    assert outcome.reason.code == "page-broken"
    assert "k3y" not in str(outcome.reason)
