"""Run one command in a virtual machine under plain QEMU, with this repository at /repo: where there is no Vagrant.

    python vagrant/guest.py [--results DIR] [--time-limit S] [--acceleration auto|kvm|tcg] COMMAND…

What the command writes comes here, its exit status becomes this program's, and what it leaves in /results is in DIR.
/repo is a copy in the guest's memory. The status is 124 when the guest took too long, 125 when there could be none.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from image import FONTS, WHEELS, GuestError, Image, image

REPOSITORY = Path(__file__).resolve().parent.parent
TOO_LATE, NO_GUEST = 124, 125  # as timeout(1) and env(1) have it
BOOT_LIMIT_S = {"kvm": 25.0, "tcg": 180.0}
_CONSOLE_LINES = 8
# An emulated processor is slow, and slower on a busy machine; what is measured in a guest must not depend on that. So
# its clock counts instructions, one a nanosecond, and jumps to the next timer when there is nothing to do.
_VIRTUAL_TIME = ("-accel", "tcg,thread=single", "-icount", "shift=0,align=off,sleep=off", "-rtc", "clock=vm")
_VIRTUAL_TIME += ("-cpu", "max", "-smp", "1")


class GuestTimeoutError(GuestError):
    """The guest took too long."""


class _UnbootableError(GuestError):
    """The guest did not come up with this acceleration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """How a guest is to be. results: shared with it, to write to. time_limit_s: from its start to its end."""

    results: Path
    processors: int = 2
    memory_mb: int = 2048
    time_limit_s: float = 900.0
    acceleration: str = "auto"


def run(argv: Sequence[str], guest: Guest, booted: Image) -> int:
    """Run a command in a guest and return its exit status. Raises GuestError, in one sentence.

    Hardware acceleration is tried where the machine says that it has some, for as long as a boot with it takes: there
    are machines on which it does not work.
    """
    ways = [guest.acceleration] if guest.acceleration != "auto" else ["kvm", "tcg"]
    if guest.acceleration == "auto" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        ways.remove("kvm")
    guest.results.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + guest.time_limit_s
    for way in ways:
        try:
            return _boot(argv, guest, booted, way, ends_s)
        except _UnbootableError as error:
            if way == ways[-1]:
                raise
            print(f"guest: {error}; going on without", file=sys.stderr, flush=True)
    raise AssertionError("there is always a way")


def _boot(argv: Sequence[str], guest: Guest, booted: Image, way: str, ends_s: float) -> int:
    with tempfile.TemporaryDirectory(prefix="bicoastal-guest-") as temporary:
        control = Path(temporary, "control")
        control.mkdir()
        console = Path(temporary, "console")
        (control / "job").write_text(_job(argv), encoding="utf-8")
        began_s = time.monotonic()
        process = subprocess.Popen(
            _command(guest, booted, way, control=control, console=console), stdin=subprocess.DEVNULL
        )
        try:
            started = _await_start(process, control / "started", min(ends_s, began_s + BOOT_LIMIT_S[way]))
            took_s = time.monotonic() - began_s
            if not started:
                if process.poll() is None and time.monotonic() >= ends_s:
                    raise GuestTimeoutError(
                        f"the guest was not up with {way} when its {guest.time_limit_s:g} s were over"
                    )
                raise _UnbootableError(f"the guest did not come up with {way} in {took_s:.0f} s{_last_words(console)}")
            print(f"guest: up with {way} after {took_s:.0f} s", file=sys.stderr, flush=True)
            try:
                process.wait(max(0.0, ends_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise GuestTimeoutError(
                    f"the guest did not end within {guest.time_limit_s:g} s, and was switched off"
                ) from None
        finally:
            process.kill()
            process.wait()
        for line in _said(console):
            print(f"guest: {line}", file=sys.stderr, flush=True)
        status = control / "status"
        if not status.is_file():
            raise GuestError(f"the guest ended without saying how its command did{_last_words(console)}")
        return int(status.read_text(encoding="ascii"))


def _job(argv: Sequence[str]) -> str:
    """Return the script that the guest runs: all that Python reads and compiles is in memory."""
    lines = [
        # Waiting for the host would cost time of the guest's own clock, which runs on meanwhile, and fast.
        "mkdir /tmp/repo && tar --create --exclude=./.venv --exclude=./.git --exclude=./out --exclude=__pycache__ "
        "--exclude='./.*_cache' . | tar --extract --no-same-owner --warning=no-timestamp -C /tmp/repo || exit 1",
        "mount --bind /tmp/repo /repo && cd /repo || exit 1",
        f"export PYTHONPATH=/repo:{WHEELS} MPLCONFIGDIR={FONTS}",
        "export XDG_CACHE_HOME=/tmp/cache COLUMNS=120 TERM=dumb NO_COLOR=1",
        f"exec {shlex.join(argv)}",
    ]
    return "\n".join(lines) + "\n"


def _command(guest: Guest, booted: Image, way: str, *, control: Path, console: Path) -> list[str]:
    kernel_words = "console=ttyS0 quiet panic=-1 root=/dev/vda rootfstype=squashfs ro init=/sbin/guest-init"
    shares = {"repo": (REPOSITORY, True), "results": (guest.results, False), "control": (control, False)}
    return [
        "qemu-system-x86_64",
        *(_VIRTUAL_TIME if way == "tcg" else ("-accel", way, "-cpu", "host", "-smp", str(guest.processors))),
        *("-m", str(guest.memory_mb)),
        *("-kernel", str(booted.kernel), "-initrd", str(booted.initrd), "-append", kernel_words),
        *("-drive", f"file={booted.root},if=virtio,format=raw,readonly=on"),
        *(word for name, (path, fixed) in shares.items() for word in _share(name, path, fixed)),
        *("-display", "none", "-nic", "none", "-no-reboot"),
        *("-serial", f"file:{console}", "-serial", "stdio", "-monitor", "none"),
    ]


def _share(name: str, path: Path, fixed: bool) -> list[str]:
    options = f"local,id={name},path={_escaped(path.resolve())},security_model=none,multidevs=remap"
    return [
        *("-fsdev", options + (",readonly=on" if fixed else "")),
        *("-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"),
    ]


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")


def _await_start(process: subprocess.Popen[bytes], marker: Path, until_s: float) -> bool:
    while time.monotonic() < until_s:
        if marker.exists():
            return True
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        return marker.exists()
    return False


def _said(console: Path) -> list[str]:
    """Return what the guest's first process had to say."""
    lines = console.read_text(encoding="utf-8", errors="replace").splitlines() if console.exists() else []
    return [line.partition("guest-init: ")[2] for line in lines if line.startswith("guest-init: ")]


def _last_words(console: Path) -> str:
    if said := _said(console):
        return f": {said[-1]}"
    if not console.exists():
        return ""
    lines = [line for line in console.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "; its console ends with:\n" + "\n".join(lines[-_CONSOLE_LINES:]) if lines else "; its console is empty"


def main() -> int:
    """Parse the command line, and do what it says."""
    parser = argparse.ArgumentParser(description="run one command in a virtual machine under plain QEMU")
    parser.add_argument("--results", type=Path, metavar="DIR", help="shared with the guest as /results")
    parser.add_argument("--time-limit", type=float, default=900.0, metavar="S", help="for all of it (default: 900)")
    parser.add_argument("--acceleration", choices=("auto", "kvm", "tcg"), default="auto")
    parser.add_argument("--memory", type=int, default=2048, metavar="MB", help="(default: 2048)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    arguments = parser.parse_args()
    argv = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not argv:
        parser.error("COMMAND: there is none")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    results = arguments.results or Path(tempfile.mkdtemp(prefix="bicoastal-results-"))
    try:
        return run(
            argv,
            Guest(
                results=results,
                memory_mb=arguments.memory,
                time_limit_s=arguments.time_limit,
                acceleration=arguments.acceleration,
            ),
            image(),
        )
    except GuestTimeoutError as error:
        print(f"guest: {error}", file=sys.stderr)
        return TOO_LATE
    except GuestError as error:
        print(f"guest: {error}", file=sys.stderr)
        return NO_GUEST
    finally:
        if arguments.results is None:
            shutil.rmtree(results)


if __name__ == "__main__":
    sys.exit(main())
