"""Which runs belong together: what makes another setup, what does not, and what people are told of the difference."""

from dataclasses import replace
from pathlib import Path

import pytest

from bicoastal.experiments import cli
from bicoastal.experiments.analysis.groups import distinct, groups_of
from bicoastal.experiments.runs.setups import conditions, setup_key
from bicoastal.experiments.runs.store import Store
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import parse_rate
from helpers.fake_backends import TRANSPORTS

SCENARIO = """
[scenario]
name = "st"
iterations = 5
sample_interval = "5 ms"
[[links]]
count = 2
rate = "1 Gbit/s"
rtt = "80 ms"
queue = "0.5 BDP"
loss = 1e-2
[allreduce]
shard = "2 MB"
"""
STUDY = """
[study]
name = "grid"
scenario = "st.toml"
transports = ["reno"]
backend = "plain"
[[axes]]
key = "links.loss"
label = "loss of a packet"
values = [0, 1e-4]
"""


@pytest.fixture(autouse=True)
def scenario(plain_world):
    Path("st.toml").write_text(SCENARIO)
    Path("grid.toml").write_text(STUDY)


def edit(old, new, file="st.toml"):
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def compare(transport, *arguments):
    assert (
        cli.main(["compare", "st.toml", "--backend", "plain", "--transport", transport, "--out", "x", *arguments]) == 0
    )


def groups():
    """Return what tells each group apart, and its transports with their numbers of iterations."""
    with Store.existing(Path("x")) as store:
        return [(group.name, {r.name: r.n for r in group.comparison.transports}) for group in groups_of(store)]


def test_a_scenario_that_was_edited_between_two_comparisons_has_two_groups(capsys):
    compare("cubic")
    edit("80 ms", "20 ms")
    compare("adaptive")
    assert groups() == [("links.rtt = 20 ms", {"adaptive": 5}), ("links.rtt = 80 ms", {"cubic": 5})]
    assert cli.main(["report", "x"]) == 0
    page = Path("x/report.html").read_text()
    assert page.count("<table>") == 2
    for rtt in ("20 ms", "80 ms"):
        assert f"st in plain: links.rtt = {rtt}</h2>" in page
        assert f"paths: 2 × 1 Gbit/s at RTT {rtt} and loss 1e-2; shard: 2 MB in each direction." in page
    assert "<title>st</title>" in page


def test_a_study_whose_scenario_was_edited_before_it_was_resumed_has_two_curves(capsys):
    sweep = ["sweep", "grid.toml", "--out", "x"]
    assert cli.main(sweep) == 0
    edit("iterations = 5", "iterations = 7")
    assert cli.main([*sweep, "--resume"]) == 0
    assert groups() == [
        (f"links.loss = {loss}, allreduce.iterations = {n}", {"reno": n}) for loss in ("0", "1e-4") for n in (5, 7)
    ]
    edit("[0, 1e-4]", "[0, 1e-4, 1e-3]", "grid.toml")
    assert cli.main([*sweep, "--resume"]) == 0
    assert cli.main(["report", "x"]) == 0
    page = Path("x/report.html").read_text()
    assert page.count("-against-loss") == 4
    assert [page.count(f'notes">allreduce.iterations = {n}</p>') for n in (5, 7)] == [1, 1]
    assert "<title>grid</title>" in page


def test_other_parameters_of_a_transport_make_another_group_of_that_transport():
    edit("[allreduce]", "[transports.reno]\nwindow = 9000\n[allreduce]")
    compare("reno")
    compare("adaptive")
    edit("9000", "18000")
    compare("reno")
    compare("adaptive")
    assert groups() == [
        ("reno.window = 9000", {"adaptive": 5, "reno": 5}),
        ("reno.window = 18000", {"reno": 5}),
    ]


def test_the_same_run_counts_once_whether_it_has_time_series_or_not():
    compare("reno", "--seed", "1")
    compare("reno", "--seed", "0", "--seeds", "2")
    assert groups() == [("", {"reno": 10})]


def test_seeds_transports_words_and_names_of_runs_make_no_other_setup():
    compare("reno")
    edit('name = "st"', 'name = "st"\ndescription = "words"\nseed = 7')
    edit('"80 ms"', '"0.08 s"')
    edit("5 ms", "10 ms")
    compare("cubic")
    assert groups() == [("", {"cubic": 5, "reno": 5})]


def conditions_of(spec, jobs, options):
    return tuple(f"{key}={value}" for key, value in conditions(spec, jobs, options).items())


def spec():
    return load_scenario("st.toml", TRANSPORTS).run_spec("reno", seed=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("80 ms", "20 ms"), "links.rtt=20 ms"),
        (("loss = 1e-2", "loss = 1e-3"), "links.loss=1e-3"),
        (("0.5 BDP", "1 BDP"), "links.queue=1 BDP"),
        (('"2 MB"', '"2 MB"\npattern = "reduce-scatter"'), "allreduce.pattern='reduce-scatter'"),
        (('"2 MB"', '"3 MB"'), "allreduce.shard=3 MB"),
        (('name = "st"', 'name = "st"\ngap = "3 s"'), "allreduce.gap=3 s"),
        (('name = "st"', 'name = "st"\ntime_limit = "3 s"'), "scenario.time_limit=3 s"),
        (('"2 MB"', '"2 MB"\n[[background]]\ntransport = "cubic"\nmessage = "1 MB"'), "background.transport=cubic"),
        (("loss = 1e-2", 'loss = { model = "listed", packets = [1] }'), "links.loss=Listed(indices=(1,), min_wire_"),
    ],
)  # fmt: skip
def test_what_differs_makes_another_setup_and_is_said(change, said):
    before, setup = conditions_of(spec(), ("job",), {}), setup_key(spec(), ("job",), "sim")
    edit(*change)
    assert setup_key(spec(), ("job",), "sim") != setup
    differences = distinct([before, conditions_of(spec(), ("job",), {})])[1]
    assert any(each.startswith(said) for each in differences)


def test_the_world_belongs_to_the_setup_and_sampling_does_not():
    assert setup_key(spec(), ("job",), "netns") != setup_key(spec(), ("job",), "netns/impairment=netem")
    assert setup_key(replace(spec(), sample_interval_s=None), ("job",), "sim") == setup_key(spec(), ("job",), "sim")
    assert "impairment=netem" in conditions_of(spec(), ("job",), {"impairment": "netem"})


def test_links_that_differ_are_told_one_by_one_and_what_is_long_is_cut_but_never_alike():
    edit("count = 2", 'name = "north"')
    edit("[allreduce]", '[[links]]\nname = "south"\nrate = "2 Gbit/s"\nrtt = "80 ms"\n[allreduce]')
    found = conditions_of(spec(), ("job",), {})
    assert {"links[0].rate=1 Gbit/s", "links[1].rate=2 Gbit/s", "links.rtt=80 ms"} <= set(found)
    texts = []
    for last in "01":
        edit('rate = "2 Gbit/s"', f'rate = "2 Gbit/s"\nloss = {{ model = "trace", outcomes = "{"01" * 100}{last}" }}')
        texts += [each for each in conditions_of(spec(), ("job",), {}) if each.startswith("links[1].loss=")]
        edit(f'\nloss = {{ model = "trace", outcomes = "{"01" * 100}{last}" }}', "")
    assert texts[0] != texts[1]
    assert max(map(len, texts)) < 120


def test_a_thousand_links_are_told_in_few_words_and_every_difference_still_makes_one():
    first = spec()
    link = next(iter(first.topology.links.values()))

    def many(last):
        links = [replace(link, name=f"n{n}", rate_bps=parse_rate(f"{n + 1} Mbit/s")) for n in range(999)]
        topology = Topology(
            sites=first.topology.sites,
            paths=first.topology.paths,
            links=[*links, replace(link, name="link0"), replace(link, name="link1", mtu_bytes=last)],
        )
        return conditions_of(replace(first, topology=topology), ("job",), {})

    assert len(many(1500)) == 201
    assert many(1500) != many(9000)
