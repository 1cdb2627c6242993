"""How fast a million (bandwidth, RTT, loss, transport) points are sized up, on one core, and in how much memory.

    python benchmarks/extrapolation.py [POINTS]

Each point is the exposed share of a step of the hundred-trillion deployment, with the slowest of its 1,677,600
messages. Closed forms are computed at every point. The models that are computed point by point (go-back-N and TCP) are
tabulated once, and looked up; how far the table is off is shown too.
"""

import resource
import sys
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np

from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.bandwidth_need import Path, Question, gradient_exposed_s, step_share
from bicoastal.experiments.extrapolation.tails.model import Array, QuantileModel
from bicoastal.experiments.extrapolation.tails.models import MODELS
from bicoastal.experiments.extrapolation.tails.pointwise import PointwiseModel
from bicoastal.experiments.extrapolation.tails.slowest import log_share
from bicoastal.experiments.extrapolation.tails.table import CHUNK, Table
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.experiments.scenario.deployment import load_deployment

RATES_BPS, RTTS_S, LOSSES = (2e9, 2e12), (0.002, 0.12), (1e-6, 1e-2)
AXES = {True: (3, 4, 7), False: (5, 5, 13)}  # points of the tables of TCP, and of the others
TIME_LIMIT_S, MEMORY_LIMIT_BYTES = 2.0, 1e9
CHECKED = 40


def tabulate(model: QuantileModel, question: Question) -> Table:
    fleet = question.fleet
    rates, rtts, losses = AXES[isinstance(model, Tcp)]
    if isinstance(model, Tcp):
        model = replace(model, samples=1024)
    return Table.of(
        model,
        fleet.part(model, question.crossing(1e10)),
        float(log_share(model, fleet, question.share, question.dependence)),
        rates_bps=np.geomspace(*RATES_BPS, rates) / (1 if model.spreads else fleet.planes),
        rtts_s=np.geomspace(*RTTS_S, rtts),
        losses=np.geomspace(*LOSSES, losses),
    )


def shares(question: Question, model: QuantileModel, rates_bps: Array, rtts_s: Array, losses: Array) -> Array:
    out = np.empty(len(rates_bps))
    for begin in range(0, len(out), CHUNK):
        part = slice(begin, begin + CHUNK)
        asked = replace(question, path=replace(question.path, loss=losses[part]))
        out[part] = step_share(asked, gradient_exposed_s(asked, model, rates_bps[part], rtts_s[part]))
    return out


def main() -> int:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    question = Question(
        deployment=load_deployment("hundred-trillion", None), assumptions=Assumptions(), path=Path(loss=1e-4)
    )
    rng = np.random.default_rng(0)
    each = points // len(MODELS)
    rates_bps, rtts_s, losses = (
        np.exp(rng.uniform(np.log(low), np.log(high), each)) for low, high in (RATES_BPS, RTTS_S, LOSSES)
    )
    total_s = table_s = 0.0
    print(f"{each * len(MODELS):,} points, {each:,} for each of {len(MODELS)} transports")
    print(f"  {'':10}{'table, s':>10}{'points, s':>10}{'ns/point':>10}{'off, median':>13}{'95 %':>8}")
    for name, model in MODELS.items():
        used: QuantileModel = model
        began = process_time()
        if isinstance(model, PointwiseModel):
            used = tabulate(model, question)
        made = process_time()
        found = shares(question, used, rates_bps, rtts_s, losses)
        ended = process_time()
        off = ""
        if used is not model:
            some = slice(0, CHECKED)
            true = shares(question, model, rates_bps[some], rtts_s[some], losses[some])
            error = np.abs(found[some] / true - 1)
            off = f"{np.median(error):>12.1%}{np.quantile(error, 0.95):>9.1%}"
        table_s += made - began
        total_s += ended - made
        print(f"  {name:10}{made - began:>10.2f}{ended - made:>10.2f}{(ended - made) / each * 1e9:>10.0f} {off}")
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verdict = "within" if total_s <= TIME_LIMIT_S else "OVER"
    print(f"  all points in {total_s:.2f} s of one core, {verdict} {TIME_LIMIT_S:g} s; tables {table_s:.1f} s, once")
    verdict = "within" if peak_bytes <= MEMORY_LIMIT_BYTES else "OVER"
    print(f"  peak memory {peak_bytes / 1e6:.0f} MB, {verdict} {MEMORY_LIMIT_BYTES / 1e9:g} GB")
    return int(total_s > TIME_LIMIT_S or peak_bytes > MEMORY_LIMIT_BYTES)


if __name__ == "__main__":
    began = perf_counter()
    code = main()
    print(f"  {perf_counter() - began:.1f} s on the clock, checks included")
    raise SystemExit(code)
