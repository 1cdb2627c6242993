"""The bundled scenarios hold the figures that they are known by."""

import pytest

from bicoastal.experiments.scenario.bundled import bundled_data, bundled_names
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli, GilbertElliott, NoLoss, TailOfBurst
from bicoastal.wan.schedule import Outage
from helpers.fake_backends import TRANSPORTS

NAMES = (
    "backbone",
    "coast-to-coast",
    "isp-path",
    "lossless",
    "metro",
    "outage",
    "shallow-queue",
    "shared",
    "tail-loss",
)


def load(name):
    return load_scenario(name, Registry.installed() if name == "backbone" else TRANSPORTS)


def links(scenario):
    return list(scenario.topology.links.values())


def test_these_are_bundled():
    assert bundled_names("scenarios") == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_is_called_as_its_file_and_says_what_and_why(name):
    scenario = load(name)
    assert scenario.name == name
    assert 20 < len(scenario.description) < 110
    assert bundled_data("scenarios", name).startswith(b"# ")
    assert scenario.transports == (("reno", "mpquic", "b4") if name == "backbone" else ("reno", "cubic", "adaptive"))
    assert scenario.sample_interval_s is not None


@pytest.mark.parametrize("name", ["coast-to-coast", "lossless", "tail-loss", "isp-path", "metro", "outage"])
def test_four_planes_of_5_gbit_carry_the_deployments_shard_each_way(name):
    scenario = load(name)
    assert [link.rate_bps for link in links(scenario)] == [5e9] * 4
    (job,) = scenario.jobs
    assert len(job.paths) == 4
    assert job.allreduce.shard_bytes == pytest.approx(57.13e6, abs=5e3)  # arXiv 2407.12819
    assert [(m.source, m.destination) for m in job.allreduce.messages] == [("west", "east"), ("east", "west")]
    assert job.allreduce.array_note == ""  # the real volume
    # the same paper's stages 1, 2, 4 and 5: 16.57 + 98.27 + 49.14 + 8.3 ms, each rounded
    assert job.allreduce.local_s == pytest.approx(172.28e-3, abs=0.07e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("metro", "backbone")])
def test_the_coasts_are_60_ms_apart(name):
    topology = load(name).topology
    assert {topology.path_rtt_s(path) for path in topology.paths} == {0.06}


def test_coast_to_coast():
    scenario = load("coast-to-coast")
    assert [(link.mtu_bytes, link.loss, link.loss_back) for link in links(scenario)] == [
        (9000, Bernoulli(probability=1e-4), None)
    ] * 4
    assert (scenario.jobs[0].iterations, scenario.jobs[0].gap_s) == (20, 2.0)


def test_lossless_differs_from_coast_to_coast_by_the_loss_alone():
    assert [link.loss for link in links(load("lossless"))] == [NoLoss()] * 4
    coast = load_scenario("coast-to-coast", TRANSPORTS, []).run_spec("reno", seed=0)
    other = load("lossless").run_spec("reno", seed=0)
    assert other.jobs == coast.jobs


def test_tail_loss_takes_the_last_packet_of_each_burst():
    assert [link.loss for link in links(load("tail-loss"))] == [TailOfBurst(packets=1)] * 4


def test_isp_path_loses_one_in_a_thousand_ten_at_a_time():
    for link in links(load("isp-path")):
        assert link.mtu_bytes == 1500
        assert link.loss == GilbertElliott.from_means(mean_loss=1e-3, mean_burst_packets=10)


def test_metro_is_2_ms_wide():
    topology = load("metro").topology
    assert {topology.path_rtt_s(path) for path in topology.paths} == {0.002}


def test_outage_darkens_one_plane_for_500_ms_in_mid_burst():
    scenario = load("outage")
    assert sorted(link.events for link in links(scenario)) == [
        (),
        (),
        (),
        (Outage(at_s=0.01, duration_s=0.5, iteration=5),),
    ]
    (job,) = scenario.jobs
    burst_s = job.allreduce.shard_bytes * 8 / 4 / 5e9
    assert 0.01 < burst_s < 0.03
    assert job.iterations > 6  # there are iterations after it


def test_shallow_queue_is_a_twentieth_of_the_bdp_under_bursts_of_five():
    scenario = load("shallow-queue")
    (link,) = links(scenario)
    assert link.queue_bytes == pytest.approx(0.05 * link.bdp_bytes)
    assert scenario.jobs[0].allreduce.shard_bytes == 5 * link.bdp_bytes
    assert link.loss == NoLoss()


def test_shared_has_two_jobs_on_one_bottleneck():
    scenario = load("shared")
    assert len(links(scenario)) == 1
    first, second = scenario.jobs
    assert first.paths == second.paths
    assert scenario.compared_jobs == ("first", "second")
