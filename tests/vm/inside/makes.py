"""L2TP/IPsec servers that share no code with xl2tpd, pppd and strongSwan: one of them is enough.

Debian 12 has SoftEther and Debian 13 has not. libreswan and l2tpns are in both, but libreswan may
not be installed beside strongSwan: ``script/setup --dev`` unpacks it into a folder, on Debian 13.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

VPNSERVER: Final = "/usr/libexec/softether/vpnserver/vpnserver"
LIBRESWAN: Final = "/usr/lib/egressd-peers/libreswan"
"""The folder that the package is unpacked into."""


class Make(NamedTuple):
    """A make of server."""

    scenario: str
    """Its name. The scenario runs lines to such a server."""
    programs: Mapping[str, str]
    """Program -> the Debian package that has it."""


MAKES: Final = (
    Make(
        "a_server_of_another_make",
        {VPNSERVER: "softether-vpnserver", "vpncmd": "softether-vpnserver"},
    ),
    Make(
        "libreswan_and_l2tpns_serve_a_line",
        {
            f"{LIBRESWAN}/usr/libexec/ipsec/pluto": f"libreswan (in {LIBRESWAN})",
            "certutil": "libnss3-tools",
            "l2tpns": "l2tpns",
        },
    ),
)


def absent(programs: Mapping[str, str]) -> list[str]:
    """Return the packages of those programs that are not on this machine."""
    return sorted(
        {
            package
            for program, package in programs.items()
            if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is None
        }
    )


def missing(makes: tuple[Make, ...] = MAKES) -> Iterator[str]:
    """Yield the packages that would be enough, if there is no server of any make."""
    lacking = [absent(make.programs) for make in makes]
    if all(lacking):
        ways = ", or ".join(" and ".join(packages) for packages in lacking)
        yield f"a server of another make: {ways} (script/setup --dev)"


def left_out(makes: tuple[Make, ...] = MAKES) -> dict[str, str]:
    """Return the reason for which a scenario is left out, if one of another make covers the same
    kind.
    """
    here = [make.scenario for make in makes if not absent(make.programs)]
    return {
        make.scenario: f"{make.scenario} is left out, for this machine lacks "
        f"{' and '.join(absent(make.programs))}: {' and '.join(here)} covers the same kind"
        for make in makes
        if here and make.scenario not in here
    }
