"""An engine worker: a process that runs sing-box instances at netd's request.

``python -m egressd.netd.engine.worker --socket PATH --uid N --gid N --descriptors N [--trial]``

`worker_process` has its work; this module decides what it loads.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> None:
    """Run the worker that `arguments` describe."""
    match arguments:
        case ["--socket", path, "--uid", uid, "--gid", gid, "--descriptors", files, *rest] if (
            rest in ([], ["--trial"])
        ):
            is_trial = bool(rest)
        case _:
            sys.exit(__doc__)
    # msgspec prefers it to the same in typing: 0.4 MB. asyncio would load ssl, 1 MB that only the
    # measurement of delays needs.
    for name in ("typing_extensions", *(() if is_trial else ("ssl",))):
        sys.modules[name] = None  # type: ignore[assignment]
    from pathlib import Path

    from egressd.netd.engine.worker_process import WorkerOptions, run

    run(WorkerOptions(Path(path), int(uid), int(gid), int(files), is_trial))


if __name__ == "__main__":
    main(sys.argv[1:])
