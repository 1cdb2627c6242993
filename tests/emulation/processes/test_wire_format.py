"""Decoding returns what was encoded, and names the place of anything else."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, nan, pi
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.base import RunSpec
from bicoastal.emulation.processes.wire_format import KINDS, WireFormat, WireFormatError
from bicoastal.experiments.scenario.bundled import bundled_names
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.registry import Registry
from bicoastal.wan import loss, recorded_loss
from bicoastal.wan.schedule import Outage, RateStep
from bicoastal.wan.topology import Topology

RUN_SPECS = WireFormat[RunSpec](RunSpec)
TRANSPORTS = Registry.installed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    flag: bool
    count: int
    share: float
    name: str
    mode: Literal["fast", "slow"]
    pair: tuple[int, str]
    row: tuple[float, ...]
    by_name: Mapping[str, tuple[int, ...]]
    value: str | int | float | bool
    event: RateStep | Outage | None = None
    rest: "tuple[Everything, ...]" = ()


EVERYTHING = WireFormat[Everything](Everything)
FULL = Everything(
    flag=True,
    count=-(2**70),
    share=pi,
    name='é"\\\n\0\ud800',
    mode="slow",
    pair=(1, "one"),
    row=(0.1, 5e-324, 1.7976931348623157e308, -0.0, 3),
    by_name={"b": (), "a": (1, 2)},
    value=False,
    event=Outage(at_s=1.0, duration_s=2.0),
)


@pytest.mark.parametrize("name", bundled_names("scenarios"))
def test_every_bundled_run_comes_back_as_it_was(name: str) -> None:
    scenario = load_scenario(name, TRANSPORTS)
    for transport in scenario.transports:
        spec = scenario.run_spec(transport, seed=7)
        again = RUN_SPECS.decode(RUN_SPECS.encode(spec))
        assert again == spec
        assert repr(again) == repr(spec)  # the order of paths, and 1 beside 1.0, which are equal


def loss_models() -> list[loss.LossSpec]:
    bursts = loss.GilbertElliott.from_means(mean_loss=0.01, mean_burst_packets=7)
    made: list[loss.LossSpec] = [
        loss.NoLoss(),
        loss.Bernoulli(probability=1e-4),
        loss.Periodic(every=100, first=None, min_wire_bytes=100),
        bursts,
        loss.TailOfBurst(packets=3),
        recorded_loss.Listed(indices=(5, 1)),
        recorded_loss.Trace(outcomes=(True, False), repeat=False),
    ]
    return [*made, loss.Combined(parts=(*made, loss.Combined(parts=(bursts,))))]


@pytest.mark.parametrize("model", loss_models(), ids=lambda model: type(model).__name__)
def test_every_model_of_loss_comes_back(model: loss.LossSpec) -> None:
    losses = WireFormat[loss.LossSpec](loss.LossSpec)
    assert losses.decode(losses.encode(model)) == model


def test_every_model_of_loss_there_is_has_a_form() -> None:
    classes = [
        kind
        for module in (loss, recorded_loss)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, loss.LossSpec)
    ]
    assert {kind for kind in classes if not inspect.isabstract(kind)} == set(KINDS[loss.LossSpec])
    assert {type(model) for model in loss_models()} == set(KINDS[loss.LossSpec])


def test_every_supported_type_comes_back_exactly() -> None:
    nested = replace(FULL, rest=(FULL, replace(FULL, value=1, event=None)))
    again = EVERYTHING.decode(EVERYTHING.encode(nested))
    assert repr(again) == repr(nested)


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.integers() | st.booleans() | st.text())
def test_numbers_and_text_lose_nothing(share: float, name: str, value: str | int | bool) -> None:
    spec = replace(FULL, share=share, name=name, by_name={name: (1,)}, value=value)
    assert repr(EVERYTHING.decode(EVERYTHING.encode(spec))) == repr(spec)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"share": nan}, "share: nan is not a finite float"),
        ({"share": inf}, "share: inf is not a finite float"),
        ({"count": True}, "count: True is not a int"),
        ({"mode": "medium"}, "mode: 'medium' is not one of 'fast', 'slow'"),
        ({"pair": (1,)}, "pair: there are 1 elements instead of 2"),
        ({"row": (1.0, "2")}, "row.1: '2' is not a finite float"),
        ({"row": [1.0]}, "row: [1.0] is not a tuple"),
        ({"by_name": {1: ()}}, "by_name: the key 1 is not a str"),
        ({"value": None}, "value: None has none of the allowed types"),
        ({"event": pi}, "event: 3.141592653589793 has none of the allowed types"),
        ({"rest": (pi,)}, "rest.0: 3.141592653589793 is not a Everything"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_what_is_not_as_declared_is_not_written(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(WireFormatError) as caught:
        EVERYTHING.encode(replace(FULL, **changes))
    assert str(caught.value) == said


def test_a_subclass_is_not_written_since_its_fields_would_be_lost() -> None:
    class More(loss.Bernoulli):
        pass

    losses = WireFormat[loss.LossSpec](loss.LossSpec)
    with pytest.raises(WireFormatError, match=r"is not one of NoLoss, Bernoulli, "):
        losses.encode(More(probability=0.5))


def tampered(*keys: str | int, to: Any) -> bytes:
    """Return the first bundled run with one thing in it replaced; `...` removes it."""
    document = json.loads(RUN_SPECS.encode(load_scenario("coast-to-coast", TRANSPORTS).run_spec("reno", seed=1)))
    place = document
    for key in keys[:-1]:
        place = place[key]
    if to is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = to
    return json.dumps(document).encode()


PLANE = ("topology", "links", "plane0")


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (tampered("extra", to=1), "'extra' is unknown"),
        (tampered("seed", to=...), "'seed' is missing"),
        (tampered("seed", to="1"), "seed: '1' is not a int"),
        (tampered("seed", to=1.0), "seed: 1.0 is not a int"),
        (tampered("seed", to=None), "seed: None is not a int"),
        (tampered("eager_encoding", to=1), "eager_encoding: 1 is not a bool"),
        (tampered("jobs", to={}), "jobs: {} is not an array"),
        (tampered("jobs", to=[]), "jobs: a run needs at least one job"),
        (tampered("jobs", 0, "gap_s", to=-1), "jobs.0: gap_s: -1 is not a finite number of at least zero"),
        (tampered("jobs", 0, "allreduce", "pattern", to="both"), "jobs.0.allreduce.pattern: 'both' is not one of"),
        (tampered(*PLANE, "loss", to={"Bernoulli": {"probability": 2}}), "topology.links.plane0.loss.Bernoulli: "),
        (tampered(*PLANE, "loss", to={"LinkSpec": {}}), "topology.links.plane0.loss: 'LinkSpec' is not one of NoLoss"),
        (tampered(*PLANE, "loss", to={"os.system": {"command": "true"}}), "topology.links.plane0.loss: 'os.system' is"),
        (tampered(*PLANE, "loss", to={"NoLoss": {}, "Bernoulli": {}}), "topology.links.plane0.loss: {'NoLoss': {}"),
        (tampered(*PLANE, "name", to="other"), "topology: "),
        (tampered(*PLANE, "rate_bps", to=10**400), "topology.links.plane0.rate_bps: 10000"),
        (tampered("name", to="x").replace(b'"x"', b"Infinity"), "Infinity is not a number of JSON"),
        (tampered("time_limit_s", to=0.5).replace(b"0.5", b"1e999"), "time_limit_s: inf is not a finite float"),
        (b'{"seed": 1, "seed": 2}', "a key is there twice"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"\xff\xfe", "it is not JSON: "),
        (b"\xff", "it is not JSON: "),
        (b"", "it is not JSON: "),
        (b"9" * 5000, "it is not JSON: "),
        (b"{}{}", "it is not JSON: "),
        (b"null", "None is not an object"),
        (b"cos\nsystem\n(S'true'\ntR.", "it is not JSON: "),
    ],
    ids=lambda case: "" if isinstance(case, str) else None,
)
def test_what_was_not_written_here_is_refused_by_its_place(octets: bytes, said: str) -> None:
    with pytest.raises(WireFormatError) as caught:
        RUN_SPECS.decode(octets)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_arbitrary_octets_are_refused(octets: bytes) -> None:
    with pytest.raises(WireFormatError):
        RUN_SPECS.decode(octets)


class Stranger:
    pass


@pytest.mark.parametrize(
    "declared",
    [object, Any, list[int], bytes, Mapping[int, str], Stranger, tuple[int, ...] | tuple[str, ...], loss.LossProcess],
    ids=str,
)
def test_an_unsupported_type_raises_at_once(declared: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be encoded"):
        WireFormat[Any](declared)


def test_a_key_that_is_not_its_parts_name_is_refused() -> None:
    topologies = WireFormat[Topology](Topology)
    document = json.loads(topologies.encode(load_scenario("lossless", TRANSPORTS).topology))
    document["paths"]["other"] = document["paths"].pop("plane0")
    with pytest.raises(WireFormatError, match=r"^paths: Topology changes its value$"):
        topologies.decode(json.dumps(document).encode())
