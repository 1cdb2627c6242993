"""An invalid run is refused when it is made, in a sentence that names the field."""

from dataclasses import replace
from typing import Any

import pytest

from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.small_runs import background, job, plane, planes, run_spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, r"^name: ' ' is not a name$"),
        ({"iterations": 0}, r"^iterations: 0 is not a whole number of at least 1$"),
        ({"iterations": 1.5}, r"^iterations: 1.5 is not a whole number"),
        ({"gap_s": -1.0}, r"^gap_s: -1.0 is not a finite number of at least zero$"),
        ({"gap_s": float("inf")}, r"^gap_s: inf is not a finite number"),
        ({"start_s": float("nan")}, r"^start_s: nan is not a finite number"),
        ({"paths": ()}, r"^paths: there is none$"),
        ({"paths": ("plane0", "plane1", "plane0")}, r"^paths: 'plane0' is there twice$"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        job(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"message_bytes": 0}, r"^message_bytes: 0 is not a whole number of at least 1$"),
        ({"messages": 0}, r"^messages: 0 is not a whole number of at least 1$"),
        ({"gap_s": -0.1}, r"^gap_s: -0.1 is not a finite number of at least zero$"),
        ({"start_s": -0.1}, r"^start_s: -0.1 is not a finite number of at least zero$"),
        ({"paths": ()}, r"^paths: there is none$"),
    ],
)
def test_other_traffic_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        background(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobs": ()}, r"^jobs: a run needs at least one job$"),
        ({"jobs": (job(), job())}, r"^jobs: two jobs or background flows are called 'job'$"),
        ({"background": (background(name="job"),)}, r"^jobs: two jobs or background flows are called 'job'$"),
        ({"time_limit_s": 0.0}, r"^time_limit_s: 0.0 is not a finite number above zero$"),
        ({"sample_interval_s": 0.0}, r"^sample_interval_s: 0.0 is not a finite number above zero$"),
        ({"jobs": (job(paths=("plane9",)),)}, r"^paths: job uses 'plane9', which the topology does not have$"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_spec(**changes)


def test_a_path_must_join_the_ends_of_its_traffic() -> None:
    topology = Topology(
        sites=[Site(name=name) for name in ("west", "east", "hub")],
        links=[plane(), LinkSpec(name="up", a="west", b="hub", rate_bps=1e9, delay_s=0.01)],
        paths=[
            Path(name="plane0", sites=("west", "east"), links=("plane0",)),
            Path(name="up", sites=("hub", "west"), links=("up",)),
        ],
    )
    with pytest.raises(ValueError, match=r"^paths: 'up' does not join west and east$"):
        run_spec(topology, job(paths=("up",)))
    with pytest.raises(ValueError, match=r"^paths: 'up' does not join west and east$"):
        run_spec(topology, background=(background(paths=("up",)),))
    assert run_spec(topology, background=(background(paths=("up",), source="west", destination="hub"),)).background


def test_traffic_lists_the_jobs_before_the_background() -> None:
    spec = run_spec(planes(plane()), job(name="b"), job(name="a"), background=(background(),))
    assert [part.name for part in spec.traffic] == ["b", "a", "others"]
    assert replace(spec, seed=1) != spec


def test_every_job_whose_array_is_scaled_says_so() -> None:
    small = {"shard_bytes": 4000, "array_bytes": 400}
    note = "Each rank's gradients are an array of 400 B, repeated to fill the 4 kB that cross the WAN."
    assert run_spec(planes(plane()), job()).array_note == ""
    assert run_spec(planes(plane()), job(**small)).array_note == note
    several = run_spec(planes(plane()), job(name="a"), job(name="b", **small), job(name="c", **small))
    assert several.array_note == f"b: {note} c: {note}"
