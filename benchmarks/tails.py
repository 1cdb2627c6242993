"""How far each transport's tail model is from trials that draw every loss, over the whole grid of paths and messages.

    python benchmarks/tails.py [TRIALS] [TRANSPORT ...]

Loss 1e-6 to 1e-2, round-trip time 2 to 120 ms, 1 MB to 1 GB at 5 Gbit/s; median, 99 % and 99.9 %. A quantile has to be
within 5 % in time, or the tail's probability within 25 % where it steps by a round trip. Messages that lose more than a
hundred packets have no steps, and get a fifth of the trials. 100,000 trials of all transports take hours.
"""

import sys
from itertools import product
from time import process_time

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.models import MODELS, model_of
from bicoastal.experiments.extrapolation.tails.trials import agrees, quantile, trials

PAYLOADS_BYTES = (1e6, 14.28e6, 1e8, 1e9)
RTTS_S = (0.002, 0.03, 0.06, 0.12)
LOSSES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
SHARES = (0.5, 0.99, 0.999)
TRIALS, RATE_BPS, MANY_LOSSES = 1000, 5e9, 100


def main() -> int:
    words = sys.argv[1:]
    count = int(words.pop(0)) if words and words[0].isdigit() else TRIALS
    off = 0
    print(f"{count:,} trials per point; largest difference in time of each quantile, where it is, and what is off")
    for name in words or MODELS:
        model, began = model_of(name), process_time()
        worst = dict.fromkeys(SHARES, (0.0, ""))
        bad = []
        for payload_bytes, rtt_s, loss in product(PAYLOADS_BYTES, RTTS_S, LOSSES):
            point = Crossing(payload_bytes=payload_bytes, rate_bps=RATE_BPS, rtt_s=rtt_s, loss=loss)
            where = f"{payload_bytes / 1e6:g} MB, {1e3 * rtt_s:g} ms, {loss:g}"
            many = payload_bytes / point.mtu_bytes * loss > MANY_LOSSES
            drawn = trials(model, point, count // 5 if many else count, np.random.default_rng(5))
            for share in SHARES:
                apart = float(model.quantile_s(point, np.log(share))) / quantile(drawn, share) - 1
                worst[share] = max(worst[share], (abs(apart), where))
                if not agrees(model, point, drawn, share):
                    bad.append(f"{share:g} at {where}: {apart:+.1%}")
        points = len(PAYLOADS_BYTES) * len(RTTS_S) * len(LOSSES)
        print(f"  {name:10} {points} points, {process_time() - began:.0f} s; {len(bad)} off {'; '.join(bad)}")
        for share, (apart, where) in worst.items():
            print(f"    {share:<6g} {apart:6.1%}  {where}")
        sys.stdout.flush()
        off += len(bad)
    return int(off > 0)


if __name__ == "__main__":
    raise SystemExit(main())
