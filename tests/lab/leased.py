"""A device whose plan is leased, and its api: the test, which renews the lease or does not."""

from __future__ import annotations

import shutil
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from egressd.model.messages import (
    Done,
    GetStatus,
    RenewLease,
    Reply,
    Request,
    RequestBody,
    SetPlan,
    Status,
)
from egressd.model.plan import Plan
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.netd.system import framing
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from tests.support.device import eventually

TERM_MS: Final = 2000
"""Milliseconds of a lease."""
_BEAT_S: Final = 0.4
_HEADER: Final = struct.Struct(">I")


def boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Api:
    """The api's connection to netd."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(30)
        self._socket.connect(str(path))
        self._decoder = framing.decoder_of(Reply)
        self._numbers = count(1)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._socket.close()

    def ask(self, body: RequestBody) -> Any:
        """Return the body of netd's answer."""
        with self._lock:
            self._socket.sendall(framing.pack(Request(number=next(self._numbers), body=body)))
            (length,) = _HEADER.unpack(self._read(_HEADER.size))
            return self._decoder.decode(self._read(length)).body

    def _read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            assert part, "netd hung up"
            data += part
        return data

    def set_plan(self, plan: Plan) -> None:
        assert isinstance(answer := self.ask(SetPlan(plan)), Done), answer

    def status(self) -> Status:
        status = self.ask(GetStatus())
        assert isinstance(status, Status)
        return status

    def renew(self, ahead_ms: int = TERM_MS) -> int:
        """Renew the lease, and return its end in milliseconds of CLOCK_BOOTTIME."""
        until_ms = boot_ms() + ahead_ms
        assert isinstance(answer := self.ask(RenewLease(until_ms)), Done), answer
        return until_ms


class Renewals:
    """Renewals of the lease, again and again, for the block."""

    def __init__(self, api: Api) -> None:
        api.renew()
        self._api = api
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def _renew(self) -> None:
        while not self._ending.wait(_BEAT_S):
            self._api.renew()

    def stop(self) -> None:
        """Renew it no more."""
        self._ending.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()


class Member:
    """netd alone, in the router of a lab, with the plan that the device had before."""

    def __init__(self, lab: Lab) -> None:
        """Take the place of a device that runs: its api ends with it."""
        self._lab = lab
        self._run = lab.device.config.parent / "run"
        lab.device.kill()
        copy = lab.folder / "plan"
        (file,) = lab.device.data.glob("**/plan.db")
        copy.mkdir()
        for each in file.parent.glob("plan.db*"):
            shutil.copy(each, copy)
        stored = PlanFile(copy / "plan.db")
        plan = stored.load()
        stored.close()
        assert plan is not None
        self.plan = plan
        policy = msgspec.structs.replace(plan.policy, is_leased=True)
        self.leased = msgspec.structs.replace(plan, policy=policy)
        argv = [sys.executable, "-P", "-m", "egressd.app", "netd", "--config"]
        self.netd = Program(
            lab.router.namespace,
            [*argv, str(lab.device.config)],
            lab.folder / "netd.log",
            lab.device.environment,
        )
        self.start()
        self.api.set_plan(self.leased)

    def start(self) -> None:
        """Start netd, and connect to it."""
        before = self._socket_file()
        self.netd.start()
        eventually(lambda: self._socket_file() not in (0, before), 60)
        self.api = Api(self._run / "netd.sock")

    def _socket_file(self) -> int:
        path = self._run / "netd.sock"
        return path.stat().st_ctime_ns if path.exists() else 0

    def kill(self) -> None:
        """Kill netd, as the kernel does."""
        self.api.close()
        self.netd.kill()

    @contextmanager
    def renewing(self) -> Iterator[Renewals]:
        """Renew the lease for the block."""
        with Renewals(self.api) as renewals:
            yield renewals
