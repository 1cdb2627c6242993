"""The main scenario, scaled, with real packets: every transport that is installed, and the kernel's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bicoastal.transports.registry import Registry


@pytest.mark.root
def test_every_transport_carries_the_scaled_main_scenario(tmp_path: Path) -> None:
    chosen = [word for name in Registry.installed().names() for word in ("--transport", name)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bicoastal", "compare", "coast-to-coast", "--backend", "netns"),
            *("--iterations", "2", "--set", "scenario.gap=0.5 s", "--out", str(tmp_path), "--json", *chosen),
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["transports"]}
    assert set(rows) == set(Registry.installed().names())
    for name, row in rows.items():
        assert row["status"] in ("ok", "degraded"), (name, row["reason"])
        assert (row["n"], row["failed"]) == (2, 0), name
