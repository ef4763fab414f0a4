"""Parts of uvicorn and FastAPI that the api does not use: they are not loaded, or not made before
they are needed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec


def prepare() -> None:
    """Prepare the imports of uvicorn and FastAPI; to be called before them."""
    # pydantic would read the metadata of every installed distribution, and load what names itself
    # a plugin there: 5 ms.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    _load_no_command_of_uvicorn()
    _make_fastapis_models_later()
    _load_no_version_1_of_pydantic()


def _load_no_command_of_uvicorn() -> None:
    """Put a package in place of uvicorn's that has the same modules, and not its command, which
    loads multiprocessing, and click unless uvicorn's other modules do: 1.5 MB, and 25 ms.
    """
    spec = find_spec("uvicorn")
    assert spec is not None
    package = sys.modules["uvicorn"] = module_from_spec(spec)
    from uvicorn.config import Config
    from uvicorn.server import Server

    vars(package).update(Config=Config, Server=Server)


def _make_fastapis_models_later() -> None:
    """Import FastAPI's models of an OpenAPI document. What they are validated with, 1.5 MB, is
    made when the document is.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    import_module("fastapi.openapi.models")
    del BaseModel.model_config["defer_build"]
    # pydantic would load these with the first of the models, when the code may be unreadable.
    import_module("pydantic.dataclasses")
    import_module("pydantic.root_model")  # up to 2.11


def _load_no_version_1_of_pydantic() -> None:
    """Have FastAPI find no version 1 of pydantic beside the other one. To see that no annotation is
    a model of it, it would load it: 1.4 MB, and 20 ms. Versions up to 0.125 know such models.
    """
    if find_spec("fastapi._compat.v1") is None:
        sys.modules["pydantic.v1"] = None  # type: ignore[assignment]
