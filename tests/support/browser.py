"""A browser with the console's page, in a client of a lab."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from egressd.app.tls import CERTIFICATE
from egressd_lab.device import TLS_PORT
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS

ORIGIN = f"https://{LAN_ADDRESS}:{TLS_PORT}"


class Browser:
    """Requests over HTTPS from a client's namespace, with the headers of the console's page.

    It has the device's certificate, and verifies it.
    """

    def __init__(self, lab: Lab, client: int) -> None:
        self.host = lab.client(client).host
        self.certificate = Path(lab.device.data) / "api" / CERTIFICATE
        self.cookie = ""

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = {"Origin": ORIGIN, "X-Egressd-Console": "1", "Content-Type": "application/json"}
        sent |= {"Cookie": self.cookie} if self.cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPConnection(str(LAN_ADDRESS), TLS_PORT)
        plain = self.host.socket(str(LAN_ADDRESS), TLS_PORT, 30)
        connection.sock = context.wrap_socket(plain, server_hostname=str(LAN_ADDRESS))
        try:
            content = None if method == "GET" else json.dumps({} if body is None else body)
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            if cookie := response.getheader("Set-Cookie"):
                self.cookie = cookie.partition(";")[0]
            text = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text
