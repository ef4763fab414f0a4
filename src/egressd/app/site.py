"""The store that the configuration asks for: this box's own, or that of the site it belongs to."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from egressd import __version__
from egressd.app import network, site_key
from egressd.app.config import Config
from egressd.model.errors import Invalid
from egressd.planner.topology import is_line
from egressd.service.ports import Configuration
from egressd.store.api_token import ApiToken
from egressd.store.connection import reported
from egressd.store.database import Database
from egressd.store.sealing import SiteSeal

if TYPE_CHECKING:
    import ssl

    from egressd.console.accounts import Accounts
    from egressd.console.sessions import Sessions
    from egressd.service.membership import Membership
    from egressd.service.peer_lease import PeerLease
    from egressd.service.site_member import SiteMember
    from egressd.service.tokens import Tokens


def store_of(settings: Config) -> Configuration:
    """Return the store; nothing is opened yet. Raises EgressdError.

    The modules for a site are imported here: a box of its own never loads them.
    """
    database = Database(settings.api_data)
    if not settings.cluster.database:
        return database
    from egressd.store.postgres.connection import check_conninfo
    from egressd.store.postgres.database import SiteDatabase
    from egressd.store.postgres.site_store import SiteStore

    check_conninfo(settings.cluster.database)
    site = SiteDatabase(
        settings.cluster.database,
        site=settings.cluster.site,
        seal=SiteSeal(site_key.read(settings)),
        renew=partial(_renewed, settings),
    )
    return SiteStore(site, database)


def member_of(
    settings: Config,
    store: Configuration,
    renew: Callable[[int], Awaitable[None]],
    role: Callable[[], str] = lambda: "",
) -> SiteMember | None:
    """Return this box as a member of its site; None for a box of its own. `store` is what
    `store_of` returned; `renew` prolongs the lease in the kernel, and `role` returns this
    box's role in its pair. Raises Failed.
    """
    if not settings.cluster.database:
        return None
    from egressd.app import leaving
    from egressd.service.membership import Membership
    from egressd.service.site_member import SiteMember
    from egressd.store.postgres.site_link import SiteLink
    from egressd.store.postgres.site_store import GATE_MARK, SiteStore, open_mark

    assert isinstance(store, SiteStore)
    leaving.withdraw(settings.api_data)
    link = SiteLink(settings.cluster.database, version=__version__)
    membership = Membership()
    return SiteMember(
        link,
        clock=_boot_time,
        renew=renew,
        role=role,
        mark=open_mark(settings.api_data, GATE_MARK),
        point=lambda: store.point,
        membership=membership,
        peer=_peer_of(settings, membership, renew),
    )


def _peer_of(
    settings: Config, membership: Membership, renew: Callable[[int], Awaitable[None]]
) -> PeerLease | None:
    """Return what prolongs the lease of a box of a pair without the database; None for another."""
    pair = settings.pair.pair
    if pair is None:
        return None
    from egressd.app.peer_ways import PeerWays
    from egressd.service.peer_lease import PeerLease
    from egressd.store.postgres.site_store import BEHIND_MARK, PAIR_MARK, open_mark

    return PeerLease(
        PeerWays(pair, key=partial(site_key.read, settings), clock=_boot_time),
        membership,
        clock=_boot_time,
        renew=renew,
        goes_on_alone=settings.pair.alone == "keep",
        is_pair=open_mark(settings.api_data, PAIR_MARK),
        is_behind=open_mark(settings.api_data, BEHIND_MARK),
    )


def access_of(
    settings: Config,
    *,
    accounts: Accounts,
    sessions: Sessions,
    token: ApiToken,
    tokens: Tokens,
    serving: Callable[[], ssl.SSLContext | None],
) -> Coroutine[None, None, None] | None:
    """Return the work of keeping certificate, tokens, password and sessions equal at all members of
    the site; None for a box of its own. `serving` returns the context of the HTTPS listener.
    """
    if not settings.cluster.database:
        return None
    from egressd.app import shared_access
    from egressd.store.postgres.shared_access import SharedAccessLink

    folder = settings.api_data
    follower = shared_access.AccessFollower(
        SharedAccessLink(settings.cluster.database),
        (
            shared_access.SharedCertificate(folder, partial(names_of, settings), serving),
            shared_access.SharedToken(token),
            shared_access.SharedPassword(accounts),
        ),
        folder / shared_access.RECORD,
        lambda: SiteSeal(site_key.read(settings)),
        sessions,
        tokens=tokens,
    )
    return follower.follow()


def names_of(settings: Config) -> list[IPv4Address]:
    """Return the addresses that a member's certificate must be for: its own, without those of VPN
    lines, and the shared ones of a pair. A box of its own makes its certificate once, and none is
    demanded of it. Raises Failed.
    """
    if not settings.cluster.database:
        return []
    with reported("see which addresses this machine has"):
        found = network.facts().interfaces
    own = [each.ip for name in found if not is_line(name) for each in found[name].addresses]
    return [*own, *(address.ip for address in settings.pair.shared.values())]


def _boot_time() -> float:
    """Return CLOCK_BOOTTIME in seconds, by which the kernel's gate counts too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _renewed(settings: Config, envelope: str) -> SiteSeal:
    """Return the seal with the site's new key, which is in this member's envelope and is kept from
    now on. Raises Failed.
    """
    from egressd.app.key_rotation import opened_here

    key = opened_here(settings, envelope)
    site_key.keep(settings, key)
    return SiteSeal(key)


def require_site(settings: Config) -> None:
    """Raise Invalid unless the configuration names a site and its database."""
    if not settings.cluster.database or not settings.cluster.site:
        raise Invalid("cluster.database and cluster.site: must be set in the configuration first")
