"""Dependencies that handlers declare as parameters, and that FastAPI gives them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import Request

from egressd.api.services import Services

T = TypeVar("T")


async def services_of(request: Request) -> Services:
    """Return the use cases of the application that the request is for."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]


def per_application(make: Callable[[], T]) -> Callable[[Request], Coroutine[Any, Any, T]]:
    """Return a dependency that is one object in an application: handlers that keep something
    between requests name it. `make` is called at the first request.
    """

    async def made(request: Request) -> T:
        return kept(request, made, make)

    return made


def kept(request: Request, key: object, make: Callable[[], T]) -> T:
    """Return the object that the application keeps by this key, made at the first request."""
    everything: dict[object, T] = request.app.state.kept
    if key not in everything:
        everything[key] = make()
    return everything[key]
