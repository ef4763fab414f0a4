"""A sing-box document that is to run, as the pool takes it."""

from __future__ import annotations

import hashlib

import msgspec

from egressd.model.instances import Instance, ProxyListener
from egressd.planner.documents import document_of


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and the key of the instance that it is of.

    When a TPROXY listener's port in it is 0, the pool picks one. Otherwise it is complete.
    """

    key: str
    config: str
    is_service: bool = False
    """Whether it is a proxy service's, which anybody may call."""

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
        """What tells one configuration from another: equal for equal ``config``."""
        return hashlib.sha256(self.config.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Document(key={self.key!r})"
