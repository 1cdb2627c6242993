"""How true the middle of the `netns` world is to its specification, idle and loaded: round trips, rate, losses.

    python benchmarks/fidelity.py [relay|netem] [--seconds S] [--rate R] [--loss P] [--seed N]

One path of 60 ms and `--rate`, which loses packets at random with `--loss`. Full packets go from east to west at shares
of the rate; ping runs beside them. From the rate on, the queue of one BDP is full, and the loss in the table is the
queue's.
"""

import argparse
import sys
from contextlib import ExitStack

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.probing.fidelity import Loaded, measure_loaded
from bicoastal.emulation.real import netem
from bicoastal.emulation.relay.process import Relays
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from bicoastal.wan.units import parse_probability, parse_rate, parse_time

LOADS = (0.0, 0.5, 0.9, 1.3)
MTU_BYTES = 1500
_HEADINGS = (
    f"{'load':>5} {'pings':>6} {'RTT mean':>9} {'p99':>9} {'wanted':>9} {'rate':>8} {'wanted':>8} {'lost of sent':>14}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("impairment", nargs="?", choices=("relay", "netem"), default="relay")
    parser.add_argument("--seconds", type=parse_time, default=10.0, metavar="S", help="of each load (default: 10 s)")
    parser.add_argument("--rate", type=parse_rate, default=250e6, metavar="R", help="default: 250 Mbit/s")
    parser.add_argument("--loss", type=parse_probability, default=1e-3, metavar="P", help="default: 1e-3")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the losses (default: 1)")
    arguments = parser.parse_args()
    link = LinkSpec(
        name="link",
        a="east",
        b="west",
        rate_bps=arguments.rate,
        delay_s=0.03,
        loss=Bernoulli(probability=arguments.loss),
        mtu_bytes=MTU_BYTES,
    )
    topology = Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[link],
        paths=[Path(name="path", sites=("east", "west"), links=("link",))],
    )
    try:
        with ExitStack() as stack:
            print(_HEADINGS)
            if arguments.impairment == "netem":
                coasts = stack.enter_context(TwoCoasts(topology, stages=netem.stage_counts(topology)))
                netem.apply(coasts, seed=arguments.seed)
                relays = None
            else:
                coasts = stack.enter_context(TwoCoasts(topology))
                relays = stack.enter_context(Relays(coasts, seed=arguments.seed))
            for load in LOADS:
                print(
                    _row(
                        measure_loaded(coasts, "path", load=load, duration_s=arguments.seconds, packet_bytes=MTU_BYTES)
                    )
                )
            for trouble in relays.report().troubles() if relays else ():
                print(f"      {trouble}")
    except UnsupportedError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def _row(row: Loaded) -> str:
    trips = row.round_trips
    text = f"{row.load:5.0%} {trips.count:6} {_ms(trips.mean_s)} {_ms(trips.p99_s)} {_ms(trips.wanted_s)}"
    if not row.load:
        return text
    text += f" {row.rate_bps / 1e6:8.2f} {row.wanted_bps / 1e6:8.2f} {row.lost:6} of {row.sent}"
    if row.load < 1.0:
        text += f" (binomial {row.expected_lost:.1f} ± {row.deviation:.1f}; as far out: {row.improbability:.0%})"
    return text


def _ms(time_s: float) -> str:
    return f"{time_s * 1e3:6.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
