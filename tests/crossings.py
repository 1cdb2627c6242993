"""What the tests of tails share: messages through the simulator, trials of any model, and when two tails agree."""

from dataclasses import replace
from math import ceil

import numpy as np
import numpy.typing as npt

from experiments.extrapolation.tails import Crossing, TailModel
from experiments.extrapolation.tails_coded import Coded
from experiments.extrapolation.tails_gobackn import GoBackN
from experiments.extrapolation.tails_paced import SelectiveRepeat
from experiments.extrapolation.tails_trials import go_back_n_trials, selective_repeat_trials
from experiments.extrapolation.tails_window import Tcp
from runs import job, plane, planes, run_spec, simulate
from wan.loss import Bernoulli, LossSpec

Array = npt.NDArray[np.float64]
SHARES = (0.5, 0.99, 0.999)


def trials(model: TailModel, crossing: Crossing, messages: int, seed: int = 5) -> Array:
    """Return completions of `messages` messages whose losses are drawn one by one."""
    rng = np.random.default_rng(seed)
    match model:
        case Tcp():
            return model.trials(crossing, messages, rng)
        case GoBackN():
            return go_back_n_trials(model, crossing, messages, rng)
        case Coded():
            count = int(crossing.packets(model.header_bytes))
            lost = rng.negative_binomial(count, 1 - float(crossing.loss), size=messages)
            return float(model.quantile_s(replace(crossing, loss=0.0), 0.0)) + lost * float(crossing.packet_s())
        case SelectiveRepeat():
            return selective_repeat_trials(model, crossing, messages, rng)
    raise TypeError(f"{model.name} has no trials")


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


def quantile(values: Array, share: float) -> float:
    """Return the nearest-rank quantile."""
    return float(np.sort(values)[ceil(share * len(values) - 1e-9) - 1])


def agrees(model: TailModel, crossing: Crossing, values: Array, share: float, *, time: float = 0.05) -> bool:
    """Tell whether a model's quantile is within 5 % of a sample's or, where they straddle a step, its tail within 25 %.

    The probability to be later than half-way between the two is compared; 3 standard errors are the sample's own.
    """
    ours, theirs = float(model.quantile_s(crossing, np.log(share))), quantile(values, share)
    if abs(ours / theirs - 1) <= time:
        return True
    between = (ours + theirs) / 2
    later, share_later = -np.expm1(float(model.log_cdf(crossing, between))), float(np.mean(values > between))
    noise = 3 * np.sqrt(max(share_later, 1 / len(values)) / len(values))
    return bool(abs(later - share_later) <= 0.25 * max(later, share_later) + noise)
