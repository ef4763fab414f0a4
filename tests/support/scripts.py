"""Programs of the checkout that are no modules of it, as modules."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent


def load(name: str, folder: str = "script") -> ModuleType:
    """Import a program, with or without a suffix, from a folder of the checkout."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / folder / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
