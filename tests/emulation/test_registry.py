"""Backends are found by their entry points, and an error of one is reported in a sentence."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from bicoastal.emulation.registry import GROUP, BackendRegistry, UnknownBackendError
from bicoastal.emulation.simulator import SimulatorBackend


def registry(**values: str) -> BackendRegistry:
    return BackendRegistry({name: EntryPoint(name=name, value=value, group=GROUP) for name, value in values.items()})


def test_the_simulator_is_found_by_its_entry_point() -> None:
    assert BackendRegistry.installed().resolve("sim") is SimulatorBackend
    assert "sim" in BackendRegistry.installed().names()


def test_names_are_sorted_and_nothing_is_imported_before_it_is_resolved() -> None:
    made = registry(zeta="no_such_module:Backend", alpha="bicoastal.emulation.simulator:SimulatorBackend")
    assert made.names() == ("alpha", "zeta")
    assert made.resolve("alpha") is SimulatorBackend


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mars", r"^there is no backend 'mars'; there are absent, broken, instance, leaving, missing, other$"),
        ("m" * 5000, r"^there is no backend 'm{58}…; there are absent, "),
        ("broken", r"^backend 'broken' cannot be loaded: ZeroDivisionError: "),
        ("leaving", r"^backend 'leaving' cannot be loaded: SystemExit: 3$"),
        ("missing", r"^backend 'missing' cannot be loaded: No module named 'no_such_module'$"),
        ("absent", r"^backend 'absent' cannot be loaded: .*no attribute 'NoSuchBackend'$"),
        ("instance", r"^backend 'instance' is not a Backend$"),
        ("other", r"^backend 'other' is not a Backend$"),
    ],
)
def test_a_backend_that_cannot_be_loaded_is_reported_in_one_sentence(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_broken_backend.py").write_text("1 / 0")
    (tmp_path / "a_leaving_backend.py").write_text("raise SystemExit(3)")
    made = registry(
        broken="a_broken_backend:Backend",
        leaving="a_leaving_backend:Backend",
        missing="no_such_module:Backend",
        absent="bicoastal.emulation.simulator:NoSuchBackend",
        instance="bicoastal.emulation.registry:GROUP",
        other="bicoastal.emulation.clock:VirtualClock",
    )
    with pytest.raises(UnknownBackendError, match=message):
        made.resolve(name)
