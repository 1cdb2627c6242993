"""How much kernel TCP the relay carries at MTU 1500, and how punctual it is at a share of that.

    python benchmarks/relay.py [SECONDS]

Both coasts, the relay and this program share the machine. First one connection that nothing but the machine limits;
then links of a fraction of that rate, 60 ms long, filled by one connection each (RTT 60 ms) for SECONDS.
"""

import sys

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.probing.host import measure_transfer

SHARES = (0.1, 0.25, 0.5, 0.75)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    try:
        full = measure_transfer(rate_bps=5e9, delay_s=2e-3, duration_s=seconds)
    except UnsupportedError as error:
        print(error)
        return 3
    print(f"{'link':>12} {'TCP':>12} {'frames/s':>9} {'CPU':>5} {'late p50':>9} {'p99':>9} {'max':>9}")
    rows = [("no limit", full)]
    for share in SHARES:
        rate_bps = share * full.tcp_bps
        rows.append(
            (f"{rate_bps / 1e6:.0f} Mbit/s", measure_transfer(rate_bps=rate_bps, delay_s=0.03, duration_s=seconds))
        )
    for name, row in rows:
        report = row.report
        late = report.lateness
        print(
            f"{name:>12} {row.tcp_bps / 1e6:7.0f} Mb/s {late.count / report.elapsed_s:9.0f} {report.cpu_share:5.0%} "
            f"{late.p50_s * 1e6:6.0f} us {late.p99_s * 1e6:6.0f} us {late.max_s * 1e6:6.0f} us"
        )
        for trouble in report.troubles():
            print(f"             {trouble}")
    print("real-time priority" if full.report.real_time else "no real-time priority")
    return 0


if __name__ == "__main__":
    sys.exit(main())
