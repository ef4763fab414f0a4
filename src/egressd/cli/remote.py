"""The client of the device's API, for the commands that work over it."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import wraps
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import click

from egressd.app import local_socket
from egressd.cli.refused import with_options
from egressd.model.errors import EgressdError, Failed, Invalid

if TYPE_CHECKING:
    from egressd.app.config import Config

API: Final = "/svc/api/v1"
_ANSWER_S: Final = 120.0
"""Seconds that the device may take to answer: a large import is answered once it is in force."""
_TRIES: Final = 10
"""Times that a change is made anew because another one came between."""
_OUTDATED: Final = 412
"""The status of a change of an earlier version."""
_TOKEN: Final = "EGRESSD_TOKEN"  # noqa: S105 - the name of a variable


class DeviceRefusal(EgressdError):
    """The device understood a request and refused it."""


class Remote:
    """A device's API, with its token."""

    def __init__(self, connection: Callable[[], HTTPConnection], token: str, where: str) -> None:
        """`connection` makes a connection, and may raise Failed; `where` names its other end."""
        self._connection = connection
        self._token = token
        self._where = where

    @classmethod
    def at(
        cls, url: str, token: str, ca_file: Path | None = None, *, answer_s: float = _ANSWER_S
    ) -> Remote:
        """Return the API at `url`, which has `answer_s` seconds for an answer. `ca_file` holds the
        certificates to trust beside the system's. Raises Invalid.
        """
        problem = "--url must be http://ADDRESS:PORT or https://ADDRESS:PORT"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # a bracket that does not close, a port that is none
            raise Invalid(problem) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise Invalid(problem)
        host = parts.hostname
        if parts.scheme == "http":
            return cls(lambda: HTTPConnection(host, port, timeout=answer_s), token, url)
        tls = _tls(ca_file)
        return cls(lambda: HTTPSConnection(host, port, timeout=answer_s, context=tls), token, url)

    @classmethod
    def here(
        cls, settings: Config, token: str | None = None, *, answer_s: float = _ANSWER_S
    ) -> Remote:
        """Return the API of this device, for root; with its own token, if none is given. It has
        `answer_s` seconds for an answer. Raises Failed.
        """
        from egressd.store.api_token import ApiToken

        folder = settings.api_data
        token = ApiToken(folder).token() if token is None else token
        return cls(lambda: _LocalConnection(folder, answer_s), token, "the service")

    def get(self, path: str, **query: Any) -> Any:
        """Return the document at `path`, which is below `API` unless it begins with ``/ops``."""
        # Text of the command line that is not UTF-8 is the name of no object.
        texts = {key: quote(str(value), safe="", errors="replace") for key, value in query.items()}
        pairs = "&".join(f"{key}={text}" for key, text in texts.items())
        return self.send("GET", f"{path}?{pairs}" if pairs else path)

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Return the rows of the list at `path`. Raises as `send` does."""
        try:
            data: list[dict[str, Any]] = self.get(path)["data"]
        except (KeyError, TypeError) as error:
            raise Failed(f"ask {self._where}", "it answers as no egressd does") from error
        return data

    def named(self, path: str, names: Sequence[str], what: str) -> list[dict[str, Any]]:
        """Return the rows of a list with these names. Raises DeviceRefusal if one is missing."""
        known = {row["name"]: row for row in self.rows(path)}
        if missing := [name for name in names if name not in known]:
            raise DeviceRefusal(f"there is no {what} {', '.join(missing)}")
        return [known[name] for name in names]

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request. Raises Invalid, DeviceRefusal, or Failed without an
        answer.
        """
        if body is None:
            return self._exchange(method, path, None, {})
        content = json.dumps(body).encode()
        return self._exchange(method, path, content, {"Content-Type": "application/json"})

    def amend(self, path: str, amended: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Replace the document at `path` by what `amended` makes of it. If another writer has
        changed it meanwhile, read it again, so that no change is lost. Raises as `send` does.
        """
        headers = {"Content-Type": "application/json"}
        for _ in range(_TRIES):
            status, now, tag = self._ask("GET", path, None, {})
            self._refuse(status, now)
            content = json.dumps(amended(now)).encode()
            status, answer, _ = self._ask("PUT", path, content, {**headers, "If-Match": tag})
            if status != _OUTDATED:
                break
        self._refuse(status, answer)
        return answer

    def upload(self, path: str, content: bytes, media_type: str) -> Any:
        """Return the answer to a file. Raises as `send` does."""
        return self._exchange("POST", path, content, {"Content-Type": media_type})

    def stream(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a stream of events without a name, until it ends. Raises
        DeviceRefusal, or Failed if it breaks.
        """
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
                response = connection.getresponse()
                if response.status != 200:
                    said = json.loads(response.read())
                    raise DeviceRefusal(str(said.get("error") if isinstance(said, dict) else said))
                name = ""
                for line in response:
                    field, _, value = line.decode().rstrip("\n").partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data" and not name:
                        yield json.loads(value)
                    elif field == "data" and name == "end":
                        raise DeviceRefusal(str(json.loads(value)["text"]))
                    elif not field:
                        name = ""
        except (OSError, HTTPException, ValueError) as error:
            raise Failed(f"ask {self._where}", str(error) or type(error).__name__) from error

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Any:
        status, answer, _ = self._ask(method, path, content, headers)
        self._refuse(status, answer)
        return answer

    def _ask(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, Any, str]:
        """Return the status of an answer, the document, and its entity tag."""
        where = path if path.startswith("/ops") else API + path
        headers["Authorization"] = f"Bearer {self._token}"
        try:
            with closing(self._connection()) as connection:
                connection.request(method, where, content, headers)
                response = connection.getresponse()
                tag = response.getheader("ETag", "")
                return response.status, json.loads(response.read()), tag
        except (OSError, HTTPException, ValueError) as error:
            raise Failed(f"ask {self._where}", str(error) or type(error).__name__) from error

    @staticmethod
    def _refuse(status: int, answer: Any) -> None:
        """Raise Invalid or DeviceRefusal if the answer is an error."""
        error_text = answer.get("error") if isinstance(answer, dict) else None
        if status == 400:
            raise Invalid(with_options(str(error_text)))
        if status not in (200, 201, 202) or (error_text and "delay" not in answer):
            raise DeviceRefusal(str(error_text or f"it answered with status {status}"))


class _LocalConnection(HTTPConnection):
    """A connection to the api of this device, as which no other process can pose."""

    def __init__(self, folder: Path, answer_s: float) -> None:
        super().__init__("localhost")
        self._folder = folder
        self._answer_s = answer_s

    def connect(self) -> None:
        """Connect. Raises Failed."""
        self.sock = local_socket.connect(self._folder, self._answer_s)


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    """Return the context for TLS that trusts the certificates of `ca_file`, too. Raises Invalid."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Invalid(f"--cacert must name a file of certificates in PEM: {error}") from None
    # The operator's own authority may lack fields that Python 3.13 requires (RFC 5280: key usage,
    # key identifiers): self-made ones often do.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def over_api(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: add the options that select a device, and pass it a `Remote` first."""

    @click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Configuration file of the device's service, on the device itself.",
    )
    @click.option("--url", envvar="EGRESSD_URL", help="Another device: https://ADDRESS:8788.")
    @click.option(
        "--token",
        envvar=_TOKEN,
        help=f"Its API token. Better put in {_TOKEN}, where no list of processes shows it.",
    )
    @click.option(
        "--cacert",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Its certificate, or that of who signed it.",
    )
    @wraps(command)
    def with_remote(
        *args: Any,
        config_file: Path | None,
        url: str | None,
        token: str | None,
        cacert: Path | None,
        **options: Any,
    ) -> None:
        given = {"config_file": config_file, "url": url, "token": token, "cacert": cacert}
        command(remote_of(given), *args, **options)

    return with_remote


def remote_of(given: Mapping[str, Any], *, answer_s: float = _ANSWER_S) -> Remote:
    """Return the device that the options of `over_api` select; it has `answer_s` seconds for an
    answer. Raises Failed and Invalid.
    """
    url, token = given.get("url"), given.get("token")
    if url is None:
        return _this_device(given.get("config_file"), token, answer_s)
    if token is None:
        # This device's own token must not be sent to another device.
        raise Failed(f"ask {url}", f"that takes its token, in {_TOKEN}")
    return Remote.at(url, token, given.get("cacert"), answer_s=answer_s)


def _this_device(config_file: Path | None, token: str | None, answer_s: float) -> Remote:
    """Return the API of the service that is configured on this device, with its own token if none
    is given. Raises Failed.
    """
    from egressd.app import config

    settings = config.load(config_file)
    if os.access(settings.api_data, os.X_OK):
        return Remote.here(settings, token, answer_s=answer_s)
    if token is None:
        raise Failed("read the API token", _why_none(settings, config_file))
    return Remote.at(f"http://{settings.api.listen.here}", token, answer_s=answer_s)


def _why_none(settings: Config, config_file: Path | None) -> str:
    """Return the reason for which the service's token cannot be read."""
    if os.geteuid() != 0:
        return f"that takes root, or the token in {_TOKEN}"
    origin = f"{config_file} names" if config_file else "the configuration names"
    return (
        f"there is no folder {settings.api_data}, where {origin} the service's data: no service has"
        " run with this configuration, or --config must name another file"
    )
