"""Many messages at once: loss processes drawn packet by packet, and what each transport's recovery makes of them.

These trials stand between the simulator, which they are checked against, and the closed forms, which they check. They
follow a transport's rules for each lost packet, but know no frames, timers' granularity or acknowledgements' sizes. One
path, which carries nothing but the message, and where the model of TCP says so, as much in the other direction; losses
are independent. `rng` is the caller's, so the same seed gives the same figures.
"""

from dataclasses import replace
from math import ceil

import numpy as np
import numpy.typing as npt

from bicoastal.experiments.extrapolation.tails.coded import Coded
from bicoastal.experiments.extrapolation.tails.gobackn import GoBackN, stall_s
from bicoastal.experiments.extrapolation.tails.model import Array, Crossing, TailModel
from bicoastal.experiments.extrapolation.tails.paced import FecBlocks, SelectiveRepeat
from bicoastal.experiments.extrapolation.tails.window import Tcp

Places = npt.NDArray[np.int64]

MOST_AT_ONCE = 4_000_000  # losses that are held in memory together
MOST_ATTEMPTS = 200
TIME_APART, TAIL_APART = 0.05, 0.25  # by how much a model's quantile, or its tail's probability, may be off


def lost_positions(rng: np.random.Generator, loss: float, packets: int, trials: int) -> tuple[Places, Places]:
    """Return (trial, packet) of every loss, in order, of `trials` messages: geometric gaps in one long sequence."""
    total = packets * trials
    if loss <= 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    parts: list[Places] = []
    reached = -1
    while reached < total:
        size = int((total - reached) * loss + 10 * np.sqrt(total * loss) + 100)
        part = reached + np.cumsum(np.minimum(rng.geometric(loss, size), total + 1))
        parts.append(part)
        reached = int(part[-1])
    positions = np.concatenate(parts)
    positions = positions[positions < total]
    return positions // packets, positions % packets


def _packets(model: SelectiveRepeat, crossing: Crossing) -> int:
    """Return how many packets go out where nothing is repaired."""
    count = int(model.units(crossing).count)
    return count * model.block_packets if isinstance(model, FecBlocks) else count


def _failures(
    model: SelectiveRepeat, crossing: Crossing, rng: np.random.Generator, count: int, trials: int
) -> tuple[Places, Places]:
    """Return (trial, unit) of every unit that fails: a packet that is lost, or a block that has lost too many."""
    loss = float(crossing.loss)
    if not isinstance(model, FecBlocks):
        return lost_positions(rng, loss, count, trials)
    trial, packet = lost_positions(rng, loss, count * model.block_packets, trials)
    blocks, lost = np.unique(trial * count + packet // model.block_packets, return_counts=True)
    failed = blocks[lost > model.repair_packets]
    return failed // count, failed % count


def selective_repeat_trials(model: SelectiveRepeat, crossing: Crossing, trials: int, rng: np.random.Generator) -> Array:
    """Return the completion of `trials` messages, seconds; `crossing` has scalars only."""
    units = model.units(crossing)
    count, loss = int(units.count), float(units.loss)
    unit_s, rtt_s, short_s = float(units.unit_s), float(units.rtt_s), float(units.short_s)
    repair_s = float(model.repair.of(rtt_s, unit_s))
    tail_s = float(model.tail.of(rtt_s, unit_s))
    out = np.empty(trials)
    chunk = max(1, min(trials, int(MOST_AT_ONCE / max(_packets(model, crossing) * float(crossing.loss), 1.0))))
    for begin in range(0, trials, chunk):
        size = min(chunk, trials - begin)
        trial, unit = _failures(model, crossing, rng, count, size)
        key = trial * (2 * count) + unit
        lag = int(repair_s / unit_s)
        first = np.searchsorted(trial, np.arange(size))  # index of each trial's first loss
        repaired = np.searchsorted(key, trial * (2 * count) + unit - lag, side="right")
        shift = np.clip(repaired - first[trial], 0, None) * model.copies
        in_time = np.searchsorted(key, np.arange(size) * (2 * count) + (count - 1 - lag), side="right")
        ends = (count + np.clip(in_time - first, 0, None) * model.copies) * unit_s
        sent = (unit + shift) * unit_s
        last = unit >= count - model.tail_packets
        done = np.zeros(len(unit), bool)
        at = sent.copy()
        if model.tail_copies > 1 and model.tail_packets:
            copied = last & (rng.random(len(unit)) >= loss ** (model.tail_copies - 1))
            at = np.where(copied, sent + model.tail_packets * unit_s, at)
            done |= copied
        for attempt in range(MOST_ATTEMPTS):
            open_ = np.flatnonzero(~done)
            if not len(open_):
                break
            delay = np.where(last[open_] & (attempt == 0), tail_s, repair_s)
            at[open_] += delay
            copies = np.where(at[open_] >= ends[trial[open_]], model.late_copies, model.copies)
            done[open_] = rng.random(len(open_)) >= loss**copies
        else:
            raise RuntimeError(f"a packet was lost {MOST_ATTEMPTS} times in a row")
        arrived = ends - short_s
        np.maximum.at(arrived, trial, at + unit_s)
        out[begin : begin + size] = arrived + rtt_s / 2
    return out


def go_back_n_trials(model: GoBackN, crossing: Crossing, trials: int, rng: np.random.Generator) -> Array:
    """Return the completion of `trials` messages, seconds; `crossing` has scalars only."""
    packets, loss = int(crossing.packets(model.header_bytes)), float(crossing.loss)
    packet_s, rtt_s = float(crossing.packet_s(model.pace)), float(crossing.rtt_s)
    back_s, timeout_s = model.back_s(rtt_s, packet_s), model.timeout_s(rtt_s, packet_s)
    time = np.full(trials, packets * packet_s + rtt_s / 2 - model.short_s(crossing))
    if loss <= 0:
        return time
    at = np.zeros(trials, np.int64)  # the next packet that is expected
    rewound = -rng.geometric(loss, trials)  # to which packet it last went back, in messages before
    alive = np.arange(trials)
    while len(alive):
        at[alive] += rng.geometric(loss, len(alive)) - 1
        alive = alive[at[alive] < packets]
        if not len(alive):
            break
        here, left = at[alive], packets - at[alive]
        told = (rng.random(len(alive)) >= loss) & (left > 1)
        window = np.where(
            told, np.maximum(model.least_window, model.gain * (here - rewound[alive])), model.least_window
        )
        cost = np.where(told, back_s, timeout_s)
        again = rng.random(len(alive)) < loss
        while np.any(again):
            cost = np.where(again, cost + timeout_s, cost)
            window = np.where(again, model.least_window, window)
            again &= rng.random(len(alive)) < loss
        cost = cost + stall_s(model, window.astype(float), left.astype(float), rtt_s, packet_s)
        time[alive] += cost
        rewound[alive] = here
        at[alive] += 1
    return time


def trials(model: TailModel, crossing: Crossing, messages: int, rng: np.random.Generator) -> Array:
    """Return the completion of `messages` messages whose losses are drawn one by one; `crossing` has scalars only.

    Raises TypeError for a model of another kind than those of `tails_models`.
    """
    match model:
        case Tcp():
            return model.trials(crossing, messages, rng)
        case GoBackN():
            return go_back_n_trials(model, crossing, messages, rng)
        case Coded():
            count = int(crossing.packets(model.header_bytes))
            lost = rng.negative_binomial(count, 1 - float(crossing.loss), size=messages)
            clean_s = float(model.quantile_s(replace(crossing, loss=0.0), 0.0))
            return np.asarray(clean_s + lost * float(crossing.packet_s()), dtype=float)
        case SelectiveRepeat():
            return selective_repeat_trials(model, crossing, messages, rng)
    raise TypeError(f"{model.name} has no trials")


def quantile(values: Array, share: float) -> float:
    """Return the nearest-rank quantile."""
    return float(np.sort(values)[ceil(share * len(values) - 1e-9) - 1])


def agrees(model: TailModel, crossing: Crossing, values: Array, share: float) -> bool:
    """Tell whether a model's quantile is within 5 % of a sample's or, where they straddle a step, its tail within 25 %.

    The probability to be later than half-way between the two is compared; 3 standard errors are the sample's own.
    """
    ours, theirs = float(model.quantile_s(crossing, np.log(share))), quantile(values, share)
    if abs(ours / theirs - 1) <= TIME_APART:
        return True
    between = (ours + theirs) / 2
    later, share_later = -np.expm1(float(model.log_cdf(crossing, between))), float(np.mean(values > between))
    noise = 3 * np.sqrt(max(share_later, 1 / len(values)) / len(values))
    return bool(abs(later - share_later) <= TAIL_APART * max(later, share_later) + noise)
