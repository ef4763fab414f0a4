"""The device's API, as the commands that work over it call it."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import wraps
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click

from egressd.model.errors import EgressdError, Failed, Invalid

API: Final = "/svc/api/v1"
_ANSWER_S: Final = 120.0
"""Seconds that the device may take: a large import is answered when it is in force."""
_TOKEN: Final = "EGRESSD_TOKEN"  # noqa: S105 - the name of a variable


class Refused(EgressdError):
    """The device understood, and did not do it."""


class Remote:
    """A device's API at `url`, with its token. `ca_file`: whom to trust beside the system's CAs."""

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        problem = "--url must be http://ADDRESS:PORT or https://ADDRESS:PORT"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:  # a bracket that does not close, a port that is none
            raise Invalid(problem) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise Invalid(problem)
        self._host, self._port = parts.hostname, port
        self._tls = _tls(ca_file) if parts.scheme == "https" else None
        self._url = url
        self._token = token

    def get(self, path: str, **query: Any) -> Any:
        """The document at `path`, which is the API's unless it begins with ``/ops``."""
        # What is no UTF-8 on the command line is no name of anything.
        texts = {key: quote(str(value), safe="", errors="replace") for key, value in query.items()}
        pairs = "&".join(f"{key}={text}" for key, text in texts.items())
        return self.send("GET", f"{path}?{pairs}" if pairs else path)

    def rows(self, path: str) -> list[dict[str, Any]]:
        """A list of the API's."""
        try:
            data: list[dict[str, Any]] = self.get(path)["data"]
        except (KeyError, TypeError) as error:
            raise Failed(f"ask {self._url}", "it answers as no egressd does") from error
        return data

    def named(self, path: str, names: Sequence[str], what: str) -> list[dict[str, Any]]:
        """Those rows of a list that have these names. Raises Refused when one is not there."""
        known = {row["name"]: row for row in self.rows(path)}
        if missing := [name for name in names if name not in known]:
            raise Refused(f"there is no {what} {', '.join(missing)}")
        return [known[name] for name in names]

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """What is answered. Raises Invalid, Refused, or Failed when there is no device."""
        if body is None:
            return self._exchange(method, path, None, {})
        content = json.dumps(body).encode()
        return self._exchange(method, path, content, {"Content-Type": "application/json"})

    def upload(self, path: str, content: bytes, media_type: str) -> Any:
        """What is answered to a file. Raises as `send` does."""
        return self._exchange("POST", path, content, {"Content-Type": media_type})

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Any:
        where = path if path.startswith("/ops") else API + path
        headers["Authorization"] = f"Bearer {self._token}"
        try:
            with closing(self._connection()) as connection:
                connection.request(method, where, content, headers)
                response = connection.getresponse()
                status, answer = response.status, json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise Failed(f"ask {self._url}", str(error) or type(error).__name__) from error
        error_text = answer.get("error") if isinstance(answer, dict) else None
        if status == 400:
            raise Invalid(str(error_text))
        if status != 200 or (error_text and "delay" not in answer):
            raise Refused(str(error_text or f"it answered with status {status}"))
        return answer

    def _connection(self) -> HTTPConnection:
        if self._tls is not None:
            return HTTPSConnection(self._host, self._port, timeout=_ANSWER_S, context=self._tls)
        return HTTPConnection(self._host, self._port, timeout=_ANSWER_S)


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    """Raises Invalid."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Invalid(f"--cacert must name a file of certificates in PEM: {error}") from None
    # An authority that the operator names may lack what Python 3.13 asks of one (RFC 5280: key
    # usage, key identifiers), as those that people make for themselves often do.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def over_api(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator: the command gets a `Remote` first, by options that say which device's."""

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
        if url is None:
            url, token = _this_device(config_file, token)
        elif token is None:
            # This device's own is for nobody else.
            raise Failed(f"ask {url}", f"that takes its token, in {_TOKEN}")
        command(Remote(url, token, cacert), *args, **options)

    return with_remote


def _this_device(config_file: Path | None, token: str | None) -> tuple[str, str]:
    """Where the service that is configured here listens, and its token if none is given. Raises
    Failed.
    """
    from egressd.app import config
    from egressd.store.api_token import ApiToken

    settings = config.load(config_file)
    url = f"http://{settings.api.listen.here}"
    if token is not None:
        return url, token
    if not os.access(settings.api_data, os.X_OK):
        raise Failed("read the API token", f"that takes root, or the token in {_TOKEN}")
    return url, ApiToken(settings.api_data).token()
