"""A Debian machine under QEMU in the router of a lab: kernel, disk, boot and power cut are real.

It boots a copy of an `image.Image`. Thus it can boot again, and loses at a power cut what had not
reached the disk. The router's namespace only joins the machine's cards to the LAN and the WAN.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd_lab import netns
from egressd_lab.lab import Lab
from tests.support.box import ENVIRONMENT, Box
from tests.vm import boot
from tests.vm.image import SHARED, Image
from tests.vm.machine import options

PATIENCE_S: Final = 1800.0
"""Seconds for each step: without KVM everything takes 10 to 50 times as long."""

_CARDS: Final = """\
ip address flush dev lan0
ip address flush dev wan1
ip link add wan type bridge mcast_snooping 0
ip link set wan1 master wan
ip link set wan up
for tap in lan0:lan-card wan:wan-card; do
    ip tuntap add dev ${tap#*:} mode tap
    ip link set ${tap#*:} master ${tap%:*} up
done
"""
"""Joins the machine's cards to the bridge of the LAN, and by another bridge to the WAN."""

_DRIVER: Final = """\
cd {shared}
rm -f request answer
touch up
while true; do
    if [ -e request ]; then
        mv request running
        env -i {environment} sh running < stdin > output 2>&1
        echo $? > answer.new
        mv answer.new answer
    fi
    sleep 0.2
done
"""
"""Runs what the other side asks for."""


class Emulated(Box):
    """One machine. Its disk is in `folder`, which is removed in the end."""

    START_S = PATIENCE_S

    def __init__(self, folder: Path, lab: Lab, image: Image, repository: Path) -> None:
        super().__init__(image.suite, lab.client(3).host)
        self._folder = folder
        self._router = lab.router
        self._image = image
        self._repository = repository
        self._shared = folder / "shared"
        self._disk = folder / "disk"
        self._process: subprocess.Popen[bytes] | None = None
        self._shared.mkdir(parents=True)
        environment = shlex.join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        driver = _DRIVER.replace("{shared}", SHARED).replace("{environment}", environment)
        (self._shared / "driver").write_text(driver)
        copy = ("cp", "--sparse=always", "--reflink=auto", image.disk, self._disk)
        subprocess.run(copy, check=True)

    def __exit__(self, *_: object) -> None:
        self.power_off()
        shutil.rmtree(self._folder, ignore_errors=True)

    def boot(self) -> None:
        """Boot, and wait until commands can run. Raises Failed."""
        (self._shared / "up").unlink(missing_ok=True)
        self._router.run("sh", "-ec", f"[ -e /sys/class/net/lan-card ] || {{ {_CARDS} }}")
        begun = time.monotonic()
        with (self._folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                netns.exec_argv(self._router.namespace, self._command()),
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        self.wait((self._shared / "up").exists, "boot", PATIENCE_S)
        print(f"{self.suite}: booted in {time.monotonic() - begun:.0f} s")

    def power_off(self) -> None:
        """Cut the power."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def switch_off(self) -> Path:
        """Shut down in order, and return the disk."""
        process = self._process
        assert process is not None
        with suppress(Failed):  # it may go off before it answers
            self.run("systemctl", "poweroff")
        process.wait(PATIENCE_S)
        return self._disk

    def mount(self, tag: str, folder: str) -> None:
        """Mount a folder of this side's; the tag ``checkout`` is that of this checkout."""
        self.run("mkdir", "-p", folder)
        self.run("mount", "-t", "9p", "-o", f"ro,{boot.NINE_P}", tag, folder)

    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def console(self) -> str:
        """Return the end of what was written to the console."""
        return (self._folder / "console").read_text("latin-1")[-2000:]

    def try_(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command; its output has errors in it."""
        answer, draft = self._shared / "answer", self._shared / "draft"
        answer.unlink(missing_ok=True)
        (self._shared / "stdin").write_text(stdin)
        draft.write_text(shlex.join(argv))
        draft.rename(self._shared / "request")
        self.wait(answer.exists, f"run `{shlex.join(argv)}`", PATIENCE_S)
        output = (self._shared / "output").read_text(errors="replace")
        return subprocess.CompletedProcess(argv, int(answer.read_text()), output)

    def _command(self) -> list[str]:
        is_slow = boot.is_emulated()
        processor = ("tcg,thread=multi", boot.EMULATED_CPU) if is_slow else ("kvm", "host")
        return [
            *(("nice", "-n", "10") if is_slow else ()),
            *("qemu-system-x86_64", "-accel", processor[0], "-cpu", processor[1], "-m", "1G"),
            *("-drive", f"file={self._disk},if=virtio,format=raw,cache=writeback"),
            *boot.folder("shared", self._shared),
            *boot.folder("repository", self._repository, ",readonly=on"),
            *boot.folder("checkout", boot.ROOT, ",readonly=on"),
            *options(self._image.kernel, self._image.initramfs, cards=("lan-card", "wan-card")),
        ]
