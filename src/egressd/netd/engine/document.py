"""A sing-box document to be run, in the form that the pool takes."""

from __future__ import annotations

import hashlib

import msgspec

from egressd.model.instances import Instance, ProxyListener
from egressd.planner.documents import document_of


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and the key of its instance.

    If a TPROXY listener's port in it is 0, the pool picks one. Otherwise it is complete.
    """

    key: str
    config: str
    is_service: bool = False
    """True for the document of a proxy service, which may be open to all clients."""

    @classmethod
    def of(cls, instance: Instance) -> Document:
        """Return the document of an instance of the plan."""
        return cls(
            key=instance.key,
            config=document_of(instance.work),
            is_service=isinstance(instance.work, ProxyListener),
        )

    @property
    def digest(self) -> str:
        """The identity of the configuration: equal for equal ``config``."""
        return hashlib.sha256(self.config.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Document(key={self.key!r})"
