"""Collects the logs of the daemons of lines that are not up, with egressd's reasons.

``sudo .venv/bin/python -m tests.vm.collect`` runs scenarios of odd servers in the machine, and
writes ``tests/netd/lines/logs/RELEASE.json``. On the other release, run it in the root that
``script/test other-release`` makes. Lines with a secret are left out: charon keeps no log.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.vm import boot
from tests.vm.inside import oddities

LOGS: Final = boot.ROOT / "tests" / "netd" / "lines" / "logs"
SCENARIOS: Final = (
    oddities.both_ends_have_one_address,
    oddities.a_tunnel_has_a_secret,
    oddities.calls_are_refused,
    oddities.mppe_is_required_in_l2tp,
    oddities.a_pptp_port_is_closed,
    oddities.eap_is_insisted_on,
    oddities.reasons_are_told,
    oddities.only_control_comes_through,
    oddities.an_account_is_still_in_use,
    oddities.a_server_never_finishes,
)
FROM_SOCKETS: Final = "no PPTP server answers"
"""Without an error, netd has this reason from the kernel's sockets, not from a log."""
TIMEOUT_S: Final = 3600.0


def collected(said: Path) -> list[dict[str, Any]]:
    """Return the logs of a folder that `OddSuite` wrote, split into lines."""
    found = []
    for path in sorted(said.iterdir()):
        entry = json.loads(path.read_text())
        if entry["reason"].startswith(FROM_SOCKETS) and ": " not in entry["reason"]:
            continue
        logs = {name: entry[name].splitlines() for name in ("ppp", "daemon")}
        found.append({"state": entry["state"], "reason": entry["reason"], **entry, **logs})
    return found


def main() -> None:
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    with TemporaryDirectory(prefix="egressd-vm-") as shared:
        names = [scenario.__name__ for scenario in SCENARIOS]
        print(boot.run(oddities.__name__, Path(shared), *names, timeout_s=TIMEOUT_S))
        write(release, collected(Path(shared, "said")))


def write(release: str, entries: list[dict[str, Any]]) -> None:
    """Write the file of a release."""
    LOGS.mkdir(exist_ok=True)
    text = json.dumps(entries, indent=1, ensure_ascii=True)
    (LOGS / f"{release}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1], collected(Path(sys.argv[2])))
    else:
        main()
