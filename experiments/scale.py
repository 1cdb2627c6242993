"""`--scale`: by how much rates and payloads are divided, and what that does to what is compared."""

from collections.abc import Mapping, Sequence
from inspect import signature

from emulation.base import Backend, UnsupportedError
from emulation.registry import UnknownBackendError
from experiments.reading import ScenarioError
from experiments.runner import World
from experiments.scenario import Scenario
from wan.checks import quoted
from wan.scaling import DimensionlessGroups, dimensionless_groups, round_divisor, scaled_topology

LEAST_DIVISOR, LARGEST_DIVISOR = 1e-3, 1e6  # beyond which no scenario is left of what it was


def parse_divisor(text: str) -> float | None:
    """Return what `--scale` says, None for "auto". Raises ScenarioError in one sentence."""
    if text == "auto":
        return None
    try:
        divisor = float(text)
    except ValueError:
        divisor = 0.0
    if not LEAST_DIVISOR <= divisor <= LARGEST_DIVISOR:
        raise ScenarioError(
            f"--scale: {quoted(text)} is neither 'auto' nor a number from {LEAST_DIVISOR:g} to {LARGEST_DIVISOR:g}"
        )
    return divisor


def make_backend(world: World, name: str, options: Mapping[str, str]) -> Backend:
    """Return the backend called `name`. Raises ScenarioError where there is none, or it has no such option."""
    try:
        backend = world.backends.resolve(name)
    except UnknownBackendError as error:
        raise ScenarioError(f"--backend: {error}") from error
    known = signature(backend).parameters
    for option in options:
        if option not in known:
            raise ScenarioError(f"--{option}: {name} has no choice of it")
    return backend(world.transports, **options)


def fitting_divisor(backend: Backend, scenario: Scenario, transports: Sequence[str]) -> float:
    """Return a round number by which every one of `transports` fits the backend's machine, the same for all.

    A transport that the world does not support at any scale is left out here; its run will say why.
    Raises UnsupportedError when that is every one of them.
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


def scale_notes(scenario: Scenario, divisor: float) -> list[str]:
    """Return what dividing by `divisor` keeps and what it does not, for the first job's first path, as sentences."""
    if divisor == 1:
        return []
    job = scenario.jobs[0]
    path = job.paths[0]
    whole = [scenario.topology.path_rate_bps(name) for name in job.paths]
    payload_bytes = job.allreduce.trip_bytes(0) * whole[0] / sum(whole)
    scaled = scaled_topology(scenario.topology, divisor)
    full = dimensionless_groups(scenario.topology, path, payload_bytes)
    here = dimensionless_groups(scaled, path, payload_bytes / divisor)
    return [
        f"kept: payload/BDP {here.payload_per_bdp:.2g}. not kept, at full rate → here: {_changed(full, here)}.",
    ]


def _changed(full: DimensionlessGroups, here: DimensionlessGroups) -> str:
    changes = [f"BDP {full.bdp_packets:.3g} → {here.bdp_packets:.3g} packets"]
    if full.losses_per_burst is not None and here.losses_per_burst is not None:
        changes.append(f"losses per burst {full.losses_per_burst:.2g} → {here.losses_per_burst:.2g}")
    if full.window_per_bdp is not None and here.window_per_bdp is not None and full.losses_per_burst:
        changes.append(f"loss-limited window/BDP {full.window_per_bdp:.2g} → {here.window_per_bdp:.2g}")
    return ", ".join(changes)
