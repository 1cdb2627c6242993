"""The values by which the paced transports judge the health of their paths, each with its reason."""

from bicoastal.transports.paths.health import Evidence, HealthPolicy, Lateness, Probing, Witness

PACED_HEALTH = HealthPolicy(
    lateness=Lateness(
        least_margin_s=0.003,  # an answer may be this late although the path is well
        most_variation_rtts=1 / 16,  # without a queue the RTT varies little, after some samples
        assumed_rtt_s=1.0,  # RFC 6298 §2.1; a server sends before it has a sample
        hearing_extends=False,  # a report covers all earlier arrivals; each other packet is awaited on its own
        most_doublings=8,
    ),
    evidence=Evidence(
        witness=Witness.UP,
        few_packets=1,  # packets sent during two report intervals should cause three reports
        reports=2,
        late_with_margin=False,
        falls_alone=True,  # a probe asked for the second late answer
    ),
    probing=Probing(
        least_interval_s=0.005,
        longest_interval_s=2.0,
        growth=1.5,
        rtts=0.5,  # other paths carry the data: a probe may follow before the last one can be answered
        alone_rtts=1.25,
        idle_limit_s=60.0,
        at_once=True,
        of_suspects=True,
    ),
    patience_s=0.0,  # later paths are probed, and join while the others send
)
