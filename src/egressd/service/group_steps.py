"""The member of a group that a client's new connections go to, in sentences: why it, and which one
comes next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from egressd.model.nouns import GroupStrategy
from egressd.model.wording import Sentence, say
from egressd.service.group_views import GroupMember

_PASSED_OVER: Final = 3
"""Members before the one in use that are named."""


def steps_to_member(strategy: GroupStrategy, members: Sequence[GroupMember]) -> Iterator[Sentence]:
    """Yield sentences on the member in use, on those that come first and do not work, and on the
    one that would come next. None if the one in use is not known.
    """
    current = next((each for each in members if each.is_current), None)
    if current is None:
        return
    yield say("step-member", target=current.target, strategy=strategy)
    if strategy == "fallback":
        before = [each for each in members[: members.index(current)] if each.reason]
        for each in before[:_PASSED_OVER]:
            yield say("step-member-passed", target=each.target, reason=each.reason)
    able = [each for each in members if not each.is_current and each.is_alive is not False]
    if strategy == "urltest":
        able.sort(key=lambda each: math.inf if each.delay_ms is None else each.delay_ms)
    if not able:
        yield say("step-no-next-member")
    elif strategy in ("fallback", "urltest") or len(able) == 1:
        yield say("step-next-member", target=able[0].target)
    else:
        yield say("step-next-of-members", n=len(able))
