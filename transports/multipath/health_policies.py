"""How the QUIC transports judge the health of their paths, with the reason of each value.

QUIC with and without FEC probes alike. The probe timer of QUIC doubles with every expiry (RFC 9002 §6.2.1), because a
connection by itself cannot tell losses from congestion. Beside parallel paths that answer it can do better: a burst of
losses that takes ten packets, met by one packet per expiry, would keep a path away for minutes; one packet per round
trip is through in less than a second. That is no burden: after persistent congestion a sender keeps a window of two
packets (RFC 9002 §7.2, §7.6.2), and a sender that knows nothing of congestion may send one datagram per round trip
(RFC 8085 §3.1.3).
"""

from bicoastal.transports.paths.health import Evidence, HealthPolicy, Lateness, Probing, Witness
from bicoastal.transports.quic.path_connection import ACK_DELAY_S, ACK_EVERY

PATIENCE_FOR_PATHS_S = 2.0  # for the others to connect, after the first one has
TRIES = 32  # in a row, then only the probe timer is left; a burst of ten on average outlasts them once in 29 times
LEAST_INTERVAL_S = 0.05  # beside very short paths: others may be longer, and the far end busy

QUIC_PROBING = Probing(
    least_interval_s=LEAST_INTERVAL_S,
    quiet_rtts=1.25,  # a path that was heard so lately needs no probe
    most_probes=TRIES,
)

MPQUIC_HEALTH = HealthPolicy(
    lateness=Lateness(
        least_margin_s=0.002,
        seen_share=1 / 8,  # acknowledgements come all the time: a short gap already says something
        unseen_share=1.0,  # nothing has come back of what is in flight: a queue may have grown that no sample shows
        latest_counts=True,  # its windows fill queues, and the mean lags behind them
    ),
    evidence=Evidence(
        witness=Witness.HEARD_SINCE_DUE,
        late_packets=1,  # a wrong verdict costs one repetition over another path
        hold_s=0.002,
        hold_lateness=1 / 8,
        suspects=False,  # a path without a companion is left to the probe timer of its connection
    ),
    probing=QUIC_PROBING,
    patience_s=PATIENCE_FOR_PATHS_S,
)

FEC_HEALTH = HealthPolicy(
    lateness=Lateness(
        least_margin_s=0.002,
        seen_share=1 / 16,  # repair symbols cover what is lost meanwhile
        unseen_share=1 / 16,
        ack_delay_s=ACK_DELAY_S,  # what our far end waits; it announces more, for real clocks
        skips_passed_over=True,  # lost symbols are not sent again, so they must not look like silence
    ),
    evidence=Evidence(
        witness=Witness.HEARD_LATELY,
        late_packets=3 * ACK_EVERY,  # more than three acknowledgements would tell of
        few_packets=4,  # fewer can be lost themselves, or their one acknowledgement
        reports=3,
        waits_for_newest=True,  # packets behind the late ones will tell
        hold_margins=0.5,
    ),
    probing=QUIC_PROBING,
    patience_s=PATIENCE_FOR_PATHS_S,
)
