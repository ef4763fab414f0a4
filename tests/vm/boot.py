"""Boots a Debian kernel under QEMU over this machine's own files, to run a module in it.

The kernel of the package ``linux-image-amd64`` has parts that containers and small virtual machines
often lack: PPP, L2TP, MPPE, ESP. virtme-ng makes an initramfs that mounts the host's files over 9p,
read-only; writable files are in memory, except for one folder that is written through.

virtme-ng's own init starts udev, and its mounts are not cached: without KVM that makes a program's
start take seconds. So the machine has an init of its own, and sees the host's files by a second
mount, which relies on their not changing.
"""

from __future__ import annotations

import compileall
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.vm.inside import makes

DONE: Final = "done"

ROOT: Final = Path(__file__).resolve().parent.parent.parent

_QEMU: Final = "qemu-system-x86_64"
_PROGRAMS: Final = {
    _QEMU: "qemu-system-x86",
    "busybox": "busybox-static",
    "xl2tpd": "xl2tpd",
    "pppd": "ppp",
    "pptp": "pptp-linux",
    "pptpd": "pptpd",
    "charon-systemd": "charon-systemd",
    "swanctl": "strongswan-swanctl",
}
"""Program -> the Debian package that contains it."""

EMULATED_CPU: Final = "max,-erms,-fsrm,-la57,-smap,-smep,-pku"
"""QEMU's processor without KVM: it has the features of the latest processors, except those that
cost an emulator time. These are loops of one instruction for each byte (ERMS, FSRM), a fifth level
of page tables, and protections that are checked at each access to memory.
"""

NINE_P: Final = "version=9p2000.L,trans=virtio,access=any,msize=524288"

_INIT: Final = """\
#!/bin/sh
mount -t proc proc /proc
mount -t 9p -o ro,cache=loose,{ninep} cached /mnt
mount -t proc proc /mnt/proc
mount -t sysfs sys /mnt/sys
mount -t devtmpfs dev /mnt/dev
mkdir -p /mnt/dev/pts /mnt/dev/shm
mount -t devpts pts /mnt/dev/pts
mount -o bind /mnt{root} /mnt/mnt
mount -t tmpfs run /mnt/run
mount -t tmpfs tmp /mnt/tmp
mkdir -p /mnt/run/netns /mnt{shared} /mnt{root}
mount -o bind /mnt/mnt /mnt{root}
mount -t 9p -o rw,{ninep} shared /mnt{shared}
# Not in a child: the kernel starts modprobe in the root of its first process.
exec chroot /mnt sh -c 'sh {shared}/inside > {shared}/output 2>&1; echo o > /proc/sysrq-trigger
    sleep 60'
"""

_INSIDE: Final = """\
cd {root}
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH={root}/src:{root}/lab/src
exec {python} -m {module} {shared} {arguments}
"""


def kernel() -> Path:
    """Return the newest Debian kernel. Skip (fail in CI) if a requirement of the VM is missing."""
    wanted = list(missing())
    if not wanted:
        return _kernels()[-1]
    reason = f"the VM suite did not run: it needs {', '.join(wanted)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def missing() -> Iterator[str]:
    """Yield the requirements that this machine lacks."""
    if os.geteuid() != 0:
        yield "root"
    packages = makes.absent(_PROGRAMS)
    packages += [] if _kernels() else ["linux-image-amd64"]
    if packages:
        yield f"the packages {' '.join(packages)} (script/setup --dev)"
    yield from makes.missing()
    if not _mkinitramfs().exists():
        yield "virtme-ng (script/setup --dev)"


def _kernels() -> list[Path]:
    return sorted(Path("/boot").glob("vmlinuz-*-amd64"), key=lambda path: path.stat().st_mtime)


def _mkinitramfs() -> Path:
    return Path(sys.executable).with_name("virtme-mkinitramfs")


def run(
    module: str, shared: Path, *arguments: str, timeout_s: float, is_leaping: bool = False
) -> str:
    """Run ``python -m MODULE SHARED ARGUMENTS`` in the machine, and return its console's output.

    `shared` is the folder that is written through. The machine keeps nothing else, and is switched
    off as soon as the module has made `DONE` there. With `is_leaping`, the clock of an emulated
    machine leaps while nothing runs (see `inside.clock`). Raises subprocess.TimeoutExpired after
    `timeout_s`: of processor time if the machine is emulated, since others may leave it little.
    """
    # The guest cannot store compiled modules, and would compile all of them at each run.
    for folder in ("src", "lab/src", "tests/vm"):
        compileall.compile_dir(ROOT / folder, quiet=2)
    init, initramfs = shared / "init", shared / "initramfs"
    init.write_text(_INIT.format(ninep=NINE_P, shared=shared, root=ROOT))
    init.chmod(0o755)
    inside = _INSIDE.format(
        root=ROOT,
        python=sys.executable,
        module=module,
        shared=shared,
        arguments=shlex.join(arguments),
    )
    (shared / "inside").write_text(inside)
    image = kernel()
    version = image.name.removeprefix("vmlinuz-")
    subprocess.run(
        [str(_mkinitramfs()), "--mod-kversion", version, "--outfile", str(initramfs)], check=True
    )
    console = shared / "console"
    with console.open("wb") as output:
        argv = _command(image, shared, is_leaping=is_leaping)
        machine = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            spent_s = partial(_processor_s, machine) if is_emulated() else time.monotonic
            deadline = spent_s() + timeout_s
            while machine.poll() is None and not (shared / DONE).exists():
                if spent_s() > deadline:
                    raise subprocess.TimeoutExpired(machine.args, timeout_s)
                time.sleep(0.5)
        finally:
            if machine.poll() is None:
                machine.send_signal(signal.SIGKILL)
                machine.wait()
    said = shared / "output"
    return said.read_text(errors="replace") if said.exists() else console.read_text("latin-1")


def _processor_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time of a process that is not reaped, in seconds (proc_pid_stat(5))."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_emulated() -> bool:
    """True if there is no KVM for it.

    A ``/dev/kvm`` of a processor that cannot run machines itself (the kernel's ``kvm_pvm``) only
    runs kernels that were made for it.
    """
    flags = set(Path("/proc/cpuinfo").read_text().split())
    return not (flags & {"vmx", "svm"} and os.access("/dev/kvm", os.R_OK | os.W_OK))


def _processor(*, is_leaping: bool) -> list[str]:
    """Return QEMU's options: KVM if the processor itself can run machines, else emulation.

    An emulated machine's clock counts its instructions, a billion a second, so it measures the
    times of one slow processor, independent of this machine's load. While it is idle, it counts
    real time, or, with `is_leaping`, is set to its next timer at once (QEMU's manual, ``-icount``).
    """
    if not is_emulated():
        return ["-accel", "kvm", "-cpu", "host", "-smp", "2"]
    count = f"shift=0,sleep={'off' if is_leaping else 'on'}"
    emulated = ("-accel", "tcg,thread=single", "-icount", count, "-rtc", "clock=vm")
    return [*emulated, "-cpu", EMULATED_CPU, "-smp", "1"]


def kernel_parameters() -> str:
    """Return the parameters that the kernels of all machines have.

    Separate page tables for kernel and programs would make each system call of an emulated machine
    very slow. QEMU keeps translated code by its address, so programs and libraries are at the same
    addresses each time; and the kernel clears and copies pages by unrolled loops.
    """
    emulated = " norandmaps clearcpuid=rep_good" if is_emulated() else ""
    return f"console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off{emulated}"


def folders(shared: Path) -> list[str]:
    """Return QEMU's options for this machine's files, by two tags, and for the writable
    `shared`.
    """
    return [
        *folder("/dev/root", Path("/"), ",readonly=on"),
        *folder("cached", Path("/"), ",readonly=on"),
        *folder("shared", shared),
    ]


def folder(tag: str, path: Path, access: str = "") -> list[str]:
    """Return QEMU's options for a folder of this machine, which is mounted by `tag`."""
    name = tag.rpartition("/")[2]
    backend = f"local,id={name},path={path},security_model=none,multidevs=remap{access}"
    return ["-fsdev", backend, "-device", f"virtio-9p-pci,fsdev={name},mount_tag={tag}"]


def _command(image: Path, shared: Path, *, is_leaping: bool) -> list[str]:
    # Other tests have to keep time; an emulated machine's clock waits for it. But it has to end
    # beside other programs, too.
    polite = ["nice", "-n", "5"] if is_emulated() else []
    return [
        *polite,
        _QEMU,
        *_processor(is_leaping=is_leaping),
        *("-m", "2G", "-display", "none", "-vga", "none", "-net", "none"),
        *("-serial", "stdio", "-no-reboot"),
        *folders(shared),
        *("-kernel", str(image), "-initrd", str(shared / "initramfs")),
        "-append",
        f"{kernel_parameters()} init={shared}/init",
    ]
