"""A Debian machine under systemd, as containers are, in the router of a lab.

Its files are those of a minimal root of a Debian release with an overlay above, so that each test
has a machine of its own, which can boot again. Its network is the router's namespace of a lab: LAN,
WANs, and an internet behind them. Packages that egressd depends on are not installed, but lie in
apt's cache: ``apt install`` works as on an operator's machine, without the network.

The kernel is this machine's. What needs another kernel is for `tests.vm`.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from egressd_lab import netns
from egressd_lab.host import Host
from tests.support.box import ENVIRONMENT, Box
from tests.support.packages import root_of

BOOT_S: Final = 120.0
"""Seconds that systemd has to start everything, on a busy machine."""

_BOOT: Final = """\
set -e
mount --make-rprivate /
mkdir -p "$FOLDER/upper" "$FOLDER/work" "$FOLDER/root"
cd "$FOLDER"
mount -t overlay -o "lowerdir=$LOWER,upperdir=$FOLDER/upper,workdir=$FOLDER/work" overlay root
cd root
mkdir -p srv/apt mnt
mount --bind "$REPOSITORY" srv/apt
mount -t proc proc proc
# The network's parameters are the namespace's own; all others are this machine's (sysctl(8)).
mount --bind proc/sys/net proc/sys/net
mount --rbind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
hostname router
pivot_root . mnt
cd /
umount -l /mnt
exec env -i container=egressd-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"""

_FRESH_KERNEL: Final = """\
sysctl -q -w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0  # a kernel starts like this
nft flush ruleset
ip -4 rule flush protocol 230
ip -6 rule flush protocol 230
ip -4 route flush table all protocol 230
ip -6 route flush table all protocol 230
for table in $(ip -6 route show table all protocol 230 | sed 's/.* table //; s/ .*//'); do
    ip -6 route delete unreachable default table $table protocol 230
done
for link in $(ip -o link show type ifb | cut -d: -f2); do ip link delete $link; done
for link in $(ls /sys/class/net); do tc qdisc delete dev $link clsact 2> /dev/null || true; done
"""

_ENTER: Final = """\
mkdir -p "$GROUP"
echo $$ > "$GROUP/cgroup.procs"
exec ip netns exec "$NAMESPACE" unshare --mount --pid --uts --ipc --cgroup --fork \
    --kill-child=KILL sh -c "$BOOT"
"""


class Machine(Box):
    """One machine. A context manager: off, and all of it removed, on exit."""

    def __init__(self, router: Host, suite: str, repository: Path) -> None:
        super().__init__(suite, router)
        self._router = router
        self._repository = repository
        self._folder = netns.RUN_DIR / f"machine-{secrets.token_hex(3)}"
        self._group = _control_groups() / self._folder.name
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.power_off()
        shutil.rmtree(self._folder, ignore_errors=True)

    def boot(self) -> None:
        """Boot, and wait until systemd has started everything. Raises Failed.

        The kernel's network is as after a start of the kernel: without anything of egressd's.
        """
        self._router.run("sh", "-c", _FRESH_KERNEL)
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                ["sh", "-c", _ENTER],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                env={
                    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                    "GROUP": str(self._group),
                    "NAMESPACE": self._router.namespace,
                    "BOOT": _BOOT,
                    "FOLDER": str(self._folder),
                    "LOWER": str(root_of(self.suite)),
                    "REPOSITORY": str(self._repository),
                },
            )  # fmt: skip
        self.wait(self._has_init, "start systemd", BOOT_S)
        self.wait(self._is_up, "boot", BOOT_S)

    def _has_init(self) -> bool:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                self._init = int(child)
                return True
        return False

    def _is_up(self) -> bool:
        said = self.run("systemctl", "is-system-running", check=False).strip()
        return said in ("running", "degraded")

    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def console(self) -> str:
        """Return the end of what was written to the console."""
        return (self._folder / "console").read_text(errors="replace")[-2000:]

    def power_off(self) -> None:
        """Cut the power: nothing gets to end by itself."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None
        deadline = time.monotonic() + 10
        while self._init and Path(f"/proc/{self._init}").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._init = 0
        # Groups of units, deepest first.
        for group in sorted(self._group.rglob("*/"), reverse=True):
            with suppress(OSError):
                group.rmdir()
        with suppress(OSError):
            self._group.rmdir()

    def try_(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command; its output has errors in it."""
        spaces = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--root", "--wd=/")
        environment = (f"{name}={value}" for name, value in ENVIRONMENT.items())
        return subprocess.run(
            ["nsenter", "--target", str(self._init), *spaces, "env", "-i", *environment, *argv],
            input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=900,
        )  # fmt: skip


def _control_groups() -> Path:
    """Return the place of the hierarchy of version 2 (cgroups(7))."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    (place, *_) = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    return place
