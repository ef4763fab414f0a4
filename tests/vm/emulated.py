"""A Debian machine under QEMU with a disk of its own: kernel, boot order and power are real.

Its files are those of a minimal root of a Debian release (`packages.root_of`), read by 9p, with an
overlay above them on the disk, an ext4 file system. Thus the machine can boot again, and loses at a
power cut what had not reached the disk. The kernel is this machine's Debian kernel. The network
cards end in the namespace of `tests.vm.machine.side`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from egressd.model.errors import Failed
from egressd_lab import netns
from tests.support.packages import root_of
from tests.vm import boot
from tests.vm.machine import (
    CONFIGURE,
    GATEWAY_MAC,
    NETWORK,
    NETWORK_UNIT,
    Side,
    filled,
    make_initramfs,
    options,
)

DISK_BYTES: Final = 3 * 2**30
PATIENCE_S: Final = 1800.0
"""Seconds for each step: without KVM everything takes 20 to 50 times as long."""

_SHARED: Final = "/srv/shared"
"""The machine's name of the folder that it shares with this side."""

_INIT: Final = """\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
modprobe -a overlay virtio_net virtio_blk ext4 crc32c_generic
mount -t tmpfs tmpfs /tmp
mount -t devtmpfs devtmpfs /dev
mkdir /tmp/host /tmp/disk /tmp/new
mount -t 9p -o ro,cache=loose,{ninep} cached /tmp/host
mount -t ext4 /dev/vda /tmp/disk
mkdir -p /tmp/disk/upper /tmp/disk/work
mount -t overlay -o lowerdir=/tmp/host{lower},upperdir=/tmp/disk/upper,workdir=/tmp/disk/work \
    overlay /tmp/new
cd /tmp/new
mkdir -p srv/apt srv/shared lib/modules
mount --bind /tmp/host/lib/modules lib/modules
mount --bind /tmp/host{repository} srv/apt
mount -t 9p -o rw,{ninep} shared srv/shared
chroot . sh /srv/shared/prepare
umount /proc
mount --move . /
exec chroot . /lib/systemd/systemd
"""

_PREPARE: Final = (
    """\
set -e
"""
    + NETWORK_UNIT
    + """\
[Install]
WantedBy=sysinit.target
END
cat > /etc/systemd/system/driver.service <<END
[Unit]
After=network.target
[Service]
Type=exec
ExecStart=/bin/sh /srv/shared/driver
StandardOutput=append:/srv/shared/said
StandardError=append:/srv/shared/said
[Install]
WantedBy=multi-user.target
END
mkdir -p /etc/systemd/system/sysinit.target.wants /etc/systemd/system/multi-user.target.wants
ln -sf ../network-of-others.service /etc/systemd/system/sysinit.target.wants/
ln -sf ../driver.service /etc/systemd/system/multi-user.target.wants/
echo net.ipv4.ip_forward=1 > /etc/sysctl.d/99-of-others.conf
echo "deb [trusted=yes] file:/srv/apt {suite} main" > /etc/apt/sources.list.d/egressd.list
"""
    + CONFIGURE
)

_DRIVER: Final = """\
cd /srv/shared
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
rm -f request answer
touch up
while true; do
    if [ -e request ]; then
        mv request running
        sh -e running > output 2>&1
        echo $? > answer.new
        mv answer.new answer
    fi
    sleep 0.5
done
"""


class Emulated:
    """One machine. A context manager: off on exit. Its disk is in `folder`."""

    def __init__(self, folder: Path, side: Side, suite: str, repository: Path) -> None:
        self.suite = suite
        self._folder = folder
        self._side = side
        self._shared = folder / "shared"
        self._disk = folder / "disk"
        self._process: subprocess.Popen[bytes] | None = None
        self._shared.mkdir()
        with self._disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._disk], check=True)
        values = {
            "ninep": boot.NINE_P,
            "lower": root_of(suite),
            "repository": repository,
            "suite": suite,
            "shared": _SHARED,
            "gateway_mac": GATEWAY_MAC,
        }
        files = {"init": _INIT, "prepare": _PREPARE, "network": NETWORK, "driver": _DRIVER}
        for name, text in files.items():
            (self._shared / name).write_text(filled(text, values))
        (self._shared / "init").chmod(0o755)
        self._image = boot.kernel()
        make_initramfs(self._shared, self._image)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.power_off()

    def boot(self) -> float:
        """Boot until commands can run, and return the seconds that it took. Raises Failed."""
        (self._shared / "up").unlink(missing_ok=True)
        begun = time.monotonic()
        with (self._folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                netns.exec_argv(self._side.namespace, self._command()),
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        self.wait((self._shared / "up").exists, "boot")
        return time.monotonic() - begun

    def power_off(self) -> None:
        """Cut the power."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def wait(self, check: Callable[[], bool], what: str) -> None:
        """Wait until `check` holds. Raises Failed."""
        deadline = time.monotonic() + PATIENCE_S
        while not check():
            console = (self._folder / "console").read_text("latin-1")[-2000:]
            if self._process is None or self._process.poll() is not None:
                raise Failed(what, f"the machine went off: {console}")
            if time.monotonic() > deadline:
                raise Failed(what, f"not within {PATIENCE_S:.0f} s: {console}")
            time.sleep(0.2)

    def request(self, script: str) -> None:
        """Have the machine run a shell script, in the background."""
        (self._shared / "answer").unlink(missing_ok=True)
        draft = self._shared / "draft"
        draft.write_text(script)
        draft.rename(self._shared / "request")

    def run(self, script: str) -> str:
        """Run a shell script in the machine, and return its output. Raises Failed."""
        self.request(script)
        answer = self._shared / "answer"
        self.wait(answer.exists, f"run `{script}`")
        output = (self._shared / "output").read_text(errors="replace")
        if answer.read_text().strip() != "0":
            raise Failed(f"run `{script}`", output)
        return output

    def marked(self, name: str) -> bool:
        """True if a script in the machine has made the file NAME in ``/srv/shared``."""
        return (self._shared / name).exists()

    def _command(self) -> list[str]:
        is_slow = boot.is_emulated()
        processor = ("tcg,thread=multi", "max") if is_slow else ("kvm", "host")
        return [
            *(("nice", "-n", "10") if is_slow else ()),
            *("qemu-system-x86_64", "-accel", processor[0], "-cpu", processor[1], "-m", "1G"),
            *("-drive", f"file={self._disk},if=virtio,format=raw,cache=writeback"),
            *options(self._shared, self._image),
        ]
