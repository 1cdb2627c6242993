"""The guest's kernel, initial RAM disk and root file system, made with mmdebstrap and kept by what they are made from.

Python's own packages come as wheels for the guest's Python, whatever the host's is; the project itself is not in the
image but shared with the guest when it boots.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SUITE = "bookworm"
PYTHON = "3.11"  # the suite's
WHEELS, FONTS = "/opt/wheels", "/opt/matplotlib"  # in the guest; FONTS is where matplotlib keeps what fonts it found
INIT = "/sbin/guest-init"
BOOT_PACKAGES = ("linux-image-amd64", "initramfs-tools", "zstd")  # the cloud kernel has no 9p
MODULES = ("virtio_pci", "virtio_blk", "squashfs", "overlay", "9p", "9pnet_virtio")
NEEDED_BYTES = 3 << 30  # while it is made; 150 MB are left
TOOLS = {"mmdebstrap": "mmdebstrap", "tar2sqfs": "squashfs-tools-ng", "qemu-system-x86_64": "qemu-system-x86"}
EXTRAS = ("pytest>=8.0", "setuptools>=77")  # so that tests, and what provision.sh installs, need no network inside
_UNWANTED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/var/cache/apt/*")
_UNWANTED += ("/lib/modules/*/kernel/drivers/*", "/lib/modules/*/kernel/sound/*")  # most of the kernel, for no device
_WANTED = tuple(f"/lib/modules/*/kernel/drivers/{name}" for name in ("virtio/*", "block/virtio_blk.ko"))
_WANTED += tuple(f"/lib/modules/*/kernel/drivers/net/{name}.ko" for name in ("veth", "ifb", "tun", "dummy", "vrf"))


class GuestError(Exception):
    """There is no guest, or it did not do what it was asked to; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Files that a guest boots from."""

    kernel: Path
    initrd: Path
    root: Path


def packages() -> list[str]:
    """Return the packages of `packages.txt`."""
    lines = (HERE / "packages.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def wheels() -> list[str]:
    """Return what the project and its tests need from Python's package index, with versions."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *EXTRAS]


def recipe() -> str:
    """Return a name for what the image is made from: two images with the same name are interchangeable."""
    parts = [*packages(), *wheels(), Path(__file__).read_text(encoding="utf-8")]
    parts.append((HERE / "guest-init").read_text(encoding="utf-8"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def cache_root() -> Path:
    """Return where images are kept: $BICOASTAL_CACHE, or `bicoastal` in the user's own cache directory."""
    if given := os.environ.get("BICOASTAL_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "bicoastal")


def require_tools() -> None:
    """Raise GuestError, with the packages to install, when a program is missing."""
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        names = " ".join(sorted(TOOLS[name] for name in missing))
        raise GuestError(f"{', '.join(missing)} is missing; apt-get install {names}")
    if os.uname().machine != "x86_64":
        raise GuestError(f"the guest is for x86_64, and this machine is {os.uname().machine}: use Vagrant")


def image(*, time_limit_s: float = 900.0) -> Image:
    """Return the image, made now if there is none of this recipe. Raises GuestError.

    Another process that makes the same one meanwhile does no harm: the first that is ready wins.
    """
    require_tools()
    directory = cache_root() / f"guest-{recipe()}"
    if not directory.is_dir():
        cache_root().mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(cache_root()).free < NEEDED_BYTES:
            raise GuestError(f"{cache_root()}: less than {NEEDED_BYTES >> 30} GB of disk are free to make the guest in")
        with tempfile.TemporaryDirectory(prefix="making-", dir=cache_root()) as temporary:
            made = Path(temporary, "image")
            made.mkdir()
            _make(made, Path(temporary), time_limit_s)
            try:
                made.rename(directory)
            except OSError:
                if not directory.is_dir():
                    raise
    return Image(kernel=directory / "vmlinuz", initrd=directory / "initrd.img", root=directory / "root.squashfs")


def _make(made: Path, scratch: Path, time_limit_s: float) -> None:
    _tell(f"making the guest's root file system, once, in {cache_root()}")
    stage = scratch / "wheels"
    _run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-compile", "--target", str(stage)),
            *("--python-version", PYTHON, "--implementation", "cp", "--only-binary", ":all:"),
            *(word for each in _platforms() for word in ("--platform", each)),
            *wheels(),
        ],
        time_limit_s,
    )
    kernel_modules = "\\n".join(MODULES)
    archive = scratch / "root.tar"
    listing = "/usr/share/initramfs-tools"
    _run(
        [
            *("mmdebstrap", "--variant=minbase", "--aptopt=APT::Install-Recommends false"),
            f"--include={','.join((*packages(), *BOOT_PACKAGES))}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _UNWANTED),
            *(f"--dpkgopt=path-include={pattern}" for pattern in _WANTED),
            # A small initial RAM disk: it is unpacked at every boot, by an emulated processor.
            '--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d"',
            "--essential-hook=printf 'MODULES=list\\n' > \"$1/etc/initramfs-tools/conf.d/guest\"",
            f'--essential-hook=mkdir -p "$1{listing}/modules.d"',
            f"--essential-hook=printf '{kernel_modules}\\n' > \"$1{listing}/modules.d/guest\"",
            f'--customize-hook=mkdir -p "$1{WHEELS}"',
            f"--customize-hook=sync-in {stage} {WHEELS}",
            f'--customize-hook=chroot "$1" python3 -m compileall -q -j 0 {WHEELS}',
            f'--customize-hook=chroot "$1" env PYTHONPATH={WHEELS} MPLCONFIGDIR={FONTS} '
            'python3 -c "import matplotlib.font_manager"',
            f"--customize-hook=upload {HERE / 'guest-init'} {INIT}",
            f'--customize-hook=chmod 755 "$1{INIT}"',
            '--customize-hook=mkdir -p "$1/repo" "$1/results" "$1/control" "$1/scratch"',
            f"--customize-hook=copy-out /boot {scratch}",
            '--customize-hook=rm -rf "$1"/boot/* "$1"/var/lib/apt/lists/*',
            *(SUITE, str(archive)),
        ],
        time_limit_s,
    )
    with archive.open("rb") as source:
        squash = ("tar2sqfs", "--quiet", "--compressor", "zstd", "--comp-extra", "level=3")
        _run([*squash, str(made / "root.squashfs")], time_limit_s, source)
    for name in ("vmlinuz", "initrd.img"):
        found = sorted((scratch / "boot").glob(f"{name}-*"))
        if not found:
            raise GuestError(f"the guest's packages brought no {name}")
        shutil.copyfile(found[-1], made / name)


def _platforms() -> list[str]:
    return [f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)] + ["manylinux2014_x86_64"]


def _run(argv: Sequence[str], time_limit_s: float, source: object = subprocess.DEVNULL) -> None:
    """Run a command; its last words are for the message when it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=source,  # type: ignore[call-overload]
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GuestError(f"{argv[0]} did not end within {time_limit_s:g} s") from None
    if done.returncode:
        words = done.stdout.decode(errors="replace").strip().splitlines()[-20:]
        raise GuestError(f"{argv[0]} ended with {done.returncode}:\n" + "\n".join(words))


def _tell(line: str) -> None:
    print(f"guest: {line}", file=sys.stderr, flush=True)
