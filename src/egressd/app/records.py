"""Everything that features keep beside the configuration, each in a file or table of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from egressd.model.exits import KnownExit
from egressd.model.rotations import KeptRotation
from egressd.model.subscriptions import FetchRecord
from egressd.service.alert_book import Kept
from egressd.service.alerts import AlertRecord
from egressd.service.journal import ChangeStore
from egressd.service.ports import DeviceRecord, ExitRecord, HistoryPort
from egressd.service.rotations import RotationStore
from egressd.service.subscription_records import FetchStore
from egressd.service.tokens import TokenStore
from egressd.store.console import ConsoleStore
from egressd.store.device_file import DeviceFile
from egressd.store.history import HistoryStore
from egressd.store.record_file import RecordFile
from egressd.store.scoped_tokens import ScopedTokenStore


@dataclass(frozen=True, kw_only=True)
class Records:
    """The stores of the features that keep something beside the configuration."""

    changes: ChangeStore
    tokens: TokenStore
    history: HistoryPort
    devices: DeviceRecord
    exits: ExitRecord
    alerts: AlertRecord
    subscriptions: FetchStore
    rotations: RotationStore


def records_in(folder: Path, console: ConsoleStore) -> Records:
    """Return the records in the api's data directory; nothing is opened yet."""
    return Records(
        changes=console,
        tokens=ScopedTokenStore(console.beside),
        history=HistoryStore(folder),
        devices=DeviceFile(folder),
        exits=RecordFile[Mapping[str, KnownExit]](
            folder / "exits.json", dict[str, KnownExit], "exits"
        ),
        alerts=RecordFile(folder / "alerts.json", Kept, "alerts"),
        subscriptions=RecordFile[Mapping[int, FetchRecord]](
            folder / "subscriptions.json", dict[int, FetchRecord], "subscriptions"
        ),
        rotations=RecordFile[Sequence[KeptRotation]](
            folder / "rotations.json", list[KeptRotation], "rotations"
        ),
    )
