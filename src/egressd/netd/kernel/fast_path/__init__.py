"""The short way of known flows: from a LAN's interface to a WAN's and back, past the IP stack.

Most packets belong to a flow that the kernel routes and that was decided on before. A classifier
in front of the stack (tc-bpf(8)) looks such a flow up in connection tracking, sees that it has the
very mark that its client has now, translates its addresses and sends it on. Whatever is not
just so goes the long way, and so does one packet of each flow a second: it keeps the flow's entry
alive, and meets all rules.

- `tracking`: what it has to know of the kernel that runs.
- `elements`: what it looks up.
- `program`: the classifier.
- `maps`: where it looks.
- `hooks`: puts it on interfaces; on kernels before 6.6 `filters` does.
- `others`: what other programs have there, who come first.
- `path`: keeps clients, ways and counts in step with the plan.
- `events`: when others' things change.

Who may go this way is `egressd.planner.fast_path`'s to say.
"""

from egressd.netd.kernel.fast_path.events import ForeignFilters
from egressd.netd.kernel.fast_path.path import FastPath, close

__all__ = ["FastPath", "ForeignFilters", "close"]
