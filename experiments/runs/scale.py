"""The scale of a run: the number by which rates and payloads are divided, and the one that fits a backend's machine."""

from collections.abc import Mapping, Sequence
from inspect import signature

from bicoastal.emulation.base import Backend, UnsupportedError
from bicoastal.emulation.registry import UnknownBackendError
from bicoastal.experiments.runs.runner import Registries
from bicoastal.experiments.scenario.scenario import Scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.wan.checks import quoted
from bicoastal.wan.scaling import round_divisor

LEAST_DIVISOR, LARGEST_DIVISOR = 1e-3, 1e6  # a scenario scaled by more has nothing left of what it was


def parse_divisor(text: str) -> float | None:
    """Return the number that `text` gives, None for "auto". Raises ScenarioError in one sentence."""
    if text == "auto":
        return None
    try:
        divisor = float(text)
    except ValueError:
        divisor = 0.0
    if not LEAST_DIVISOR <= divisor <= LARGEST_DIVISOR:
        raise ScenarioError(
            f"scale: {quoted(text)} is neither 'auto' nor a number from {LEAST_DIVISOR:g} to {LARGEST_DIVISOR:g}"
        )
    return divisor


def make_backend(registries: Registries, name: str, options: Mapping[str, str]) -> Backend:
    """Return the backend called `name`. Raises ScenarioError where there is none, or it has no such option."""
    try:
        backend = registries.backends.resolve(name)
    except UnknownBackendError as error:
        raise ScenarioError(f"backend: {error}") from error
    known = signature(backend).parameters
    for option in options:
        if option not in known:
            raise ScenarioError(f"{option}: {name} has no choice of it")
    return backend(registries.transports, **options)


def fitting_divisor(backend: Backend, scenario: Scenario, transports: Sequence[str]) -> float:
    """Return one round divisor with which all of `transports` fit the backend's machine.

    A transport that the backend does not support at any scale is left out here; its run says why. Raises
    UnsupportedError where the backend supports none of them.
    """
    least, refusals = [], []
    for transport in transports:
        try:
            least.append(backend.least_scale(scenario.run_spec(transport, seed=scenario.seed)))
        except UnsupportedError as error:
            refusals.append(str(error))
    if not least:
        raise UnsupportedError("; ".join(dict.fromkeys(refusals)))
    return float(round_divisor(max(least)))
