"""A whole machine under systemd with egressd installed, and its neighbours on this side.

The kernel and the files are those of `tests.vm.boot`; over the files lies an overlay in memory, so
that the machine can be set up as an administrator would do: units, configuration, a network that
other software brings up, forwarding that ``/etc/sysctl.d`` switches on. Its two network cards end
in a namespace here, where clients flood and the WAN is captured.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from egressd_lab import netns, ownership
from egressd_lab.capture import Capture
from egressd_lab.client import Client
from egressd_lab.host import Host
from egressd_lab.spec import Place
from tests.vm import boot

LAN_MAC: Final = "52:54:00:00:00:01"
WAN_MAC: Final = "52:54:00:00:00:02"
GATEWAY_MAC: Final = "52:54:00:00:00:fe"
UNRULED: Final = "10.99.0.11"
RULED: Final = "10.99.0.12"

_INIT: Final = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
modprobe -a overlay virtio_net
mount -t tmpfs tmpfs /tmp
mkdir /tmp/lower /tmp/upper /tmp/work /tmp/new
mount -t 9p -o ro,cache=loose,{ninep} cached /tmp/lower
mount -t overlay -o lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work overlay /tmp/new
mount -t tmpfs tmpfs /tmp/new/tmp
mkdir -p /tmp/new{shared}
mount -t 9p -o rw,{ninep} shared /tmp/new{shared}
chroot /tmp/new sh {shared}/prepare
umount /proc
cd /tmp/new
mount --move . /  # in a mere chroot no unit could have a user namespace
exec chroot . /lib/systemd/systemd
"""

CONFIGURE: Final = """\
mkdir -p /etc/egressd
cat > /etc/egressd/egressd.toml <<END
[lan]
interfaces = ["eth0"]
[wan]
interfaces = ["eth1"]
[dns]
device = ["203.0.113.53"]
[engine]
workers = 1
END
"""
"""The part of a machine's preparation that writes egressd's configuration."""

NETWORK_UNIT: Final = """\
cat > /etc/systemd/system/network-of-others.service <<END
[Unit]
DefaultDependencies=no
After=network-pre.target systemd-sysctl.service
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {shared}/network
"""
"""The beginning of the part that has another program bring the network up."""

_PREPARE: Final = (
    """\
set -e
rm -rf /etc/systemd/system/* /etc/fstab /var/lib/egressd /.dockerenv
mkdir -p /etc/systemd/system/multi-user.target.wants /etc/systemd/system/sysinit.target.wants
chmod 755 /root  # the interpreter may lie there, and the api is nobody
echo 0123456789abcdef0123456789abcdef > /etc/machine-id
"""
    + CONFIGURE
    + """\
echo net.ipv4.ip_forward=1 > /etc/sysctl.d/99-somebody.conf
"""
    + NETWORK_UNIT
    + """\
END
ln -s ../network-of-others.service /etc/systemd/system/sysinit.target.wants/
cat > /etc/systemd/system/driver.service <<END
[Unit]
After=network.target
[Service]
Type=oneshot
ExecStart=/bin/sh {shared}/driver
StandardOutput=file:{shared}/driver.log
StandardError=file:{shared}/driver.log
END
ln -s ../driver.service /etc/systemd/system/multi-user.target.wants/
# What an emulated machine would spend its time on.
for unit in getty.target serial-getty@ttyS0.service systemd-logind.service timers.target \
    systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service systemd-sysusers.service \
    systemd-udevd.service systemd-udev-trigger.service systemd-journal-flush.service \
    systemd-modules-load.service systemd-random-seed.service systemd-update-utmp.service \
    kmod-static-nodes.service modprobe@.service systemd-binfmt.service cryptsetup.target \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount remote-fs.target; do
    ln -sf /dev/null /etc/systemd/system/$unit
done
for unit in egressd-guard egressd-block egressd-netd egressd-api; do
    sed "s#@ROOT@#{root}#g; s#ProtectHome=read-only##" {root}/packaging/systemd/$unit.service \\
        > /etc/systemd/system/$unit.service
    if [ {installed} = yes ]; then
        ln -s ../$unit.service /etc/systemd/system/multi-user.target.wants/
    fi
done
"""
)

NETWORK: Final = """\
set -e
ip link set eth0 up
ip address add 10.99.0.1/24 dev eth0
ip link set eth1 up
ip address add 198.51.100.2/30 dev eth1
ip neighbour replace 198.51.100.1 lladdr {gateway_mac} dev eth1 nud permanent
ip route add default via 198.51.100.1
"""
"""The script that brings the network up."""
_NETWORK_DONE: Final = 'echo "network is up" > {shared}/network.done\n'


class Machine:
    """One boot. `driver` is the shell script that runs once all is up; then the machine
    powers off.
    """

    def __init__(self, shared: Path, side: Side, driver: str, *, installed: bool) -> None:
        self._shared = shared
        self._side = side
        self._driver = driver
        self._installed = installed
        self.console = shared / "console"

    def run(self, timeout_s: float) -> str:
        """Boot, wait until the machine is off, and return the driver's output. Kill the machine
        after `timeout_s`.
        """
        text = {
            "shared": self._shared,
            "ninep": boot.NINE_P,
            "root": boot.ROOT,
            "installed": "yes" if self._installed else "no",
            "gateway_mac": GATEWAY_MAC,
        }
        files = {
            "init": _INIT,
            "prepare": _PREPARE,
            "network": NETWORK + _NETWORK_DONE,
            "driver": self._driver,
        }
        for name, content in files.items():
            (self._shared / name).write_text(filled(content, text))
        (self._shared / "init").chmod(0o755)
        image = boot.kernel()
        make_initramfs(self._shared, image)
        with self.console.open("wb") as output:
            machine = subprocess.Popen(
                netns.exec_argv(self._side.namespace, self._command(image)),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
            try:
                machine.wait(timeout_s)
            finally:
                if machine.poll() is None:
                    machine.send_signal(signal.SIGKILL)
                    machine.wait()
        said = self._shared / "driver.log"
        console = self.console.read_text("latin-1")[-4000:]
        return said.read_text(errors="replace") if said.exists() else f"no driver ran: {console}"

    def _command(self, image: Path) -> list[str]:
        return [
            "qemu-system-x86_64",
            *("-accel", "tcg,thread=multi", "-cpu", boot.EMULATED_CPU, "-m", "2G"),
            *boot.folders(self._shared),
            *options(image, self._shared / "initramfs", f"init={self._shared}/init"),
        ]


def make_initramfs(shared: Path, image: Path) -> None:
    """Make the initramfs of a kernel in a machine's shared folder."""
    make = str(Path(sys.executable).with_name("virtme-mkinitramfs"))
    version = image.name.removeprefix("vmlinuz-")
    target = str(shared / "initramfs")
    subprocess.run([make, "--mod-kversion", version, "--outfile", target], check=True)


def options(
    kernel: Path, initramfs: Path, *parameters: str, cards: tuple[str, str] = ("lan", "wan")
) -> list[str]:
    """Return QEMU's options for a machine with two cards, which end in two taps (qemu-system(1)).
    Its kernel has these parameters, too.
    """

    def card(name: str, mac: str) -> list[str]:
        tap = f"tap,id={name},ifname={name},script=no,downscript=no"
        return ["-netdev", tap, "-device", f"virtio-net-pci,netdev={name},mac={mac},romfile="]

    return [
        *("-smp", "2", "-no-reboot", "-display", "none", "-vga", "none"),
        *("-serial", "stdio", "-monitor", "none"),
        *card(cards[0], LAN_MAC),
        *card(cards[1], WAN_MAC),
        *("-kernel", str(kernel), "-initrd", str(initramfs)),
        "-append",
        " ".join((boot.kernel_parameters(), "no_timer_check net.ifnames=0", *parameters)),
    ]


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return `text` with the values filled in. No format string, since shell uses braces itself."""
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


class Side:
    """The namespace on this side of the machine's cards."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.namespace = host.namespace

    def client(self, address: str) -> Client:
        """Return a client on the LAN."""
        return Client(self.host, Place(name=address, role="outside", address=address))

    def capture(self, *, keep: bool = False) -> Capture:
        """Start a capture of all traffic here. Packets that leave the machine arrive on ``wan``.

        Cards of a machine that is off pass nothing on, so the capture can be proved only by packets
        that the tests send through the machine.
        """
        return self.host.capture(keep=keep)


@contextmanager
def side() -> Iterator[Side]:
    """Make the namespace with both taps, and remove it in the end."""
    name = secrets.token_hex(3)
    folder = netns.RUN_DIR / name
    folder.mkdir(parents=True)
    ownership.note(name, detached=False)
    host = Host(name, "outside", folder)
    try:
        netns.run_ip("netns", "add", host.namespace)
        lines = ["link set lo up"]
        for tap, mac in (("lan", "52:54:00:00:01:01"), ("wan", GATEWAY_MAC)):
            lines += [f"tuntap add dev {tap} mode tap", f"link set {tap} address {mac} up"]
        lines += [
            *(f"address add {address}/24 dev lan" for address in (UNRULED, RULED)),
            f"neighbour replace 10.99.0.1 lladdr {LAN_MAC} dev lan nud permanent",
            "route add default via 10.99.0.1 dev lan",
        ]
        netns.run_ip("-n", host.namespace, batch=lines)
        host.start()
        yield Side(host)
    finally:
        host.close()
        netns.remove_lab(name)
