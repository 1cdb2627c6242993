"""Sites, the links between them and the paths across them: inert data, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from wan.loss import LossSpec, NoLoss
from wan.schedule import LinkEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A full-duplex link between two sites; both directions have the same rate, delay and queue.

    rate_bps: bit/s of IP packets plus framing. delay_s: one-way propagation, seconds.
    queue_bytes: drop-tail queue before each direction's transmitter; None means one BDP, rate_bps * 2 * delay_s / 8.
    mtu_bytes: largest IP packet. framing_bytes: what each packet takes on the wire besides its IP bytes
    (38 for Ethernet: header 14, FCS 4, preamble 8, gap 12).
    loss: applied to packets from `a` to `b`, and from `b` to `a` too unless `loss_back` is given.
    jitter_s: each packet is late by a uniform draw from [0, jitter_s], without overtaking.
    reorder: probability that a packet is held back by `reorder_delay_s` while later ones overtake it.
    duplicate, corrupt: probability that a packet arrives twice; with one bit flipped.
    events: capacity steps and outages.
    Raises ValueError naming the field.
    """

    name: str
    a: str
    b: str
    rate_bps: float
    delay_s: float
    queue_bytes: int | None = None
    mtu_bytes: int = 1500
    framing_bytes: int = 38
    loss: LossSpec = NoLoss()
    loss_back: LossSpec | None = None
    jitter_s: float = 0.0
    reorder: float = 0.0
    reorder_delay_s: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    events: tuple[LinkEvent, ...] = ()
