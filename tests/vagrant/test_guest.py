"""The guest under plain QEMU does what it is asked to, and says so when it cannot. Every test boots one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GUEST = REPOSITORY / "vagrant" / "guest.py"
TIME_LIMIT_S = 300


def guest(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(GUEST), *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * TIME_LIMIT_S,
        env={**os.environ, **environment},
    )


@pytest.mark.vm
def test_output_exit_status_and_files_come_back_and_the_repository_is_a_copy(tmp_path: Path) -> None:
    script = """
        cat /repo/LICENSE | head -n 1
        echo kept > /results/file
        echo changed > /repo/LICENSE
        tc qdisc add dev lo root netem delay 30ms && ping -c 3 -i 0.2 127.0.0.1 | tail -n 1
        exit 7
    """
    done = guest("--results", str(tmp_path), "--time-limit", str(TIME_LIMIT_S), "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "file").read_text() == "kept\n"
    assert "changed" not in (REPOSITORY / "LICENSE").read_text()
    first, last = done.stdout.strip().splitlines()
    assert first.strip() == (REPOSITORY / "LICENSE").read_text().splitlines()[0].strip()
    # netem holds both the question and the answer back
    least_ms, mean_ms = map(float, last.split(" = ")[1].split("/")[:2])
    assert 60.0 <= least_ms <= mean_ms < 62.0


@pytest.mark.vm
def test_a_guest_that_hangs_is_switched_off_in_time() -> None:
    done = guest("--time-limit", "150", "sh", "-c", "echo begun; while :; do :; done")
    assert done.returncode == 124
    assert done.stdout == "begun\n"
    assert done.stderr.splitlines()[-1] == "guest: the guest did not end within 150 s, and was switched off"


@pytest.mark.vm
def test_a_full_disk_is_named() -> None:
    done = guest("--time-limit", str(TIME_LIMIT_S), "dd", "if=/dev/zero", "of=/tmp/much", "bs=1M", "count=8192")
    assert done.returncode == 1
    assert "No space left on device" in done.stdout
    assert "guest: the guest's disk is full" in done.stderr.splitlines()


@pytest.mark.vm
def test_a_share_that_is_lost_is_named() -> None:
    done = guest("--time-limit", str(TIME_LIMIT_S), "sh", "-c", "umount -l /control; exit 3")
    assert done.returncode == 125
    said = "the share 'control' is lost: nobody can be told that the command ended with 3"
    assert done.stderr.splitlines()[-1] == f"guest: the guest ended without saying how its command did: {said}"


def test_without_the_programs_that_make_it_there_is_no_guest_but_the_packages_names(tmp_path: Path) -> None:
    done = guest("true", PATH=str(tmp_path))
    assert done.returncode == 125
    assert done.stderr == (
        "guest: mmdebstrap, tar2sqfs, qemu-system-x86_64 is missing; "
        "apt-get install mmdebstrap qemu-system-x86 squashfs-tools-ng\n"
    )
