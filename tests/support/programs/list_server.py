"""A server of lists: ``python list_server.py ADDRESS PORT FILE``. The file says how it answers.

| key | meaning |
|---|---|
| ``status``, ``headers`` | of the answer |
| ``body`` | its text |
| ``size`` | that many bytes of zeros follow, in chunks |
| ``is_packed`` | the body is compressed (gzip) |
| ``is_silent`` | there is no answer at all |
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_CHUNK = bytes(1 << 16)


class Handler(BaseHTTPRequestHandler):
    """Answers as the file says at the moment, and prints the address of each caller."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request."""
        print("asked by", self.client_address[0], self.path, flush=True)
        told = json.loads(Path(sys.argv[3]).read_text())
        if told.get("is_silent"):
            time.sleep(3600)
        body = told.get("body", "").encode() + bytes(told.get("zeros", 0))
        headers = {"Connection": "close", **told.get("headers", {})}
        if told.get("is_packed"):
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        size = told.get("size", 0)
        headers.setdefault("Content-Length", str(len(body) + size))
        self.send_response(told.get("status", 200))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        for _ in range(size // len(_CHUNK)):
            self.wfile.write(_CHUNK)

    def do_POST(self) -> None:
        """Take a message, and answer likewise."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


if __name__ == "__main__":
    with ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler) as server:
        print("ready", flush=True)
        server.serve_forever()
