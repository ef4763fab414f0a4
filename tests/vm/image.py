"""Disks from which emulated machines boot a Debian release by themselves, with its own kernel.

The files are those of `packages.root_of`, with the release's kernel and the packages that egressd
depends on, made into an ext4 file system natively, once: an emulated machine would take many
minutes to install them. The initramfs is busybox with the modules that mount the disk.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from egressd.model.errors import Failed
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, LabSpec, wan_plans
from tests.support.box import CONFIGURATION
from tests.support.packages import dependencies, locked, root_of
from tests.vm import boot
from tests.vm.machine import NETWORK_UNIT, filled

LAB: Final = LabSpec(nodes=("socks5",), clients=3, wans=1)
"""The lab whose router the machine is."""
DISK_BYTES: Final = 6 * 2**30
SHARED: Final = "/srv/shared"
"""The machine's name of the folder that it shares with this side."""
REPOSITORY: Final = "/srv/apt"
"""The machine's name of the repository of egressd's packages."""

_PACKAGES: Final = ("linux-image-amd64", "pptpd")
"""Packages that such a machine has, too: a kernel, the modprobe that it starts, and a server."""
_MODULES: Final = (
    *("crc32c_generic", "ext4", "virtio_pci", "virtio_blk", "virtio_net"),
    *("9pnet_virtio", "9p"),
)

_INIT: Final = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in $($b cat /order); do $b insmod /modules/$module; done
$b mount -t ext4 /dev/vda /root
$b mount -t 9p -o rw,{ninep} shared /root{shared}
$b mount -t 9p -o ro,{ninep} repository /root{repository}
$b umount /proc
$b mount --move /dev /root/dev
exec $b switch_root /root /lib/systemd/systemd
"""

_PREPARE: Final = (
    """\
set -e
mkdir -p {shared} {repository} /etc/egressd
mkdir -p /etc/systemd/system/sysinit.target.wants /etc/systemd/system/multi-user.target.wants
echo nameserver {resolver} > /etc/resolv.conf
cat > /etc/network-of-others <<END
set -e
ip link set eth0 name lan0
ip link set lan0 up
ip address add {lan}/24 dev lan0
ip link set eth1 name wan1
ip link set wan1 up
ip address add {wan} dev wan1
ip route add default via {gateway}
END
"""
    + NETWORK_UNIT.replace("{shared}/network", "/etc/network-of-others")
    + """\
[Install]
WantedBy=sysinit.target
END
cat > /etc/systemd/system/driver.service <<END
[Unit]
After=network.target
[Service]
Type=exec
ExecStart=/bin/sh {shared}/driver
StandardOutput=append:{shared}/said
StandardError=append:{shared}/said
[Install]
WantedBy=multi-user.target
END
ln -sf ../network-of-others.service /etc/systemd/system/sysinit.target.wants/
ln -sf ../driver.service /etc/systemd/system/multi-user.target.wants/
echo net.ipv4.ip_forward=1 > /etc/sysctl.d/99-of-others.conf
echo "deb [trusted=yes] file:{repository} {suite} main" > /etc/apt/sources.list.d/egressd.list
cat > /etc/egressd/egressd.toml <<END
{configuration}
END
"""
)

_INSTALL: Final = """\
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
mkdir -p /etc/initramfs-tools
echo update_initramfs=no > /etc/initramfs-tools/update-initramfs.conf
mount -t proc proc /proc
apt-get --yes --quiet --no-install-recommends -oDpkg::Options::=--force-confold install {packages}
"""


class Image(NamedTuple):
    """The disk of a machine, and the kernel and initramfs that it boots with."""

    suite: str
    disk: Path
    kernel: Path
    initramfs: Path


def image_of(suite: str) -> Image:
    """Return the image of a release, made again if anything that it is made of has changed.
    Raises Failed.
    """
    boot.kernel()  # skip here if there is no QEMU
    root = root_of(suite)
    (wan,) = wan_plans(LAB)
    prepare = filled(
        _PREPARE,
        {
            "shared": SHARED,
            "repository": REPOSITORY,
            "suite": suite,
            "resolver": RESOLVERS["device"],
            "lan": LAN_ADDRESS,
            "wan": f"{wan.address}/{wan.prefix}",
            "gateway": wan.gateway,
            "configuration": CONFIGURATION,
        },
    )
    install = filled(_INSTALL, {"packages": " ".join((*_PACKAGES, *dependencies()))})
    made = root / "etc" / "egressd-made"
    parts = (_INIT, *_MODULES, prepare, install, made.read_text(), str(made.stat().st_mtime_ns))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = root.with_name(f"{root.name}-image")
    image = image_in(folder, suite)
    with locked(folder):
        if (folder / "made").exists() and (folder / "made").read_text() == digest:
            return image
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        files = folder / "files"
        _run("make a copy of the root", "cp", "-a", "--reflink=auto", root, files)
        for script in (install, prepare):
            _run("prepare a machine", "unshare", "--mount", "chroot", files, "sh", stdin=script)
        make_image(files, folder)
        shutil.rmtree(files)
        (folder / "made").write_text(digest)
    return image


def image_in(folder: Path, suite: str) -> Image:
    """Return the names of an image's parts in a folder."""
    return Image(suite, folder / "disk", folder / "kernel", folder / "initramfs")


def make_image(files: Path, folder: Path) -> None:
    """Make the parts of an image in `folder`, of a machine's files with a kernel. Raises Failed."""
    image = image_in(folder, "")
    kernel = max((files / "boot").glob("vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    shutil.copyfile(kernel, image.kernel)
    _make_initramfs(files, kernel.name.removeprefix("vmlinuz-"), image.initramfs)
    shutil.rmtree(files / "var/cache/apt/archives", ignore_errors=True)
    with image.disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    _run("make a disk", "mkfs.ext4", "-q", "-F", "-d", files, image.disk)


def _make_initramfs(files: Path, version: str, target: Path) -> None:
    """Make an initramfs that mounts the disk, with modules of a version of the kernel."""
    tree = target.with_name("initramfs.files")
    for name in ("bin", "proc", "dev", "root", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copyfile("/usr/bin/busybox", tree / "bin" / "busybox")
    (tree / "bin" / "busybox").chmod(0o755)
    order = []
    for module in _modules(files, version):
        packed = files / module.lstrip("/")
        name = packed.name.removesuffix(".xz")
        data = packed.read_bytes()
        (tree / "modules" / name).write_bytes(lzma.decompress(data) if ".xz" in module else data)
        order.append(name)
    (tree / "order").write_text("\n".join(order))
    values = {"ninep": boot.NINE_P, "shared": SHARED, "repository": REPOSITORY}
    (tree / "init").write_text(filled(_INIT, values))
    (tree / "init").chmod(0o755)
    pack = f"cd {tree} && find . | busybox cpio -o -H newc > {target}"
    _run("make an initramfs", "sh", "-ec", pack)
    shutil.rmtree(tree)


def _modules(files: Path, version: str) -> Iterable[str]:
    """Return the files of the modules and of those that they need, in the order of loading."""
    found: dict[str, None] = {}
    for name in _MODULES:
        listed = _run(
            "list modules", "chroot", files, "/sbin/modprobe", "--set-version", version,
            "--show-depends", name,
        )  # fmt: skip
        found |= {
            line.split()[1]: None for line in listed.splitlines() if line.startswith("insmod ")
        }
    return found


def _run(what: str, *argv: str | Path, stdin: str = "") -> str:
    """Run a program and return its output. Raises Failed."""
    done = subprocess.run(
        [str(arg) for arg in argv], input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(what, (done.stdout + done.stderr)[-2000:])
    return done.stdout
