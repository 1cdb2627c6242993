"""The figures that a probe should measure on a path, and whether measured figures agree with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p, prod

from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.wan.checks import check_not_negative, check_positive
from bicoastal.wan.loss import Combined, GilbertElliott, LossSpec, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed
from bicoastal.wan.topology import LinkSpec, Topology
from bicoastal.wan.units import INFINITY

_EARLY_S = 0.2e-3  # for differences between clocks, and for full token buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """The allowed deviations of a path.

    delay_s, delay_share: the one-way delay may be later by the larger of the two. rate_share: of the rate, in both
    directions. significance: a count of losses less probable than this is wrong. Raises FieldError.
    """

    delay_s: float = 1e-3
    delay_share: float = 0.02
    rate_share: float = 0.05
    significance: float = 1e-6

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("delay_s", "delay_share", "rate_share"):
            check_not_negative(name, getattr(self, name))
        check_positive("significance", self.significance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected figures of one direction of a path.

    delay_s: one way, for the datagrams of the delay measurement. spread_s: by how much jitter may delay the median.
    rate_bps: on the wire of the slowest link, framing included, without the lost share. loss: share of the loss
    measurement's datagrams that do not arrive, None where it cannot be predicted. clustering: variance of the number of
    losses over the variance of a binomial number (1: independent losses).
    """

    delay_s: float
    spread_s: float
    rate_bps: float
    loss: float | None
    clustering: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measured figures of one direction of a path. offered_bps: the train's sending rate, in bits as rate_bps."""

    delay_p50_s: float
    delay_p99_s: float
    rate_bps: float
    offered_bps: float
    sent: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionProbe:
    """One direction ("a>b") of a path. problems: deviations, with the expected and the measured figure."""

    path: str
    direction: str
    expected: Expected
    measured: Measured
    problems: tuple[str, ...]


def wire_rate_factor(topology: Topology, path: str, packet_bytes: int) -> float:
    """Return bits on the wire of the slowest link for each byte of an IP packet of `packet_bytes`."""
    slowest = min(topology.path_links(path), key=lambda link: link.rate_bps)
    return 8 * (packet_bytes + topology.paths[path].overhead_bytes + slowest.framing_bytes) / packet_bytes


def expect(
    topology: Topology, path: str, *, back: bool, delay_bytes: int, rate_bytes: int, loss_bytes: int
) -> Expected:
    """Return the expected figures of one direction of a path, for IP packets of the given sizes."""
    overhead_bytes = topology.paths[path].overhead_bytes
    sites = topology.paths[path].sites
    delay_s = spread_s = 0.0
    losses: list[tuple[LinkSpec, LossSpec]] = []
    for directed in DirectedLink.along(topology, path, from_site=sites[-1 if back else 0]):
        link = directed.spec
        losses.append((link, directed.loss))
        delay_s += link.delay_s + (delay_bytes + overhead_bytes + link.framing_bytes) * 8 / link.rate_bps
        spread_s += link.jitter_s + (link.reorder_delay_s if link.reorder >= 0.5 else 0.0)
    of_train = _combined_loss(losses, rate_bytes + overhead_bytes)
    return Expected(
        delay_s=delay_s,
        spread_s=spread_s,
        rate_bps=topology.path_rate_bps(path) * (1.0 - (of_train or 0.0)),
        loss=_combined_loss(losses, loss_bytes + overhead_bytes),
        clustering=max(clustering(loss) for _, loss in losses),
    )


def _combined_loss(losses: Sequence[tuple[LinkSpec, LossSpec]], wire_bytes: int) -> float | None:
    """Return the share that is lost, or that arrives damaged and is dropped because of its checksum."""
    shares = [(link, expected_loss(loss, wire_bytes)) for link, loss in losses]
    if any(share is None for _, share in shares):
        return None
    return 1.0 - prod((1.0 - (share or 0.0)) * (1.0 - link.corrupt) for link, share in shares)


def expected_loss(loss: LossSpec, wire_bytes: int) -> float | None:
    """Return the long-run loss of packets that belong to no burst; None where it depends on earlier packets."""
    match loss:
        case TailOfBurst():
            return 0.0
        case Periodic():
            return 1.0 / loss.every if wire_bytes >= loss.min_wire_bytes else 0.0
        case Listed():
            return None
        case Combined():
            parts = [expected_loss(part, wire_bytes) for part in loss.parts]
            return None if None in parts else 1.0 - prod(1.0 - (part or 0.0) for part in parts)
        case _:
            return loss.mean_loss


def clustering(loss: LossSpec) -> float:
    """Return the variance of the number of losses in many packets, over that of independent losses at the same rate.

    1 + 2 * (sum over lags of the covariance) / variance; the states' autocorrelation at lag k is (1 - good_to_bad -
    bad_to_good)^k. Losses in bursts are clustered: the factor is 2b - 1 for a mean burst of b packets.
    """
    if isinstance(loss, Combined):
        return max(clustering(part) for part in loss.parts)
    if not isinstance(loss, GilbertElliott):
        return 1.0
    mean = loss.mean_loss
    if not 0.0 < mean < 1.0:
        return 1.0
    change = loss.good_to_bad + loss.bad_to_good
    bad = loss.good_to_bad / change
    between = (loss.loss_bad - loss.loss_good) ** 2 * bad * (1.0 - bad)
    return max(1.0, 1.0 + 2.0 * between * (1.0 - change) / change / (mean * (1.0 - mean)))


def binomial_tail(count: int, trials: int, probability: float) -> float:
    """Return the smaller of P(X <= count) and P(X >= count) for X ~ Binomial(trials, probability)."""
    if probability <= 0.0:
        return 1.0 if count == 0 else 0.0
    if probability >= 1.0:
        return 1.0 if count == trials else 0.0
    log_term = (
        lgamma(trials + 1)
        - lgamma(count + 1)
        - lgamma(trials - count + 1)
        + count * log(probability)
        + (trials - count) * log1p(-probability)
    )
    odds = probability / (1.0 - probability)
    upwards = count >= trials * probability  # away from the mean, terms fall at least geometrically
    term = total = 1.0  # of the first term
    at = count
    while term > total * 1e-12:
        if upwards:
            term *= (trials - at) / (at + 1) * odds
            at += 1
        else:
            term *= at / (trials - at + 1) / odds
            at -= 1
        total += term
    return min(1.0, exp(log_term) * total)


def loss_is_credible(lost: int, sent: int, expected: Expected, significance: float) -> bool:
    """Return whether `lost` of `sent` may be due to chance. Clustered losses count as fewer independent ones."""
    if expected.loss is None:
        return True
    if expected.loss in (0.0, 1.0):
        return lost == sent * expected.loss
    trials = max(1, round(sent / expected.clustering))
    mean = trials * expected.loss
    scaled = lost / expected.clustering
    count = max(int(scaled), int(mean)) if scaled > mean else min(-int(-scaled // 1), int(mean) + 1)  # towards the mean
    return binomial_tail(min(count, trials), trials, expected.loss) >= significance / 2


def judge_delay(expected: Expected, measured_s: float, tolerances: Tolerances) -> str:
    """Return the deviation of a direction's median delay as a sentence, or ""."""
    late_s = max(tolerances.delay_s, tolerances.delay_share * expected.delay_s)
    if expected.delay_s - _EARLY_S <= measured_s <= expected.delay_s + expected.spread_s + late_s:
        return ""
    found = "nothing arrived" if measured_s == INFINITY else f"{measured_s * 1e3:.2f} ms"
    return f"one-way delay: {found}, wanted {expected.delay_s * 1e3:.2f} ms"


def judge_rate(expected: Expected, measured_bps: float, offered_bps: float, tolerances: Tolerances) -> str:
    """Return the deviation of a direction's rate as a sentence, or ""."""
    if abs(measured_bps / expected.rate_bps - 1.0) <= tolerances.rate_share:
        return ""
    found = f"rate: {measured_bps / 1e6:.4g} Mbit/s, wanted {expected.rate_bps / 1e6:.4g} Mbit/s"
    if offered_bps < expected.rate_bps:
        found += f" (this machine sent no faster than {offered_bps / 1e6:.4g} Mbit/s)"
    return found


def judge_loss(expected: Expected, lost: int, sent: int, tolerances: Tolerances) -> str:
    """Return the deviation of a direction's loss as a sentence, or ""."""
    if loss_is_credible(lost, sent, expected, tolerances.significance):
        return ""
    return f"loss: {lost} of {sent} packets, wanted a share of {expected.loss:.3g}"
