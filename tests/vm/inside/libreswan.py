"""libreswan and l2tpns: an L2TP/IPsec server that shares no code with xl2tpd, pppd or strongSwan.

libreswan's IKE daemon is pluto. l2tpns has its own L2TP and PPP, outside the kernel: lines end in
one network device, by addresses of its pool. It asks a RADIUS server to authenticate users, and
supports PAP and CHAP by MD5, where pppd and SoftEther have lines log in by MS-CHAPv2.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Final

from egressd.model.nouns import Line
from tests.vm.inside import clock, network
from tests.vm.inside.another_make import serves, wait
from tests.vm.inside.makes import LIBRESWAN
from tests.vm.inside.netns import kill_processes, sh
from tests.vm.inside.network import PASSWORD, RUN, SECRET
from tests.vm.inside.radius import ADDRESS, PORT, Radius
from tests.vm.inside.suite import Suite

_NAME: Final = "s4"
_SERVER: Final = "198.51.104.10"
_NETWORK: Final = "192.168.104"
_POOL: Final = f"{_NETWORK}.96/28"
_DNS: Final = f"{_NETWORK}.53"
_USERNAME: Final = "o'ff\"i\\ce;é密@x %s#$(reboot)"
"""It has characters beyond ASCII, which pppd as a server could not handle."""
_RADIUS_SECRET: Final = "between-l2tpns-and-radius"

_EXECUTABLES: Final = "/usr/libexec"
_PLUTO: Final = f"{_EXECUTABLES}/ipsec/pluto"

_CONNECTION: Final = f"""\
config setup
    ikev1-policy=accept
    listen={_SERVER}
conn l2tp
    keyexchange=ikev1
    authby=secret
    type=transport
    pfs=no
    rekey=no
    left={_SERVER}
    leftprotoport=udp/1701
    leftupdown=%disabled
    right=%any
    rightprotoport=udp/%any
    auto=add
"""
"""The settings that its documentation gives for L2TP. It chooses among the router's proposals."""


def _l2tpns(proof: str) -> str:
    """Return its settings (startup-config(5)), in which lines authenticate by `proof`."""
    # It takes no calls before it has waited for others of its cluster. The wait is the shortest
    # possible.
    return f"""\
set debug 3
set pid_file "{RUN}/{_NAME}/l2tpns.pid"
set bind_address {_SERVER}
set iftun_address {_NETWORK}.1
set peer_address {_NETWORK}.1
set cli_bind_address 127.0.0.1
set cluster_hb_interval 1
set cluster_hb_timeout 1
set primary_dns {_DNS}
set primary_radius {ADDRESS}
set primary_radius_port {PORT}
set radius_secret "{_RADIUS_SECRET}"
set radius_authtypes "{proof}"
"""


def _start() -> None:
    """Make its place in the network, and wait until it takes calls."""
    sh("modprobe tun")
    network.attach(_NAME, _SERVER)
    sh(f"ip -n isp route add {_NETWORK}.0/24 via {_SERVER}")
    folder = RUN / _NAME
    for name in ("nss", "run", "l2tpns"):
        (folder / name).mkdir(parents=True)
    (folder / "ipsec.conf").write_text(_CONNECTION)
    # In hexadecimal a secret may hold any byte (ipsec.secrets(5)).
    (folder / "secrets").write_text(f"{_SERVER} %any : PSK 0x{SECRET.encode().hex()}\n")
    (folder / "l2tpns" / "startup-config").write_text(_l2tpns("chap"))
    (folder / "l2tpns" / "ip_pool").write_text(f"{_POOL}\n")
    (folder / "l2tpns" / "users").touch()
    sh(f"certutil -N -d sql:{folder}/nss --empty-password")
    # pluto starts programs by the paths that it was built for.
    _spawn(
        folder / "pluto.log",
        f"mount --bind {LIBRESWAN}{_EXECUTABLES} {_EXECUTABLES}",
        f"{_PLUTO} --nofork --stderrlog --no-dnssec --config {folder}/ipsec.conf "
        f"--secretsfile {folder}/secrets --nssdir {folder}/nss --ipsecdir {folder} "
        f"--rundir {folder}/run",
    )
    _spawn(folder / "l2tpns.log", f"mount --bind {folder}/l2tpns /etc/l2tpns", "l2tpns")
    wait(f"ip netns exec {_NAME} ss -Hlnu sport = :500")
    wait(f"grep 'myself the master' {folder}/l2tpns.log || true")


def _spawn(log: Path, private: str, command: str) -> None:
    """Run a daemon in the server's network, with mounts of its own."""
    spawn = ["ip", "netns", "exec", _NAME, "unshare", "-m", "sh", "-ec"]
    with log.open("ab") as output:
        subprocess.Popen(
            [*spawn, f"{private}; exec {command}"],
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _have_log_in_by(proof: str) -> None:
    """Have later lines authenticate by `proof`."""
    folder = RUN / _NAME
    (folder / "l2tpns" / "startup-config").write_text(_l2tpns(proof))
    sh(f"kill -HUP $(cat {folder}/l2tpns.pid)")
    wait(f"""grep 'Setting "radius_authtypes" to "{proof}"' {folder}/l2tpns.log || true""")


async def libreswan_and_l2tpns_serve_a_line(suite: Suite) -> None:
    """A line with a secret goes online there, by CHAP and by PAP; eight others are not affected."""
    began = time.monotonic()
    with clock.steady():
        await asyncio.to_thread(_start)
    suite.figures["server started"] = time.monotonic() - began
    radius = Radius(_RADIUS_SECRET, {_USERNAME: PASSWORD})
    radius.open(_NAME)
    for number, proof in enumerate(("chap", "pap"), 102):
        await asyncio.to_thread(_have_log_in_by, proof)
        line = Line(
            id=number,
            type="l2tp",
            name=f"l2tp_{proof}",
            server=_SERVER,
            port=1701,
            username=_USERNAME,
            password=PASSWORD,
            secret=SECRET,
            interface="wan2",
        )
        await serves(suite, line, _POOL, _DNS)
    assert radius.asked == [("chap", True), ("pap", True)]
    radius.close()
    kill_processes(_NAME)
