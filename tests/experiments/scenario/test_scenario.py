"""What a scenario's file says, and the run that comes of it."""

import tomllib

import pytest

from bicoastal.experiments.scenario.key_document import SCENARIO_EXAMPLE
from bicoastal.experiments.scenario.scenario import read_scenario
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace
from bicoastal.wan.schedule import Outage, RateStep
from helpers.scenario_text import GOOD, load


def test_a_scenario_says_what_its_file_says():
    scenario = load(GOOD)
    assert (scenario.name, scenario.description, scenario.seed) == ("coast", "For tests", 7)
    assert (scenario.time_limit_s, scenario.sample_interval_s) == (30.0, 0.005)
    assert list(scenario.topology.links) == ["plane0", "plane1", "slow"]
    plane, slow = scenario.topology.links["plane1"], scenario.topology.links["slow"]
    assert (plane.rate_bps, plane.delay_s, plane.mtu_bytes, plane.loss) == (
        5e9,
        0.03,
        9000,
        Bernoulli(probability=1e-4),
    )
    assert plane.queue_limit_bytes == 37_500_000  # one BDP: 5 Gbit/s * 60 ms / 8
    assert (slow.rate_bps, slow.delay_s, slow.mtu_bytes, slow.loss) == (8e9, 0.001, 1500, NoLoss())
    assert slow.queue_bytes == 1_000_000  # half of 1 GB/s * 2 ms
    assert slow.events == (Outage(at_s=0.01, duration_s=0.5, iteration=1),)
    (job,) = scenario.jobs
    assert (job.iterations, job.gap_s, job.paths) == (3, 2.0, ("plane0", "plane1", "slow"))
    assert (job.allreduce.shard_bytes, job.allreduce.pattern, job.allreduce.sites) == (
        57_130_000,
        "exchange",
        ("west", "east"),
    )
    assert scenario.transports == ("reno", "adaptive")
    assert scenario.parameters == {"adaptive": (("gain", 1.5),)}


def test_a_run_gets_the_compared_transport_with_its_parameters_and_the_seed():
    run = load(GOOD).run_spec("adaptive", seed=11)
    assert (run.name, run.seed, run.jobs[0].allreduce.seed) == ("coast", 11, 11)
    assert (run.jobs[0].transport.name, run.jobs[0].transport.parameters) == ("adaptive", (("gain", 1.5),))
    assert load(GOOD).run_spec("reno", seed=11, sampled=False).sample_interval_s is None


def test_jobs_and_background_may_bring_a_transport_of_their_own():
    text = GOOD.replace("[allreduce]", '[[jobs]]\nname = "a"') + (
        '[[jobs]]\nname = "b"\nshard = "1 MB"\ntransport = "cubic"\nparameters = { window = 4 }\nstart = "50 ms"\n'
        'iterations = 9\npattern = "reduce-scatter"\nranks_per_site = 4\ndtype = "int64"\narray = "64 KiB"\n'
        'fabric = "1 GB/s"\npaths = ["slow"]\n'
        '[[background]]\ntransport = "reno"\nmessage = "2 MB"\nfrom = "east"\nto = "west"\nmessages = 5\n'
        'paths = ["plane0"]\n'
    )
    scenario = load(text)
    assert scenario.compared_jobs == ("a",)
    first, second = scenario.run_spec("adaptive", seed=1).jobs
    assert (first.transport.name, second.transport.name) == ("adaptive", "cubic")
    assert second.transport.parameters == (("window", 4),)
    assert (second.start_s, second.iterations, second.paths) == (0.05, 9, ("slow",))
    assert (second.allreduce.pattern, second.allreduce.ranks_per_site) == ("reduce-scatter", 4)
    assert (second.allreduce.dtype, second.allreduce.array_bytes, second.allreduce.fabric_Bps) == ("int64", 65536, 1e9)
    (flow,) = scenario.background
    assert (flow.source, flow.destination, flow.message_bytes, flow.messages) == ("east", "west", 2_000_000, 5)


def test_paths_lead_over_several_links():
    text = """
    [scenario]
    name = "detour"
    sites = ["west", "north", "east"]
    [[links]]
    name = "first"
    between = ["north", "west"]
    rate = "1 Gbit/s"
    delay = "10 ms"
    [[links]]
    name = "second"
    between = ["north", "east"]
    rate = "2 Gbit/s"
    delay = "20 ms"
    [[paths]]
    name = "detour"
    links = ["first", "second"]
    overhead = 50
    [allreduce]
    shard = "1 MB"
    """
    scenario = load(text)
    assert scenario.topology.paths["detour"].sites == ("west", "north", "east")
    assert scenario.topology.path_delay_s("detour") == pytest.approx(0.03)
    assert scenario.topology.path_mtu_bytes("detour") == 1450
    assert scenario.jobs[0].paths == ("detour",)


@pytest.mark.parametrize(
    ("written", "loss"),
    [
        ("0", NoLoss()),
        ("1e-3", Bernoulli(probability=1e-3)),
        ('"0.1 %"', Bernoulli(probability=1e-3)),
        ('{ model = "none" }', NoLoss()),
        ('{ model = "bernoulli", probability = 0.5 }', Bernoulli(probability=0.5)),
        (
            '{ model = "periodic", every = 10, first = 3, min_wire_bytes = 100 }',
            Periodic(every=10, first=3, min_wire_bytes=100),
        ),
        (
            '{ model = "gilbert-elliott", mean_loss = 1e-3, mean_burst = 10 }',
            GilbertElliott.from_means(mean_loss=1e-3, mean_burst_packets=10),
        ),
        (
            '{ model = "gilbert-elliott", good_to_bad = 0.1, bad_to_good = 0.5, loss_bad = 0.9 }',
            GilbertElliott(good_to_bad=0.1, bad_to_good=0.5, loss_bad=0.9),
        ),
        ('{ model = "tail-of-burst", packets = 3 }', TailOfBurst(packets=3)),
        ('{ model = "listed", packets = [0, 4] }', Listed(indices=(0, 4))),
        (
            '{ model = "trace", outcomes = "0010", repeat = false }',
            Trace(outcomes=(False, False, True, False), repeat=False),
        ),
        (
            '{ model = "combined", parts = [{ model = "tail-of-burst" }, { model = "bernoulli", probability = 0.1 }] }',
            Combined(parts=(TailOfBurst(packets=1), Bernoulli(probability=0.1))),
        ),
    ],
)
def test_loss_is_a_probability_or_a_model(written, loss):
    assert load(GOOD.replace("loss = 1e-4", f"loss = {written}")).topology.links["plane0"].loss == loss


def test_the_way_back_may_have_a_loss_of_its_own():
    link = load(GOOD.replace("loss = 1e-4", "loss = 1e-4\nloss_back = 0.5")).topology.links["plane0"]
    assert (link.loss, link.loss_back) == (Bernoulli(probability=1e-4), Bernoulli(probability=0.5))


def test_rate_steps_are_events():
    text = GOOD.replace('outage = "500 ms"', 'rate = "100 Mbit/s"')
    assert load(text).topology.links["slow"].events == (RateStep(at_s=0.01, rate_bps=1e8, iteration=1),)


def test_the_example_of_all_tables_is_a_scenario():
    scenario = read_scenario(tomllib.loads(SCENARIO_EXAMPLE), "everything.toml", Registry.installed())
    assert scenario.compared_jobs == ("training",)
    assert len(scenario.topology.links) == 4
    assert scenario.topology.links["plane3"].events == (Outage(at_s=0.01, duration_s=0.5, iteration=3),)
    assert scenario.background[0].message_bytes == 10**9
    assert scenario.parameters == {"adaptive": (("headroom", 0.02),)}
