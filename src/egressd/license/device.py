"""The id of a device, which a license names."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed

MACHINE_ID: Final = Path("/etc/machine-id")

_APPLICATION: Final = b"egressd device id 1"


def device_id(machine_id: str) -> str:
    """Return the id of the device with a machine id: 16 hex digits in four groups.

    machine-id(5) asks not to show the id itself, and to hash it with a key of the
    application's own.
    """
    digest = hmac.new(machine_id.strip().encode(), _APPLICATION, hashlib.sha256).hexdigest()
    return "-".join(digest[start : start + 4] for start in range(0, 16, 4))


def this_device(path: Path = MACHINE_ID) -> str:
    """Return the id of this machine. Raises Failed if it has no machine id."""
    try:
        machine_id = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"read the machine id from {path}", str(error)) from error
    if not machine_id or machine_id == "uninitialized":
        raise Failed(f"read the machine id from {path}", "the machine has not been given one yet")
    return device_id(machine_id)
