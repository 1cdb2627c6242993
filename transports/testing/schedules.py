"""What a schedule holds, and how one is made: a pure function of (seed, number), so any can be run again alone."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from bicoastal.transports.base import Rng
from bicoastal.wan.checks import FieldError
from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed
from bicoastal.wan.schedule import LinkEvent, Outage, RateStep
from bicoastal.wan.topology import LinkSpec

RngFactory = Callable[[int], Rng]
Role = Literal["client", "server"]
GarbageKind = Literal["random", "flipped", "truncated", "stale"]
Weather = Literal[
    "clear", "bernoulli", "burst", "periodic", "tail", "listed", "one-way-loss", "reorder", "duplicate", "corrupt",
    "outage", "shallow-queue", "rate-steps", "everything",
]  # fmt: skip

WEATHERS: tuple[Weather, ...] = get_args(Weather)
LOSSY: tuple[Weather, ...] = ("bernoulli", "burst", "periodic", "tail", "listed", "one-way-loss")
CLIENT_SITE, SERVER_SITE = "west", "east"
MAX_MESSAGE_ID = 2**64 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A message that `role` is given `offset_s` after its iteration began."""

    iteration: int
    role: Role
    offset_s: float
    message_id: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A hostile datagram that reaches `role` `offset_s` after its iteration began.

    kind: "random" octets; a genuine datagram with one bit "flipped" or its end "truncated"; a "stale" genuine one.
    """

    iteration: int
    role: Role
    offset_s: float
    kind: GarbageKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The messages of one run, and the paths that carry them.

    links: one for each path; their events are anchored at iterations, of which 0 is the handshake. gaps_s: idle time
    after each iteration from 1 on. timer_lateness_s: a timer is served late by a uniform draw up to this.
    start_s: what the clock shows at the beginning. control_delay_s: one way, between the client and any service.
    """

    number: int
    seed: int
    weather: Weather
    links: tuple[LinkSpec, ...]
    offers: tuple[Offer, ...]
    garbage: tuple[Garbage, ...]
    gaps_s: tuple[float, ...]
    start_s: float
    timer_lateness_s: float
    control_delay_s: float

    @property
    def iterations(self) -> int:
        """Return how many there are, the handshake not counted."""
        return len(self.gaps_s)

    @property
    def gentle(self) -> bool:
        """Return whether a transport that gives up here gives up too easily: no outage, and little loss in the mean."""
        losses = [loss for link in self.links for loss in (link.loss, link.loss_back) if loss is not None]
        dark = any(isinstance(event, Outage) for link in self.links for event in link.events)
        # A bad state that lasts for packets outlives any number of timeouts on a path that carries nothing else.
        return (
            not dark
            and not any(isinstance(loss, GilbertElliott) for loss in losses)
            and all(
                isinstance(loss, TailOfBurst | Listed) or (loss.mean_loss is not None and loss.mean_loss <= 0.02)
                for loss in losses
            )
        )

    @property
    def name(self) -> str:
        """Return the name of the schedule in a report."""
        paths = "1 path" if len(self.links) == 1 else f"{len(self.links)} paths"
        return f"schedule {self.number} of seed {self.seed} ({self.weather}, {paths})"


class Draw:
    """Distributions over a bare `Rng`."""

    def __init__(self, rng: Rng) -> None:
        self.random = rng.random
        self._bits = rng.getrandbits

    def chance(self, probability: float) -> bool:
        """Return True with `probability`."""
        return self.random() < probability

    def below(self, stop: int) -> int:
        """Return an integer in [0, stop)."""
        return int(self.random() * stop)

    def uniform(self, low: float, high: float) -> float:
        """Return a float, uniform between `low` and `high`."""
        return low + (high - low) * self.random()

    def log_uniform(self, low: float, high: float) -> float:
        """Return a float whose logarithm is uniform between those of `low` and `high`."""
        return float(low * (high / low) ** self.random())

    def choice(self, options: Sequence[T]) -> T:
        """Return one of `options`."""
        return options[self.below(len(options))]

    def octets(self, size: int) -> bytes:
        """Return `size` random octets."""
        return self._bits(8 * size).to_bytes(size, "big") if size else b""


def stream(rng_factory: RngFactory, seed: int, number: int, name: str) -> Rng:
    """Return the generator that belongs to `name` in a schedule; draws of one name do not affect another."""
    digest = hashlib.blake2b(f"{seed}/{number}/{name}".encode(), digest_size=8).digest()
    return rng_factory(int.from_bytes(digest, "big"))


def make_schedule(
    number: int, *, seed: int, paths: Literal["one", "many"], rng_factory: RngFactory, min_mtu_bytes: int = 0
) -> Schedule:
    """Return schedule `number` of `seed`; `min_mtu_bytes` widens paths that are narrower.

    Raises ValueError for a negative number.
    """
    if number < 0:
        raise FieldError("number", f"{number} is negative")
    draw = Draw(stream(rng_factory, seed, number, "schedule"))
    weather = WEATHERS[number % len(WEATHERS)]
    iterations = 1 + draw.below(4)
    count = 1 if paths == "one" else draw.choice((1, 2, 2, 3, 4))
    links = tuple(
        _link(draw, f"link{index}", weather if index == 0 else draw.choice(WEATHERS), iterations, min_mtu_bytes)
        for index in range(count)
    )
    slowest = max(links, key=lambda link: link.delay_s)
    rtt_s = 2 * slowest.delay_s
    return Schedule(
        number=number,
        seed=seed,
        weather=weather,
        links=links,
        offers=_offers(draw, iterations, min(link.mtu_bytes for link in links), rtt_s),
        garbage=_garbage(draw, iterations, rtt_s),
        gaps_s=tuple(0.0 if draw.chance(0.3) else draw.log_uniform(1e-3, 10.0) for _ in range(iterations)),
        start_s=draw.choice((0.0, 0.0, 1234.5, 1e6)),
        timer_lateness_s=0.0 if draw.chance(0.7) else draw.log_uniform(1e-6, 5e-3),
        control_delay_s=draw.log_uniform(1e-4, 0.1),
    )


def _link(draw: Draw, name: str, weather: Weather, iterations: int, min_mtu_bytes: int) -> LinkSpec:
    """Draw a link: the weather's own impairment for certain, and under "everything" each of the others perhaps."""
    rate_bps = draw.log_uniform(1e6, 1e9)
    delay_s = draw.log_uniform(1e-4, 0.1)
    mtu_bytes = max(min_mtu_bytes, draw.choice((576, 1280, 1500, 1500, 9000)))
    packets_in_queue = draw.log_uniform(1, 6) if weather == "shallow-queue" else draw.log_uniform(30, 300)

    def has(kind: Weather) -> bool:
        return weather == kind or (weather == "everything" and draw.chance(0.35))

    events: list[LinkEvent] = []
    if has("outage"):
        at_s, duration_s = draw.log_uniform(1e-4, 1.0), draw.log_uniform(1e-2, 5.0)
        events.append(Outage(at_s=at_s, duration_s=duration_s, iteration=draw.below(iterations + 1)))
    if has("rate-steps"):
        events.extend(
            RateStep(
                at_s=(step + draw.random()) * delay_s,
                rate_bps=rate_bps * draw.log_uniform(0.1, 2.0),
                iteration=draw.below(iterations + 1),
            )
            for step in range(1 + draw.below(4))
        )
    loss, loss_back = _loss(draw, draw.choice(LOSSY) if has("everything") else weather)
    return LinkSpec(
        name=name,
        a=CLIENT_SITE,
        b=SERVER_SITE,
        rate_bps=rate_bps,
        delay_s=delay_s,
        queue_bytes=int(min(packets_in_queue * (mtu_bytes + 38), max(rate_bps / 8, 4 * mtu_bytes))),  # 1 s at most
        mtu_bytes=mtu_bytes,
        loss=loss,
        loss_back=loss_back,
        jitter_s=delay_s * draw.random() if has("reorder") else 0.0,
        reorder=draw.log_uniform(0.01, 0.4) if has("reorder") else 0.0,
        reorder_delay_s=delay_s * draw.log_uniform(0.01, 4.0),
        duplicate=draw.log_uniform(0.01, 0.5) if has("duplicate") else 0.0,
        corrupt=draw.log_uniform(0.005, 0.05) if has("corrupt") else 0.0,
        events=tuple(events),
    )


def _loss(draw: Draw, kind: Weather) -> tuple[LossSpec, LossSpec | None]:
    """Draw the loss of both directions."""
    if kind == "bernoulli":
        return Bernoulli(probability=draw.log_uniform(1e-3, 0.3)), None
    if kind == "burst":
        # A state that loses all would hold repeated probes of an idle path for ever: it changes by packets, not time.
        burst_packets = draw.log_uniform(2, 8)
        good_to_bad = draw.log_uniform(1e-3, 0.05)
        return GilbertElliott(good_to_bad=good_to_bad, bad_to_good=1 / burst_packets, loss_bad=0.8), None
    if kind == "periodic":
        return Periodic(every=3 + draw.below(40), first=draw.below(20)), None
    if kind == "tail":
        return TailOfBurst(packets=1 + draw.below(10)), None
    if kind == "listed":
        return Listed(indices=tuple(sorted({draw.below(60) for _ in range(1 + draw.below(10))}))), None
    if kind == "one-way-loss":
        lossy = Bernoulli(probability=draw.log_uniform(0.05, 0.5))
        return (lossy, NoLoss()) if draw.chance(0.5) else (NoLoss(), lossy)
    return NoLoss(), None


def _offers(draw: Draw, iterations: int, mtu_bytes: int, rtt_s: float) -> tuple[Offer, ...]:
    offers: list[Offer] = []
    identifiers: dict[Role, set[int]] = {"client": set(), "server": set()}
    large_left = 1
    for iteration in range(1, iterations + 1):
        for _ in range(1 + draw.below(3)):
            role: Role = draw.choice(("client", "server"))
            message_id = draw.choice((0, 1, MAX_MESSAGE_ID, draw.below(MAX_MESSAGE_ID), iteration << 8))
            while message_id in identifiers[role]:
                message_id = draw.below(1 << 40)
            identifiers[role].add(message_id)
            size_bytes = _size(draw, mtu_bytes)
            if size_bytes > 100 * mtu_bytes:
                if not large_left:
                    size_bytes %= 10 * mtu_bytes
                large_left = 0
            offset_s = 0.0 if draw.chance(0.5) else 3 * rtt_s * draw.random()
            offers.append(
                Offer(iteration=iteration, role=role, offset_s=offset_s, message_id=message_id, size_bytes=size_bytes)
            )
    return tuple(offers)


def _size(draw: Draw, mtu_bytes: int) -> int:
    """Draw a message size: nothing, little, about the edges of packets, tens of packets, or hundreds."""
    kind = draw.random()
    if kind < 0.1:
        return 0
    if kind < 0.22:
        return 1 + draw.below(40)
    if kind < 0.6:
        return (1 + draw.below(4)) * mtu_bytes - draw.below(140)  # whatever the headers, some of these fit exactly
    if kind < 0.96:
        return int(draw.log_uniform(4, 60) * mtu_bytes)
    return 100_000 + draw.below(300_000)


def _garbage(draw: Draw, iterations: int, rtt_s: float) -> tuple[Garbage, ...]:
    return tuple(
        Garbage(
            iteration=draw.below(iterations + 1),
            role=draw.choice(("client", "server")),
            offset_s=3 * rtt_s * draw.random(),
            kind=draw.choice(("random", "random", "flipped", "truncated", "stale")),
        )
        for _ in range(draw.below(6))
    )
