"""A controller that is killed, stopped or mute in the middle of a run, with real processes: senders go on, and nobody
ever has more than there is.
"""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bicoastal.emulation.real.coordinator import Conducted, Coordinator
from bicoastal.emulation.records import NoticeRecord
from bicoastal.emulation.service.control import LATEST_S
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.b4.parameters import LEAST_GRACE_S
from bicoastal.transports.registry import Registry
from helpers.loopback_coasts import LoopbackGround
from helpers.small_runs import RATE_BPS, job, plane, planes, run_spec

LEASE_S, GRACE_S = 0.8, 0.6
LEASES = (("lease_s", LEASE_S), ("grace_s", GRACE_S))
ITERATIONS = 12
_GRANT = re.compile(r"plane0 (\S+) Gbit/s")
_FALLBACK = re.compile(r": (\S+) Gbit/s$")


def conduct(directory: Path, on_begin: Callable[[int, Coordinator], None], *, count: int = ITERATIONS) -> Conducted:
    """Run two jobs under one controller on loopback; `on_begin` hears of the first one's iterations."""
    topology = planes(plane())
    spec = run_spec(
        topology,
        *(
            job("b4", name=name, shard_bytes=40_000, iterations=count, gap_s=0.4, parameters=LEASES)
            for name in ("first", "second")
        ),
        time_limit_s=30.0,
    )
    flows = plan_flows(spec, Registry.installed())
    made: list[Coordinator] = []
    with Coordinator(
        spec,
        flows,
        LoopbackGround(topology, directory),
        on_begin=lambda iteration, begins_s: on_begin(iteration, made[0]),
    ) as coordinator:
        made.append(coordinator)
        conducted = coordinator.run(time.monotonic() + 0.1)
    assert conducted.failure == ""
    rows = [row for row in conducted.iterations if row.verified]
    assert len(rows) == 2 * count
    return conducted


def test_the_grace_covers_the_latest_arrival_of_a_message() -> None:
    assert LEAST_GRACE_S >= LATEST_S


def told(conducted: Conducted, kind: str) -> list[NoticeRecord]:
    return [notice for notice in conducted.notices if notice.kind == kind]


def most_allocated(conducted: Conducted, way: str) -> float:
    """Return the most that the senders of one direction were ever allowed together, of the link's rate."""
    rates: dict[str, float] = {}
    most = 0.0
    for notice in conducted.notices:
        if f"/{way}/" not in notice.source:
            continue
        pattern = {"b4-rate": _GRANT, "b4-fallback": _FALLBACK, "b4-released": _FALLBACK}.get(notice.kind)
        found = pattern.search(notice.detail) if pattern else None
        if found:
            rates[notice.source] = float(found[1]) * 1e9 / RATE_BPS
            most = max(most, sum(rates.values()))
    assert len(rates) == 2
    return most


def sound(conducted: Conducted) -> None:
    for way in ("west>east", "east>west"):
        assert 0.5 < most_allocated(conducted, way) <= 1.0


def test_undisturbed_both_jobs_share_the_link(tmp_path: Path) -> None:
    conducted = conduct(tmp_path, lambda iteration, coordinator: None, count=3)
    sound(conducted)
    assert told(conducted, "b4-fallback") == []
    assert {notice.source for notice in told(conducted, "b4-heard")} == {"b4-controller"}
    assert not any("services" in doubt for doubt in conducted.doubts)
    assert list(tmp_path.glob("service-*"))  # the directory is the run's to remove


def test_a_killed_controller_is_replaced_and_learns_the_present_grants(tmp_path: Path) -> None:
    killed: list[int] = []

    def on_begin(iteration: int, coordinator: Coordinator) -> None:
        if iteration == 2:
            (pid,) = coordinator.services.pids
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    conducted = conduct(tmp_path, on_begin)
    assert len(killed) == 1
    sound(conducted)
    assert "the services of b4 were started again 1 time" in conducted.doubts
    (restart,) = told(conducted, "service-restarted")
    assert restart.detail == "its process died (SIGKILL; it may have run out of memory); another has taken its place"
    for site in ("west", "east"):
        lost = [n.at_s for n in told(conducted, "service-lost") if n.source == f"{site}:b4"]
        back = [n.at_s for n in told(conducted, "service-back") if n.source == f"{site}:b4"]
        assert len(lost) == len(back) == 1
        assert lost < back
    # the new one hears from all four agents, and grants
    assert {n.detail.split()[2].rstrip(":") for n in told(conducted, "b4-heard") if n.at_s > restart.at_s} == {
        f"{name}/{way}/plane0" for name in ("first", "second") for way in ("west>east", "east>west")
    }


def test_cut_off_from_the_controller_senders_keep_their_rate_until_it_expires_and_then_the_safe_share(
    tmp_path: Path,
) -> None:
    stopped: list[tuple[int, float]] = []

    def on_begin(iteration: int, coordinator: Coordinator) -> None:
        if iteration == 3:
            (pid,) = coordinator.services.pids
            os.kill(pid, signal.SIGSTOP)
            stopped.append((pid, coordinator.now))
        if iteration == 7:
            os.kill(stopped[0][0], signal.SIGCONT)
            stopped.append((stopped[0][0], coordinator.now))

    conducted = conduct(tmp_path, on_begin)
    sound(conducted)
    stopped_s, continued_s = (at_s for _, at_s in stopped)
    fallbacks = told(conducted, "b4-fallback")
    assert len({notice.source for notice in fallbacks}) == 4
    for notice in fallbacks:
        assert notice.detail.startswith("the grant has expired: ")
        assert notice.at_s >= stopped_s + LEASE_S / 3  # refreshed a third of a lease ago at most, and two are left
        # a twentieth of the link for all four flows together
        assert float(_FALLBACK.findall(notice.detail)[0]) * 1e9 == pytest.approx(RATE_BPS * 0.05 / 4, rel=0.01)
    again = [n for n in told(conducted, "b4-rate") if n.at_s > continued_s]
    assert {notice.source for notice in again} >= {notice.source for notice in fallbacks}
