"""Files that the code writes: golden files beside the tests, and references in documents.

``.venv/bin/python -m tests.golden`` writes all of them again; `tests/test_golden.py` compares them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from egressd.planner import nft
from egressd.store.preparation import NEWEST
from tests.support import newest_schema, nft_reference, pairs
from tests.support.configurations import CONFIGURATIONS, LEASED
from tests.support.disassembly import fast_path

RULESETS: Final = Path(__file__).parent / "planner" / "golden"
PROGRAMS: Final = Path(__file__).parent / "netd" / "golden"
PAIRS: Final = Path(__file__).parent / "netd" / "cluster" / "golden"


def files() -> dict[Path, str]:
    """Return the text that each file has to have."""
    rulesets = {RULESETS / f"{n}.nft": nft.load(wanted) for n, wanted in CONFIGURATIONS.items()}
    rulesets[RULESETS / "leased.nft"] = nft.load(LEASED, is_gated=True)
    programs = {PROGRAMS / f"{name}.bpf": text for name, text in fast_path().items()}
    return {
        **rulesets,
        **programs,
        **{PAIRS / name: text for name, text in pairs.texts().items()},
        nft_reference.DOCUMENT: nft_reference.document(),
        NEWEST: newest_schema.text(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
