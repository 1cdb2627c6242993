"""The guest under plain QEMU does what it is asked to, and says so when it cannot; Vagrant understands its file."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections import namedtuple
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
    before = (REPOSITORY / "LICENSE").read_text()
    done = guest("--results", str(tmp_path), "--time-limit", str(TIME_LIMIT_S), "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "file").read_text() == "kept\n"
    assert (REPOSITORY / "LICENSE").read_text() == before
    first, last = done.stdout.strip().splitlines()
    assert first.strip() == before.splitlines()[0].strip()
    # netem holds both the question and the answer back
    least_ms, mean_ms = map(float, last.split(" = ")[1].split("/")[:2])
    assert 60.0 <= least_ms <= mean_ms < 62.0


@pytest.fixture(scope="module")
def boot_s() -> float:
    """How long a guest takes on this machine until its command begins."""
    done = guest("--time-limit", str(TIME_LIMIT_S), "true")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    said = re.search(r"^guest: up with \w+ after (\d+) s$", done.stderr, re.MULTILINE)
    assert said, done.stderr
    return float(said[1])


@pytest.mark.vm
def test_a_guest_that_hangs_is_switched_off_in_time(boot_s: float) -> None:
    limit_s = round(3 * boot_s + 20)
    began_s = time.monotonic()
    done = guest("--time-limit", str(limit_s), "sh", "-c", "echo begun; while :; do :; done")
    assert limit_s <= time.monotonic() - began_s < limit_s + 10
    assert done.returncode == 124
    assert done.stdout == "begun\n"
    assert done.stderr.splitlines()[-1] == f"guest: the guest did not end within {limit_s} s, and was switched off"


@pytest.mark.vm
def test_a_guest_that_is_not_up_in_time_is_switched_off() -> None:
    done = guest("--time-limit", "0.5", "--acceleration", "tcg", "true")
    assert done.returncode == 124
    assert done.stderr.splitlines()[-1] == "guest: the guest was not up with tcg when its 0.5 s were over"


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


@pytest.mark.vm
def test_provisioning_twice_changes_nothing_the_second_time() -> None:
    """What is written lies in /scratch: the guest's root file system is read-only. Python's packages are there."""
    script = """
        set -e
        export PIP_NO_INDEX=1 PIP_NO_BUILD_ISOLATION=0
        sysctl --quiet --write net.core.netdev_max_backlog=1000
        vagrant/provision.sh /repo
        state() { lsmod | cut -d ' ' -f 1 | sort; cat /proc/sys/net/core/netdev_max_backlog; }
        sleep 0.1; touch /scratch/provisioned; sleep 0.1
        state > /scratch/before
        vagrant/provision.sh /repo > /scratch/said 2>&1
        state > /scratch/after
        echo said: $(cat /scratch/said)
        echo changed: $(find /scratch -mindepth 2 -not -path '/scratch/.work*' -cnewer /scratch/provisioned)
        diff /scratch/before /scratch/after
        tail -n 1 /scratch/after
        ls -1 /etc/sysctl.d/60-bicoastal.conf /etc/modules-load.d/bicoastal.conf
        unset PYTHONPATH
        readlink /usr/local/bin/bicoastal
    """
    done = guest("--time-limit", str(2 * TIME_LIMIT_S), "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-6:] == [
        "said:",
        "changed:",
        "10000",
        "/etc/modules-load.d/bicoastal.conf",
        "/etc/sysctl.d/60-bicoastal.conf",
        "/opt/bicoastal/bin/bicoastal",
    ]


@pytest.mark.vm
def test_vagrant_understands_its_file(tmp_path: Path) -> None:
    """Whatever providers are installed: where Vagrant is not, Ruby can still tell whether the file can be read."""
    vagrant, ruby = shutil.which("vagrant"), shutil.which("ruby")
    if not vagrant and not ruby:
        pytest.skip("there is neither Vagrant nor Ruby: apt-get install vagrant")
    argv = [vagrant, "validate", "--ignore-provider"] if vagrant else [ruby, "-c", "Vagrantfile"]
    done = subprocess.run(
        argv,
        cwd=GUEST.parent,
        env={**os.environ, "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot"), "VAGRANT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("Vagrantfile validated successfully." if vagrant else "Syntax OK") in done.stdout


def test_a_disk_with_no_room_for_the_image_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(GUEST.parent)
    image = importlib.import_module("image")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(image, "require_tools", lambda: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, 1 << 40, 1 << 30))
    monkeypatch.setenv("BICOASTAL_CACHE", str(tmp_path))
    with pytest.raises(image.GuestError, match=r"less than 3 GB of disk are free to make the guest in$"):
        image.image()
    assert list(tmp_path.iterdir()) == []


def test_without_the_programs_that_make_it_there_is_no_guest_but_the_packages_names(tmp_path: Path) -> None:
    done = guest("true", PATH=str(tmp_path))
    assert done.returncode == 125
    assert done.stderr == (
        "guest: mmdebstrap, tar2sqfs, qemu-system-x86_64 is missing; "
        "apt-get install mmdebstrap qemu-system-x86 squashfs-tools-ng\n"
    )
