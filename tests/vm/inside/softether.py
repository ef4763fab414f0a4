"""SoftEther VPN: an L2TP/IPsec server that shares no code with xl2tpd, pppd or strongSwan.

Its IKE, ESP and PPP are its own and run outside the kernel. Lines end in a virtual hub, which is
bridged to a network device here; the hub's DHCP server gives them addresses.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import Final

from egressd.model.nouns import Line
from tests.vm.inside import clock, network
from tests.vm.inside.another_make import serves, wait
from tests.vm.inside.makes import VPNSERVER
from tests.vm.inside.netns import kill_processes, sh
from tests.vm.inside.network import RUN
from tests.vm.inside.suite import Suite

_NAME: Final = "s5"
_ADDRESS: Final = "198.51.105.10"
_PORT: Final = 5555
"""The port of its administration."""
_POOL: Final = "192.168.105"
_DNS: Final = f"{_POOL}.53"
_PASSWORD: Final = "pa'ss w;ord#$(reboot)\\x"
_SECRET: Final = "se'cret #$x{}"

_CONFIGURATION: Final = f"""\
declare root
{{
    declare DDnsClient
    {{
        bool Disabled true
    }}
    declare ListenerList
    {{
        declare Listener0
        {{
            bool DisableDos true
            bool Enabled true
            uint Port {_PORT}
        }}
    }}
    declare ServerConfiguration
    {{
        bool DisableNatTraversal true
    }}
}}
"""
"""It asks no outside server for a name or a path through NAT, and listens for commands only."""

_COMMANDS: Final = f"""\
HubCreate VPN /PASSWORD:none
BridgeCreate VPN /DEVICE:soft /TAP:yes
IPsecEnable /L2TP:yes /L2TPRAW:yes /ETHERIP:no /PSK:"{_SECRET}" /DEFAULTHUB:VPN
Hub VPN
SecureNatEnable
NatDisable
SecureNatHostSet /MAC:none /IP:{_POOL}.254 /MASK:255.255.255.0
DhcpSet /START:{_POOL}.100 /END:{_POOL}.109 /MASK:255.255.255.0 /EXPIRE:7200 /GW:{_POOL}.1 \
/DNS:{_DNS} /DNS2:none /DOMAIN:none /LOG:no /PUSHROUTE:
UserCreate office /GROUP:none /REALNAME:none /NOTE:none
UserPasswordSet office /PASSWORD:"{_PASSWORD}"
"""


def _start() -> None:
    """Make its place in the network, and wait until it takes calls."""
    sh("modprobe tun")
    network.attach(_NAME, _ADDRESS)
    sh(f"ip -n isp route add {_POOL}.0/24 via {_ADDRESS}")
    folder = RUN / _NAME
    folder.mkdir()
    (folder / "vpn_server.config").write_text(_CONFIGURATION)
    (folder / "commands").write_text(_COMMANDS)
    places = "/var/lib/softether /var/log/softether /run/softether"
    script = (
        "mount -t tmpfs state /var/lib; mount -t tmpfs logs /var/log; "
        f"mkdir -p {places}; cp {folder}/vpn_server.config /var/lib/softether/; "
        f"exec {VPNSERVER} execsvc"
    )
    with (folder / "log").open("ab") as output:
        subprocess.Popen(
            ["ip", "netns", "exec", _NAME, "unshare", "-m", "sh", "-ec", script],
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    wait(f"ip netns exec {_NAME} ss -Hlnt sport = :{_PORT}")
    sh(
        f"ip netns exec {_NAME} vpncmd localhost:{_PORT} /SERVER /IN:{folder}/commands "
        f"/OUT:{folder}/answers < /dev/null"
    )
    wait(f"ip -n {_NAME} -o link | grep tap_soft || true")
    sh(f"ip -n {_NAME} address add {_POOL}.1/24 dev tap_soft")
    wait(f"ip netns exec {_NAME} ss -Hlnu sport = :500")


async def a_server_of_another_make(suite: Suite) -> None:
    """A line with a secret goes online at SoftEther; eight others are not affected."""
    began = time.monotonic()
    with clock.steady():
        await asyncio.to_thread(_start)
    suite.figures["server started"] = time.monotonic() - began
    line = Line(
        id=101,
        type="l2tp",
        name="l2tp_soft",
        server=_ADDRESS,
        port=1701,
        username="office",
        password=_PASSWORD,
        secret=_SECRET,
        interface="wan2",
    )
    await serves(suite, line, f"{_POOL}.0/24", _DNS)
    kill_processes(_NAME)
