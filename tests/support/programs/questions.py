"""DNS queries with full answers: ``python -m tests.support.programs.questions SOURCE SERVER``.

Reads lines ``NAME TYPE [edns | dnssec]``. Prints for each answer, as a line of JSON, its code, the
records of the answer and of the authority, and the presence of an OPT record.
"""

from __future__ import annotations

import json
import sys

import dns.flags
import dns.message
import dns.query
import dns.rcode

WAIT_S = 5.0


def main(source: str, server: str) -> None:
    for line in sys.stdin:
        name, kind, *how = line.split()
        query = dns.message.make_query(name, kind, use_edns=bool(how), want_dnssec="dnssec" in how)
        reply = dns.query.udp(query, server, timeout=WAIT_S, source=source)
        said = {
            "rcode": dns.rcode.to_text(reply.rcode()),
            "answer": [record.to_text() for rrset in reply.answer for record in rrset],
            "soa": [r.name.to_text() for r in reply.authority if r.rdtype.name == "SOA"],
            "edns": reply.edns == 0,
            "dnssec": bool(reply.ednsflags & dns.flags.DO),
        }
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
