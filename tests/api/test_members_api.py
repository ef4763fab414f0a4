"""``/ops/members``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from egressd.model.site import MemberSeen, MemberState, SiteReading

if TYPE_CHECKING:
    from tests.support.api_device import Device


SINCE = "2026-11-20T22:58:40Z"


async def test_a_box_of_its_own_has_no_members(device: Device) -> None:
    assert (await device.client.get("/ops/members")).json() == {"data": []}


async def test_members_are_listed_with_what_is_known_of_each(fresh_device: Device) -> None:
    seen = (
        MemberSeen(id=1, name="gw1", version="1", n=7, applied=12, role="active", role_since=SINCE),
        MemberSeen(id=2, name="gw2", is_ungated=True, is_fenced=True, blocked=("hk",)),
    )
    reading = SiteReading(me=1, head=12, members=seen)
    fresh_device.members = [MemberState.of(each, reading, is_beating=True) for each in seen]
    answer = await fresh_device.client.get("/ops/members")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["data"] == [
        {
            "name": "gw1",
            "is_this": True,
            "version": "1",
            "revision": 12,
            "lag": 0,
            "role": "active",
            "role_since": SINCE,
            "is_beating": True,
            "is_shut_out": False,
            "needs_lease": True,
            "blocked": [],
        },
        {
            "name": "gw2",
            "is_this": False,
            "version": "",
            "revision": None,
            "lag": None,
            "role": "",
            "role_since": None,
            "is_beating": True,
            "is_shut_out": True,
            "needs_lease": False,
            "blocked": ["hk"],
        },
    ]
