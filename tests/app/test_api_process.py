"""What the api does before anything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BEGIN = """
import resource, sys
from pathlib import Path
from egressd.app.api_process import main

resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600))
try:
    main(Path(sys.argv[1]))
finally:
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_it_may_open_as_many_files_as_it_is_let(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    ended = subprocess.run(
        [sys.executable, "-c", BEGIN, missing], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "cannot read" in ended.stderr
    assert ended.stdout == "(600, 600)\n"
