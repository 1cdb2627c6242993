"""`--scale` and `--impairment`: what is divided, what fits, and what the table says of it."""

import json
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from bicoastal.emulation.base import RunSpec, UnsupportedError
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.registry import GROUP, BackendRegistry
from bicoastal.experiments import cli
from bicoastal.experiments.runs.notes import scale_notes
from bicoastal.experiments.runs.runner import Registries, plan
from bicoastal.experiments.runs.scale import fitting_divisor, make_backend, parse_divisor
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.transports.registry import Registry
from helpers.fake_backends import TRANSPORTS, PlainBackend


class NarrowBackend(PlainBackend):
    """A world that carries 100 Mbit/s on each link, less of `adaptive`, and nothing of `unfit`."""

    def __init__(self, registry: Registry, *, impairment: str = "relay") -> None:
        super().__init__(registry)
        self.impairment = impairment

    def least_scale(self, spec: RunSpec) -> float:
        name = spec.jobs[0].transport.name
        if name in ("unfit", "broken"):
            raise UnsupportedError(f"{name} fits at no scale")
        ceiling_bps = 3e7 if name == "adaptive" else 1e8
        return max(1.0, max(link.rate_bps for link in spec.topology.links.values()) / ceiling_bps)

    def run(self, spec: RunSpec) -> RunRecord:
        if self.least_scale(spec) > 1:
            raise UnsupportedError("that is too much")
        return replace(super().run(spec), scale=spec.scale)


BACKENDS = BackendRegistry(
    {
        "plain": EntryPoint(name="plain", value="helpers.fake_backends:PlainBackend", group=GROUP),
        "narrow": EntryPoint(name="narrow", value=f"{__name__}:NarrowBackend", group=GROUP),
    }
)
WORLD = Registries(backends=BACKENDS, transports=TRANSPORTS)
SCENARIO = load_scenario("coast-to-coast", TRANSPORTS)  # 4 planes of 5 Gbit/s, 57.13 MB, RTT 60 ms, MTU 9000


@pytest.mark.parametrize(
    ("text", "divisor"), [("auto", None), ("1", 1.0), ("250", 250.0), ("2.5", 2.5), ("1e3", 1000.0), ("0.5", 0.5)]
)
def test_a_divisor_is_a_number_or_left_to_the_world(text: str, divisor: float | None) -> None:
    assert parse_divisor(text) == divisor


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e400", "Auto", "1:100", "ten"])
def test_what_is_no_divisor_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"^scale: '.*' is neither 'auto' nor a number from 0\.001 to 1e\+06$"):
        parse_divisor(text)


def test_an_option_goes_to_a_world_that_has_it_and_others_say_that_they_do_not() -> None:
    backend = make_backend(WORLD, "narrow", {"impairment": "netem"})
    assert isinstance(backend, NarrowBackend)
    assert backend.impairment == "netem"
    with pytest.raises(ScenarioError, match=r"^impairment: plain has no choice of it$"):
        make_backend(WORLD, "plain", {"impairment": "netem"})
    with pytest.raises(ScenarioError, match=r"^backend: there is no backend 'mars'; there are narrow, plain$"):
        make_backend(WORLD, "mars", {})


def test_the_same_round_divisor_fits_every_transport() -> None:
    backend = make_backend(WORLD, "narrow", {})
    assert fitting_divisor(backend, SCENARIO, ["cubic"]) == 50.0
    assert fitting_divisor(backend, SCENARIO, ["cubic", "adaptive", "unfit"]) == 200.0  # 5e9 / 3e7 = 167
    assert fitting_divisor(make_backend(WORLD, "plain", {}), SCENARIO, ["cubic"]) == 1.0
    with pytest.raises(UnsupportedError, match=r"^unfit fits at no scale; broken fits at no scale$"):
        fitting_divisor(backend, SCENARIO, ["unfit", "broken"])


def test_a_plan_divides_rates_and_payloads_and_says_by_how_much() -> None:
    (task,) = plan(
        SCENARIO, backend="narrow", transports=["cubic"], seeds=[0], scale=50.0, options={"impairment": "relay"}
    )
    (whole,) = plan(SCENARIO, backend="narrow", transports=["cubic"], seeds=[0])
    assert task.spec.scale == 50.0
    assert {link.rate_bps for link in task.spec.topology.links.values()} == {1e8}
    assert task.spec.jobs[0].allreduce.shard_bytes == pytest.approx(57.13e6 / 50, rel=1e-4)
    assert task.options == (("impairment", "relay"),)
    assert task.key != whole.key
    assert replace(task, options=()).key != task.key
    assert replace(task, options=(("impairment", "netem"),)).key != task.key


def test_what_dividing_keeps_and_does_not_is_told_with_both_figures() -> None:
    assert scale_notes(SCENARIO, 1.0) == []
    # 57.13 MB over 4 planes: 14.28 MB each; BDP 5 Gbit/s * 60 ms = 37.5 MB = 4167 packets of 9000 bytes.
    # coast-to-coast loses 1e-4: 0.159 packets of a burst. Reno's window sqrt(1.5 / 1e-4) is 122 packets.
    assert scale_notes(SCENARIO, 100.0) == [
        "kept: payload/BDP 0.38. not kept, at full rate → here: BDP 4.17e+03 → 41.7 packets, "
        "losses per burst 0.16 → 0.0016, loss-limited window/BDP 0.029 → 2.9."
    ]


@pytest.fixture
def _world(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(BackendRegistry, "installed", lambda: BACKENDS)
    monkeypatch.setattr(Registry, "installed", lambda: TRANSPORTS)
    monkeypatch.chdir(str(tmp_path))


@pytest.mark.usefixtures("_world")
def test_compare_scales_by_itself_or_as_told(capsys: pytest.CaptureFixture[str]) -> None:
    narrow = ["compare", "--backend", "narrow", "--transport", "cubic", "--iterations", "2"]
    for arguments, scale in (([], 50.0), (["--scale", "200"], 200.0)):
        assert cli.main([*narrow, *arguments, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["scale"], document["transports"][0]["status"]) == (scale, "ok")
    assert cli.main([*narrow, "--scale", "1", "--json"]) == 3  # never clipped in silence
    (refused,) = json.loads(capsys.readouterr().out)["transports"]
    assert (refused["status"], refused["reason"], refused["n"]) == ("unsupported", "that is too much", 0)


@pytest.mark.usefixtures("_world")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--scale", "zero"], "--scale: 'zero' is neither 'auto' nor a number from 0.001 to 1e+06"),
        (["--backend", "plain", "--impairment", "relay"], "--impairment: plain has no choice of it"),
        (["--impairment", "rain"], "argument --impairment: invalid choice: 'rain' "),
        (["--backend", "mars"], "--backend: there is no backend 'mars'; there are narrow, plain"),
    ],
)
def test_wrong_options_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", "--backend", "narrow", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"bicoastal: {sentence}")
    assert printed.err.count("\n") == 1
