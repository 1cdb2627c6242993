"""Specifications as text and back: nothing of a run is lost, and a text that is none is refused in one sentence."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.base import BackgroundSpec, JobSpec, RunSpec, TransportUse
from bicoastal.emulation.processes.wire_format import WireFormatError
from bicoastal.experiments.runs.specifications import compared_job, decode_specification, encode_specification
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace
from bicoastal.wan.schedule import CapacityTrace, Outage, RateStep
from bicoastal.wan.topology import LinkSpec
from helpers.small_runs import plane, planes

probabilities = st.floats(0, 1)
amounts = st.floats(1e-6, 1e12)
losses: st.SearchStrategy[LossSpec] = st.recursive(
    st.one_of(
        st.just(NoLoss()),
        st.builds(Bernoulli, probability=probabilities),
        st.builds(Periodic, every=st.integers(1, 9), first=st.none() | st.integers(0, 9)),
        st.builds(GilbertElliott, good_to_bad=probabilities, bad_to_good=st.floats(0.01, 1), loss_good=probabilities),
        st.builds(TailOfBurst, packets=st.integers(1, 9)),
        st.builds(Listed, indices=st.lists(st.integers(0, 99), unique=True).map(tuple)),
        st.builds(Trace.from_text, st.text("01", min_size=1), repeat=st.booleans()),
    ),
    lambda parts: st.builds(Combined, parts=st.lists(parts, min_size=1, max_size=3).map(tuple)),
    max_leaves=5,
)
events = st.one_of(
    st.builds(RateStep, at_s=amounts, rate_bps=amounts, iteration=st.none() | st.integers(0, 9)),
    st.builds(Outage, at_s=amounts, duration_s=amounts, iteration=st.none() | st.integers(0, 9)),
    st.builds(
        lambda times, rate_bps: CapacityTrace(
            steps=tuple((at_s, rate_bps + number) for number, at_s in enumerate(sorted({0.0, *times}))),
            period_s=max(times) + 1 if len(times) % 2 else None,
        ),
        st.lists(amounts, max_size=5),
        amounts,
    ),
)


@st.composite
def links(draw: Any, name: str) -> LinkSpec:
    return plane(
        name,
        rate_bps=draw(amounts),
        delay_s=draw(st.floats(0, 10)),
        queue_bytes=draw(st.none() | st.integers(1, 2**40)),
        loss=draw(losses),
        loss_back=draw(st.none() | losses),
        reorder=draw(st.just(0.0) | st.floats(0.001, 1)),
        reorder_delay_s=draw(st.floats(1e-6, 1)),
        events=tuple(draw(st.lists(events, max_size=1))),
    )


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
uses = st.builds(
    TransportUse,
    name=st.text(min_size=1),
    parameters=st.lists(st.tuples(st.text(), st.booleans() | numbers | st.text())).map(tuple),
)


@st.composite
def specs(draw: Any) -> RunSpec:
    topology = planes(*(draw(links(f"plane{number}")) for number in range(draw(st.integers(1, 4)))))
    paths = tuple(topology.paths)
    shard_bytes, seed, iterations = draw(st.integers(4, 2**30)), draw(st.integers(0, 2**62)), draw(st.integers(1, 9))
    allreduce = AllReduceSpec(sites=("west", "east"), shard_bytes=shard_bytes, seed=seed)
    job = JobSpec(name="job", transport=draw(uses), paths=paths, allreduce=allreduce, iterations=iterations)
    flow = BackgroundSpec(
        name="other",
        transport=draw(uses),
        paths=paths[:1],
        source="east",
        destination="west",
        message_bytes=draw(st.integers(1, 2**60)),
        messages=draw(st.none() | st.integers(1, 9)),
    )
    return RunSpec(
        name=draw(st.text(min_size=1)),
        topology=topology,
        jobs=(job,),
        background=draw(st.sampled_from([(), (flow,)])),
        seed=draw(st.integers(0, 2**62)),
        time_limit_s=draw(amounts),
        sample_interval_s=draw(st.none() | amounts),
        scale=draw(amounts),
    )


@given(specs())
def test_every_specification_comes_back_equal_and_has_one_text(spec: RunSpec) -> None:
    text = encode_specification(spec)
    again = decode_specification(text)
    assert again == spec
    assert list(again.topology.links) == list(spec.topology.links)  # equality does not look at their order
    assert encode_specification(again) == text


SPEC = RunSpec(
    name="run",
    topology=planes(plane(loss=Bernoulli(probability=0.5))),
    jobs=(
        JobSpec(
            name="job",
            transport=TransportUse(name="reno"),
            paths=("plane0",),
            allreduce=AllReduceSpec(sites=("west", "east"), shard_bytes=1000),
            iterations=1,
        ),
    ),
)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("Bernoulli", "System", "topology.links.plane0.loss: 'System' is not one of NoLoss, Bernoulli, "),
        ('"iterations":1', '"iterations":"1"', "jobs.0.iterations: '1' is not a int"),
        ('"iterations":1', '"iterations":0', "jobs.0: iterations: 0 is not a whole number of at least 1"),
        ('"seed":0,"time', '"time', "'seed' is missing"),
        ('"seed":0,"time', '"extra":1,"seed":0,"time', "'extra' is unknown"),
        ("{", "[", "it is not JSON: "),
        ('"scale":1.0', '"scale":NaN', "NaN is not a number of JSON"),
        ('"name":"run"', '"name":"é"', "it is not JSON: "),
    ],
)
def test_a_text_that_holds_no_specification_is_refused_in_one_sentence(old: str, new: str, sentence: str) -> None:
    text = encode_specification(SPEC)
    assert old in text
    with pytest.raises(WireFormatError) as refused:
        decode_specification(text.replace(old, new, 1))
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_the_text_is_json_without_blanks_and_a_loss_names_its_class() -> None:
    text = encode_specification(SPEC)
    assert json.loads(text)["topology"]["links"]["plane0"]["loss"] == {"Bernoulli": {"probability": 0.5}}
    assert " " not in text


def test_the_compared_job_is_the_first_that_is_asked_for() -> None:
    assert compared_job(SPEC, ("other", "job")) is SPEC.jobs[0]
    with pytest.raises(ValueError, match=r"^jobs: none of other is in the run run$"):
        compared_job(SPEC, ("other",))
