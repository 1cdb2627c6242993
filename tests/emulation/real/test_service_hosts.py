"""Services of any transport in separate processes, and how a run ends when they fail."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bicoastal.emulation.base import RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.real.coordinator import Conducted, Coordinator
from bicoastal.emulation.real.service_hosts import MOST_RESTARTS, ServiceHosts
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import Site, Topology
from helpers.loopback_coasts import LoopbackGround
from helpers.small_runs import background, job, plane, planes, run_spec


def topology() -> Topology:
    coasts = planes(plane(delay_s=0.02))
    return Topology(
        sites=(*coasts.sites, Site(name="moon")),
        links=tuple(coasts.links.values()),
        paths=tuple(coasts.paths.values()),
    )


def conduct(
    spec: RunSpec, directory: Path, on_begin: Callable[[int, Coordinator], None] = lambda iteration, coordinator: None
) -> Conducted:
    made: list[Coordinator] = []
    with Coordinator(
        spec,
        plan_flows(spec, Registry.installed()),
        LoopbackGround(spec.topology, directory),
        on_begin=lambda iteration, begins_s: on_begin(iteration, made[0]),
    ) as coordinator:
        made.append(coordinator)
        return coordinator.run(time.monotonic() + 0.1)


def test_any_transports_services_serve_all_its_flows_and_have_the_propagation_delay(tmp_path: Path) -> None:
    spec = run_spec(
        topology(),
        job("helpers.faulty_services:SOUND", gap_s=0.1),
        background=(background("helpers.faulty_services:SOUND", messages=1),),
    )
    conducted = conduct(spec, tmp_path)
    assert conducted.failure == ""
    assert all(row.verified for row in conducted.iterations)
    # three clients ask, those in the east 20 ms away; each hears of a rate at least
    rates = {notice.source for notice in conducted.notices if notice.kind == "rate"}
    assert len(rates) == 3
    handshakes = {summary.flow: summary.handshake_s for summary in conducted.summaries}
    assert (handshakes["job/east>west/plane0"] or 0.0) > 2 * 0.02


def test_a_service_that_raises_ends_the_run_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        RunFailedError,
        match=r"^the services of helpers.faulty_services:RAISING broke: ZeroDivisionError at "
        r"faulty_services\.py:\d+: nothing to share$",
    ):
        conduct(run_spec(topology(), job("helpers.faulty_services:RAISING")), tmp_path)


def test_a_service_that_gives_up_fails_the_run(tmp_path: Path) -> None:
    conducted = conduct(run_spec(topology(), job("helpers.faulty_services:GIVES_UP")), tmp_path)
    assert conducted.failure == "governor: it has lost the plan"


def test_a_service_that_cannot_be_reached_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    spec = run_spec(topology(), job("helpers.faulty_services:FAR_AWAY"))
    ground = LoopbackGround(spec.topology, tmp_path)
    with pytest.raises(ValueError, match=r"^links: none lead from west to moon, where governor stands$"):
        ServiceHosts(spec, plan_flows(spec, Registry.installed()), ground)
    assert ground.pids == []
    assert list(tmp_path.iterdir()) == []


def test_a_controller_of_b4_and_one_of_kernel_b4_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    spec = run_spec(topology(), job("b4"), job("kernel-b4", name="kernel"))
    ground = LoopbackGround(spec.topology, tmp_path)
    with pytest.raises(
        UnsupportedError, match=r"^job runs b4 and kernel kernel-b4: each has a b4-controller of its own"
    ):
        ServiceHosts(spec, plan_flows(spec, Registry.installed()), ground)
    assert ground.pids == []
    assert list(tmp_path.iterdir()) == []


def test_without_services_nothing_is_made(tmp_path: Path) -> None:
    spec = run_spec(topology(), job())
    hosts = ServiceHosts(spec, plan_flows(spec, Registry.installed()), LoopbackGround(spec.topology, tmp_path))
    assert hosts.pids == ()
    assert hosts.addresses == {"west": (), "east": ()}
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_dies_too_often_ends_the_run(tmp_path: Path) -> None:
    killed: list[int] = []
    spec = run_spec(topology(), job("b4", iterations=300, gap_s=0.1), time_limit_s=30.0)

    def on_begin(iteration: int, coordinator: Coordinator) -> None:
        (pid,) = coordinator.services.pids
        if pid not in killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(RunFailedError, match=r"^the process of the services of b4 has died: SIGKILL; "):
        conduct(spec, tmp_path, on_begin)
    assert len(killed) == MOST_RESTARTS + 1
