"""egressd itself, running in the lab's router, and its API, called as by a platform."""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd.model.errors import Failed
from egressd_lab import netns
from egressd_lab.host import Host
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS

COMMAND: Final = (str(Path(sys.executable).with_name("egressd")),)
"""``egressd`` as it is installed beside the running interpreter."""
API_PORT: Final = 8787
TLS_PORT: Final = 8788
API_PREFIX: Final = "/svc/api/v1"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0

_NOT_WRITTEN: Final = ("id", "created_at", "updated_at")
"""Fields of a rule that a PUT, which takes all others, does not take."""

Settings = Mapping[str, Mapping[str, object]]


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer: its status, and its body as JSON, or as text if it is not JSON."""

    status: int
    body: Any
    headers: dict[str, str]


class Api:
    """egressd's HTTP API, called from the router itself, with a connection per request."""

    def __init__(self, router: Host, token: str, address: str = str(LAN_ADDRESS)) -> None:
        """`address` is one of the router's own."""
        self._router = router
        self._address = address
        self.token = token

    def get(self, path: str) -> Any:
        """Send a GET request below the API prefix. These five raise Failed unless the answer is a
        success.
        """
        return self._checked("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """Send a POST request below the API prefix."""
        return self._checked("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        """Send a PUT request below the API prefix."""
        return self._checked("PUT", path, body)

    def patch(self, path: str, body: object) -> Any:
        """Send a PATCH request below the API prefix."""
        return self._checked("PATCH", path, body)

    def delete(self, path: str, body: object = None) -> Any:
        """Send a DELETE request below the API prefix."""
        return self._checked("DELETE", path, body)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> Answer:
        """Send one request to any `path` of the device, and return the answer of any status."""
        sent = {"Authorization": f"Bearer {self.token}", "Connection": "close"}
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(self._address, API_PORT)
        connection.sock = self._router.socket(self._address, API_PORT, timeout)
        try:
            connection.sock.settimeout(timeout)
            connection.request(method, path, payload, sent | dict(headers or {}))
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{method} {path}", str(error) or type(error).__name__) from error
        finally:
            connection.close()
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = text.decode("utf-8", "replace")
        return Answer(response.status, decoded, dict(response.headers.items()))

    def _checked(self, method: str, path: str, body: object) -> Any:
        answer = self.ask(method, API_PREFIX + path, body)
        error = answer.body.get("error") if isinstance(answer.body, dict) else None
        if answer.status != 200 or error:
            raise Failed(f"{method} {path}", f"{answer.status}: {error or answer.body}")
        return answer.body


def rule_body(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a PUT that leaves a rule, as the API lists it, unchanged."""
    return {field: value for field, value in rule.items() if field not in _NOT_WRITTEN}


class Device:
    """``egressd serve`` in the router. It can be stopped, killed and started again."""

    def __init__(
        self,
        router: Host,
        folder: Path,
        *,
        lan: list[str],
        wan: list[str],
        trusted: Path,
        settings: Settings,
        environment: Mapping[str, str],
        address: str = str(LAN_ADDRESS),
    ) -> None:
        self._router = router
        self._address = address
        self.data = folder / "data"
        self.config = folder / "egressd.toml"
        tables: dict[str, dict[str, object]] = {
            "api": {"listen": f"0.0.0.0:{API_PORT}", "tls_listen": f"0.0.0.0:{TLS_PORT}"},
            "data": {"dir": str(self.data)},
            "run": {"dir": str(folder / "run")},
            "lan": {"interfaces": lan},
            "wan": {"interfaces": wan},
            "dns": {
                "device": [RESOLVERS["device"]],
                "domestic": [RESOLVERS["domestic"]],
                "outbound": [RESOLVERS["overseas"]],
                "return": [RESOLVERS["return"]],
            },
            # No request but a test's own: the page that egressd asks by default is not here.
            "exits": {"check_interval_s": 0},
        }
        for name, table in settings.items():
            tables.setdefault(name, {}).update(table)
        folder.mkdir(mode=0o755, exist_ok=True)
        self.config.write_text(_toml(tables))
        # Go's and Python's TLS then trust the lab's HTTPS servers.
        self.environment = {"SSL_CERT_FILE": str(trusted), **environment}
        self.program = Program(
            router.namespace,
            [*COMMAND, "serve", "--config", str(self.config)],
            folder / "egressd.log",
            self.environment,
        )
        self._api: Api | None = None

    @property
    def url(self) -> str:
        """The address of the API and the console, for the lab's own hosts."""
        return f"http://{self._address}:{API_PORT}"

    @property
    def api(self) -> Api:
        """The API. Raises Failed if egressd has never been started."""
        if self._api is None:
            raise Failed("call the API", "egressd has not been started")
        return self._api

    def start(self, seconds: float = START_SECONDS) -> float:
        """Start egressd, wait until it is healthy, and return the seconds that this took."""
        begun = time.monotonic()
        self.program.start()
        self.wait_healthy(seconds)
        self._api = Api(self._router, self._read_token(), self._address)
        return time.monotonic() - begun

    def wait_healthy(self, seconds: float = START_SECONDS) -> None:
        """Wait until ``/ops/health`` answers 200. Raises Failed, with egressd's log, if it does
        not.
        """
        deadline = time.monotonic() + seconds
        api = Api(self._router, "", self._address)
        reason = ""
        while time.monotonic() < deadline:
            if not self.program.running:
                raise Failed("start egressd", f"it ended:\n{self.program.tail()}")
            try:
                answer = api.ask("GET", "/ops/health", timeout=5)
            except Failed as error:
                reason = error.cause
            else:
                if answer.status == 200:
                    return
                reason = f"{answer.status}: {answer.body}"
            time.sleep(0.02)
        raise Failed("start egressd", f"not healthy ({reason}):\n{self.program.tail()}")

    def stop(self) -> float:
        """Send SIGTERM, wait, and return the seconds that this took."""
        return self.program.stop(STOP_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL to its process group. Engine workers in groups of their own live on."""
        self.program.kill()

    def pids(self, part: str) -> list[int]:
        """Return the router's processes with `part` in their command line, to signal one by one.

        netd is ``egressd.app netd``, the api ``egressd.app api``.
        """
        found = []
        for pid in netns.processes([self._router.namespace]):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                if part in command.decode("utf-8", "replace"):
                    found.append(pid)
        return found

    def run(self, *argv: str, check: bool = True) -> str:
        """Run an ``egressd`` command with this device's configuration, and return its output."""
        command = [*COMMAND, *argv, "--config", str(self.config)]
        return self._router.run(*command, check=check).stdout

    def _read_token(self) -> str:
        return self.run("token", "show").strip()


def _toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Return a TOML document of strings, numbers, booleans and lists, which are written
    as in JSON.
    """
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    """Return a value in TOML: of JSON's values, all but objects are written the same."""
    if isinstance(value, dict):
        parts = (f"{json.dumps(key)} = {_toml_value(part)}" for key, part in value.items())
        return f"{{ {', '.join(parts)} }}"
    return json.dumps(value)
