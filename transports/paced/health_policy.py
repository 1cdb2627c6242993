"""How the paced transports judge the health of their paths, with the reason of each value."""

from bicoastal.transports.paths.health import Evidence, HealthPolicy, Lateness, Probing, Witness

PACED_HEALTH = HealthPolicy(
    lateness=Lateness(
        least_margin_s=0.003,  # by so much an answer may be late for no reason of the path's
        most_variation_rtts=1 / 16,  # a path on which nothing queues varies little, after some samples
        assumed_rtt_s=1.0,  # RFC 6298 §2.1: a server sends before it has a sample
        hearing_extends=False,  # a report covers all that arrived before it; what is left is awaited on its own
        most_doublings=8,
    ),
    evidence=Evidence(
        witness=Witness.UP,
        few_packets=1,  # packets that span two reports' time were to bring three reports
        reports=2,
        late_with_margin=False,
        falls_alone=True,  # the second answer that is late was asked for by a probe
    ),
    probing=Probing(
        least_interval_s=0.005,
        longest_interval_s=2.0,
        growth=1.5,
        rtts=0.5,  # others carry the data: a probe may follow before the answer to the one before it can come
        alone_rtts=1.25,
        idle_limit_s=60.0,
        at_once=True,
        of_suspects=True,
    ),
    patience_s=0.0,  # paths that come later are probed and join while the others send
)
