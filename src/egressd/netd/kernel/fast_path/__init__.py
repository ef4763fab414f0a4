"""The fast path of known flows: from a LAN's interface to a WAN's and back, past the IP stack.

Most packets belong to a flow that the kernel routes and that was decided on before. A classifier in
front of the stack (tc-bpf(8)) looks such a flow up in connection tracking, checks that its mark is
the one its client has now, translates its addresses and sends it on. All other packets take the
slow path, and so does one packet of each flow a second: it keeps the flow's entry alive, and passes
all rules.

- `tracking`: properties of the running kernel that the classifier depends on.
- `elements`: the keys and values that the classifier looks up.
- `program`: the classifier.
- `maps`: the classifier's maps.
- `counts`, `places`: what they hold.
- `hooks`: attaches the classifier to interfaces; on kernels before 6.6 `filters` does.
- `others`: other programs' hooks on the interfaces, which take precedence.
- `path`: keeps clients, egresses and counts in step with the plan.
- `events`: events about other programs' changes.

`egressd.planner.fast_path` decides which clients may use the fast path.
"""

from egressd.netd.kernel.fast_path.events import ForeignFilters
from egressd.netd.kernel.fast_path.path import FastPath, close

__all__ = ["FastPath", "ForeignFilters", "close"]
