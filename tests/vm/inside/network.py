"""The network of the VM tests, and the VPN servers in it.

::

    client ── lan0 router wan1 ──┐
                     wan2 ──── isp ──┬── s1   L2TP, L2TP/IPsec, PPTP
                                     ├── s2   the same; gives its public address as far end
                                     └── web  answers with the address that it sees

The router is the VM itself.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.vm.inside.netns import kill_processes, sh

WEB: Final = "192.0.2.2"
SERVERS: Final = {"s1": "198.51.101.10", "s2": "198.51.102.10"}
FAR_ENDS: Final = {"s1": "192.168.101.1", "s2": "198.51.102.10"}
WANS: Final = {"wan1": "10.1.0.2", "wan2": "10.2.0.2"}
DNS: Final = {"s1": "192.168.101.1", "s2": "192.168.102.53"}

PASSWORD: Final = "pa\"ss 'w\\ord#$(reboot);é @/x"
SECRET: Final = "se\"cret 'with\\ all#$ of;ü{}"

RUN: Final = Path("/run/vm")

_IKE: Final = "aes256-sha256-modp2048,aes128-sha1-modp1024"
_ESP: Final = "aes256-sha256,aes128-sha1"
"""The encryptions that servers take."""

_MODULES: Final = (
    *("l2tp_ppp", "ppp_generic", "ppp_async", "ppp_mppe", "esp4", "xfrm_user", "veth"),
    # charon uses these at the first association, which loading them would delay.
    *("authenc", "echainiv", "cbc", "hmac", "sha1_generic", "sha256_generic"),
    *("sha512_generic", "md5", "des_generic", "gcm", "ctr", "seqiv", "ghash-generic"),
    *("nf_tables", "nft_chain_nat", "nft_tproxy", "nft_fib_inet", "nft_ct", "nft_masq"),
    *("nft_reject_inet", "nf_conntrack_netlink"),
    # A table is loaded anew for each module that it lacks, and asks for all that it lacks each
    # time.
    *("nft_nat", "nft_hash", "nft_limit", "nft_connlimit", "nft_socket", "nft_numgen"),
    *("nft_fwd_netdev", "tcp_diag", "udp_diag", "drbg", "jitterentropy_rng", "sha3_generic"),
    *("sch_ingress", "cls_bpf"),
)


def build() -> None:
    """Make the namespaces, addresses and routes."""
    subprocess.run(["modprobe", "-aq", *_MODULES], check=False)
    RUN.mkdir()
    sh(
        "ip link set lo up; for n in isp client; do ip netns add $n; "
        "ip -n $n link set lo up; done; "
        "ip netns exec isp sysctl -qw net.ipv4.ip_forward=1"
    )
    for wan, address in WANS.items():
        number = wan[-1]
        sh(
            f"ip link add {wan} type veth peer name r{number} netns isp; "
            f"ip address add {address}/24 dev {wan}; ip link set {wan} up; "
            f"ip -n isp address add 10.{number}.0.1/24 dev r{number}; "
            f"ip -n isp link set r{number} up; "
            f"ip route add default via 10.{number}.0.1 dev {wan} metric {number}00"
        )
    for name, address in (*SERVERS.items(), ("web", WEB)):
        attach(name, address)
    for name, address in SERVERS.items():
        sh(f"ip -n isp route add {pool(name)}.0/24 via {address}")
    sh(
        "ip link add lan0 type veth peer name eth0 netns client; "
        "ip address add 10.77.0.1/24 dev lan0; ip link set lan0 up; "
        # Lines' clients have addresses of their own, from 10.77.0.11 on.
        "ip -n client link set eth0 up; ip -n client address add 10.77.0.9/24 dev eth0; "
        "ip -n client route add default via 10.77.0.1"
    )


def attach(name: str, address: str) -> None:
    """Make a namespace that the ISP reaches by this address, and that forwards packets."""
    gateway = address.rpartition(".")[0] + ".1"
    sh(
        f"ip netns add {name}; ip -n {name} link set lo up; "
        f"ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1; "
        f"ip -n isp link add to-{name} type veth peer name eth0 netns {name}; "
        f"ip -n isp address add {gateway}/24 dev to-{name}; ip -n isp link set to-{name} up; "
        f"ip -n {name} address add {address}/24 dev eth0; ip -n {name} link set eth0 up; "
        f"ip -n {name} route add default via {gateway}"
    )


def pool(server: str) -> str:
    """Return the first three numbers of the addresses that a server hands out."""
    return f"192.168.10{server[-1]}"


def start_server(name: str, users: Mapping[str, str]) -> None:
    """Start a server's daemons. `users`: user name -> the address it gets."""
    folder = RUN / name
    (folder / "ppp").mkdir(parents=True, exist_ok=True)
    (folder / "run").mkdir(exist_ok=True)
    for file, content in _files(name, users).items():
        (folder / file).write_text(content)
    (folder / "ppp" / "ip-up").chmod(0o755)
    spawn = ["ip", "netns", "exec", name, "unshare", "-m", "sh", "-c"]
    private = f"mount --bind {folder}/ppp /etc/ppp; mount --bind {folder}/run /run/xl2tpd; "
    Path("/run/xl2tpd").mkdir(exist_ok=True)
    for program, argv in (
        ("xl2tpd", f"xl2tpd -D -c {folder}/xl2tpd.conf -p {folder}/x.pid -C {folder}/control"),
        ("pptpd", f"pptpd -f -c {folder}/pptpd.conf -p {folder}/p.pid -o {folder}/options.pptp"),
        ("charon", "charon-systemd"),
    ):
        with (folder / f"{program}.log").open("ab") as output:
            subprocess.Popen(
                [*spawn, f"{private} exec {argv}"],
                env={"PATH": os.environ["PATH"], "STRONGSWAN_CONF": f"{folder}/strongswan.conf"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    for _ in range(300):
        if (folder / "vici").exists():
            break
        time.sleep(0.1)
    sh(f"swanctl --load-all --file {folder}/swanctl.conf --uri unix://{folder}/vici")


def stop_server(name: str) -> None:
    """End all processes of the server at once, and its IPsec state, too."""
    kill_processes(name)
    sh(f"ip -n {name} xfrm state flush; ip -n {name} xfrm policy flush")
    (RUN / name / "vici").unlink(missing_ok=True)


def readdress(wan: str, gone: str, here: str, *, is_lapsed: bool) -> None:
    """Give a WAN another address with its link up. If `is_lapsed`, the old one goes first, as after
    an expired lease; else it goes last.
    """
    number = wan[-1]
    steps = [f"address del {gone}/24 dev {wan}", f"address add {here}/24 dev {wan}"]
    if not is_lapsed:
        steps.reverse()
        # As systemd sets it: the new address stays when the old one goes.
        sh(f"sysctl -qw net.ipv4.conf.{wan}.promote_secondaries=1")
    steps.append(f"route replace default via 10.{number}.0.1 dev {wan} metric {number}00")
    batch = "\n".join(steps)
    sh(f"ip -batch - <<END\n{batch}\nEND")


def end_association(name: str, client_port: int) -> None:
    """End the server's IPsec association with one UDP port of a client, and no other."""
    uri = f"unix://{RUN / name}/vici"
    listed = sh(f"swanctl --list-sas --raw --uri {uri}")
    # This is a child's number, and in the same braces its traffic.
    names = rf"({client_port}|{_service(client_port)})"
    found = re.search(rf"uniqueid=(\d+) reqid=[^}}]*udp/{names}\]", listed)
    assert found, f"{name} has no association with port {client_port}: {listed}"
    sh(f"swanctl --terminate --child-id {found[1]} --force --timeout 2 --uri {uri}")


def _service(port: int) -> str:
    """Return charon's name of a UDP port: three of the lines' ports have a name in services(5)."""
    try:
        return re.escape(socket.getservbyport(port, "udp"))
    except OSError:
        return str(port)


class Account(NamedTuple):
    """A user that a server accepts, and the user's address."""

    username: str
    password: str
    address: str


def let_in(name: str, accounts: Iterable[Account], secret: str) -> None:
    """Let a server accept these users and this secret from now on, and no others."""
    folder = RUN / name
    (folder / "ppp" / "chap-secrets").write_text(_accounts(accounts))
    (folder / "swanctl.conf").write_text(_swanctl(name, secret))
    sh(f"swanctl --load-creds --clear --file {folder}/swanctl.conf --uri unix://{folder}/vici")


def take(name: str, ike: str = _IKE, esp: str = _ESP, *, renewed_s: int = 0) -> None:
    """From now on a server takes these encryptions, and renews its keys first after some time."""
    path = RUN / name / "swanctl.conf"
    path.write_text(_swanctl(name, SECRET, ike, esp, renewed_s))
    sh(f"swanctl --load-conns --file {path} --uri unix://{RUN / name}/vici")


def _accounts(accounts: Iterable[Account]) -> str:
    def word(text: str) -> str:
        return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'

    return "".join(
        f"{word(one.username)} * {word(one.password)} {one.address}\n" for one in accounts
    )


def _swanctl(name: str, secret: str, ike: str = _IKE, esp: str = _ESP, renewed_s: int = 0) -> str:
    address = SERVERS[name]
    renewed = f" rekey_time = {renewed_s}s\n life_time = 1h\n rand_time = 0s\n" if renewed_s else ""
    return (
        f"connections {{\n l2tp {{\n version = 1\n local_addrs = {address}\n"
        f" proposals = {ike}\n unique = never\n"
        f" local {{\n auth = psk\n id = {address}\n }}\n remote {{\n auth = psk\n }}\n"
        " children {\n l2tp {\n mode = transport\n local_ts = dynamic[udp/1701]\n"
        f" remote_ts = dynamic[udp]\n esp_proposals = {esp}\n{renewed}"
        " dpd_action = clear\n }\n }\n dpd_delay = 10s\n }\n}\n"
        f"secrets {{\n ike-1 {{\n secret = 0x{secret.encode().hex()}\n }}\n}}\n"
    )


def _files(name: str, users: Mapping[str, str]) -> dict[str, str]:
    folder, address = RUN / name, SERVERS[name]
    common = (
        "name vpn\nauth\nnodefaultroute\nrequire-mschap-v2\nlcp-echo-interval 10\n"
        f"lcp-echo-failure 6\nms-dns {DNS[name]}\n"
    )
    return {
        "ppp/chap-secrets": _accounts(Account(user, PASSWORD, ip) for user, ip in users.items()),
        "ppp/options": "",
        # A user's new call replaces one whose end the server has not noticed.
        "ppp/ip-up": '#!/bin/sh\nexec ip route replace "$5" dev "$1"\n',
        "xl2tpd.conf": (
            f"[global]\nlisten-addr = {address}\n[lns default]\n"
            f"ip range = {pool(name)}.100-{pool(name)}.199\nlocal ip = {FAR_ENDS[name]}\n"
            f"require authentication = yes\nname = vpn\npppoptfile = {folder}/options.l2tp\n"
        ),
        "options.l2tp": f"{common}noccp\nmtu 1400\nmru 1400\nlogfile {folder}/ppp-l2tp.log\n",
        "options.pptp": f"{common}require-mppe-128\nlogfile {folder}/ppp-pptp.log\n",
        "pptpd.conf": (
            f"option {folder}/options.pptp\nlisten {address}\nlocalip {FAR_ENDS[name]}\n"
            f"remoteip {pool(name)}.200-230\n"
        ),
        "strongswan.conf": (
            "charon-systemd {\n install_routes = no\n"
            " load = random nonce aes sha1 sha2 md5 hmac kdf openssl gmp kernel-netlink "
            "socket-default vici\n"
            " journal {\n default = -1\n }\n"
            " filelog {\n stderr {\n default = 1\n }\n }\n"
            f" plugins {{\n vici {{\n socket = unix://{folder}/vici\n }}\n }}\n}}\n"
        ),
        "swanctl.conf": _swanctl(name, SECRET),
    }
