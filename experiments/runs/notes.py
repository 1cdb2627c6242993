"""Notes on the paths and the scale of a scenario's runs, "term: meaning" each, for people."""

from math import prod

from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.scenario.scenario import Scenario
from bicoastal.wan.loss import Bernoulli, NoLoss
from bicoastal.wan.scaling import DimensionlessGroups, dimensionless_groups, scaled_topology
from bicoastal.wan.units import format_rate, format_size, format_time


def paths_note(scenario: Scenario) -> str:
    """Return the paths of the jobs, at full rate, and the shard that crosses them."""
    kinds = [_kind(scenario, name) for name in dict.fromkeys(path for job in scenario.jobs for path in job.paths)]
    listed = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds))
    shards = dict.fromkeys(job.allreduce.shard_bytes for job in scenario.jobs)
    return f"paths: {listed}; shard: {', '.join(format_size(size) for size in shards)} in each direction."


def _kind(scenario: Scenario, path: str) -> str:
    topology = scenario.topology
    models = [link.loss for link in topology.path_links(path)]
    losses = [model.mean_loss for model in models]
    if None in losses:
        lost = "losses that depend on the traffic"
    else:
        loss = 1.0 - prod(1.0 - (share or 0.0) for share in losses)
        plain = all(isinstance(model, NoLoss | Bernoulli) for model in models)
        lost = f"{'' if plain else 'mean '}loss {value_text(float(f'{loss:.4g}'))}"
    return f"{format_rate(topology.path_rate_bps(path))} at RTT {format_time(topology.path_rtt_s(path))} and {lost}"


def scale_notes(scenario: Scenario, divisor: float) -> list[str]:
    """Return which ratios a division by `divisor` keeps and which not, for the first path of the first job."""
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
