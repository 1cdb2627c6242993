"""What the tests of tails share: messages through the simulator, and trials of any model."""

import numpy as np
import numpy.typing as npt

from experiments.extrapolation import tails_trials
from experiments.extrapolation.tails import Crossing, TailModel
from runs import job, plane, planes, run_spec, simulate
from wan.loss import Bernoulli, LossSpec

Array = npt.NDArray[np.float64]
SHARES = (0.5, 0.99, 0.999)


def trials(model: TailModel, crossing: Crossing, messages: int, seed: int = 5) -> Array:
    """Return completions of `messages` messages whose losses are drawn one by one."""
    return tails_trials.trials(model, crossing, messages, np.random.default_rng(seed))


def simulated(
    transport: str,
    crossing: Crossing,
    *,
    runs: int,
    iterations: int,
    first: int = 0,
    paths: int = 8,
    lost: LossSpec | None = None,
) -> Array:
    """Return completions of single-path messages in `sim`, of all iterations from `first` on, over seeds 0 to runs.

    lost: in the place of what the crossing loses by chance.
    """
    found = []
    for seed in range(runs):
        links = [
            plane(
                f"plane{index}",
                rate_bps=float(crossing.rate_bps),
                delay_s=float(crossing.rtt_s) / 2,
                mtu_bytes=crossing.mtu_bytes,
                loss=lost or Bernoulli(probability=float(crossing.loss)),
            )
            for index in range(paths)
        ]
        jobs = [
            job(
                transport,
                name=f"job{index}",
                paths=(link.name,),
                shard_bytes=int(crossing.payload_bytes),
                iterations=iterations,
                gap_s=crossing.idle_s,
                array_bytes=4096,
                start_s=0.5,
            )
            for index, link in enumerate(links)
        ]
        record = simulate(run_spec(planes(*links), *jobs, seed=seed, time_limit_s=1000.0))
        assert record.status == "ok", record.reason
        found += [flow.completion_s for flow in record.flows if flow.iteration >= first]
    return np.array(found, dtype=float)
