"""Paced senders that repair what is lost and nothing else: selective repeat by report or by timeout, and by FEC block.

The packets of a message leave at an even pace. One that is lost goes again after a repair delay R, again after 2 R if
that is lost too, and so on; a message is complete when its last packet is. Packet i of n is late by as many R as it was
sent in vain, less what was still to be sent after it, so with y_i = (n - i) g of the message behind it,

    log F(tau) = sum_i log(1 - P(every attempt of packet i that would arrive by tau is lost)),

tau counted from the end of a transmission without loss. Packets fall into few classes by floor(y_i / R), so the sum has
closed form: it is linear in tau between multiples of R. This is the model of selective repeat of arXiv 2505.05366
(SDR-RDMA, section on reliability), X_i = i T_inj + (RTO + T_inj)(Y_i - 1) with Y_i geometric, with two additions: a
repair may be sent more than once, and the last packets of a message, behind which nothing comes that could show their
loss, have a delay of their own.
"""

from dataclasses import dataclass
from math import ceil, log

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, ArrayLike, Crossing, PiecewiseModel

CLASSES = 4  # packets behind which less than one, two, three R of the message come, and all the others
LEAST_ROUNDS, MOST_ROUNDS = 4, 80  # repairs of one packet that are told apart
LEAST_LOG = -30.0  # of the probability that a packet needs still more


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A delay made of round trips, packet times and a constant: rtts * RTT + packets * g + fixed_s."""

    rtts: float
    packets: float = 0.0
    fixed_s: float = 0.0

    def of(self, rtt_s: ArrayLike, packet_s: ArrayLike) -> Array:
        """Return it in seconds."""
        return np.asarray(self.rtts * np.asarray(rtt_s) + self.packets * np.asarray(packet_s) + self.fixed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What is lost and repaired as one: how many a message has, the loss of each, its time, and that of the whole.

    ends_s: when the message is across where nothing is lost but what is repaired before its end. short_s: by how much
    the last unit is shorter than the others.
    """

    count: Array
    loss: Array
    unit_s: Array
    rtt_s: Array
    short_s: Array
    ends_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveRepeat(PiecewiseModel):
    """Paced selective repeat; see the module's text.

    header_bytes: of each packet, from IP on. pace: share of the path's rate that is used. repair: from the departure of
    a lost packet to that of its repair. copies: how often a repair is sent while there is still new data;
    late_copies: afterwards. tail_packets: the last packets of a message, whose loss shows only after `tail`; and
    tail_copies: how often they are sent in the first place, one behind the other.
    """

    name: str
    source: str
    header_bytes: int
    repair: Delay
    tail: Delay
    pace: float = 1.0
    copies: int = 1
    late_copies: int = 1
    tail_packets: int = 0
    tail_copies: int = 1
    spreads: bool = False

    def units(self, crossing: Crossing) -> Units:
        """Return what the message is made of: its packets."""
        packets = np.asarray(crossing.packets(self.header_bytes), dtype=float)
        packet_s = np.asarray(crossing.packet_s(self.pace))
        short_s = self._missing(crossing, packets) * packet_s
        return self._units(crossing, packets, np.asarray(crossing.loss, dtype=float), packet_s, short_s)

    def _missing(self, crossing: Crossing, packets: Array) -> Array:
        """Return what the last packet lacks of a full one, as a share of that on the wire."""
        room_bytes = crossing.mtu_bytes - self.header_bytes
        missing_bytes = packets * room_bytes - np.asarray(crossing.payload_bytes)
        return np.asarray(missing_bytes / (crossing.mtu_bytes + crossing.framing_bytes))

    def _units(self, crossing: Crossing, count: Array, loss: Array, unit_s: Array, short_s: Array) -> Units:
        rtt_s = np.asarray(crossing.rtt_s, dtype=float)
        arrays = (count, loss, unit_s, rtt_s, short_s, np.asarray(crossing.tail_loss))
        count, loss, unit_s, rtt_s, short_s, _ = np.broadcast_arrays(*arrays)
        ahead = np.clip(count - self.repair.of(rtt_s, unit_s) / unit_s, 0.0, None)  # whose repairs precede new data
        repeats = loss * self.copies / (1.0 - loss**self.copies)
        ends_s = rtt_s / 2 + (count + ahead * repeats) * unit_s - short_s
        return Units(count=count, loss=loss, unit_s=unit_s, rtt_s=rtt_s, short_s=short_s, ends_s=ends_s)

    def knots(self, crossing: Crossing) -> tuple[Array, Array, Array]:
        """Return where log F bends or steps; see `PiecewiseModel`."""
        units = self.units(crossing)
        count, loss = units.count, units.loss
        repair_s = self.repair.of(units.rtt_s, units.unit_s) * np.ones_like(count)
        rounds = _rounds(float(np.max(loss)))
        body = np.clip(count - self.tail_packets, 0.0, None)
        per_round = repair_s / units.unit_s  # packets that fit into one repair delay
        whole = np.floor(np.minimum(body / per_round, CLASSES - 1))
        bend_s = repair_s * (1.0 - np.minimum(body / per_round - whole, 1.0))
        short_s = units.short_s[..., None]  # all but the last unit have so much less behind them
        rounds_s = short_s + repair_s[..., None] * np.arange(rounds)
        bends_s = np.minimum(rounds_s + bend_s[..., None], rounds_s + repair_s[..., None])
        tails_s = self._tail_steps(units, repair_s, rounds)
        late_s = np.sort(np.concatenate((rounds_s, bends_s, tails_s), axis=-1), axis=-1)
        body_log = self._body(np.maximum(late_s - short_s, 0.0), body, per_round, repair_s, loss)
        before, after = body_log.copy(), body_log
        if self.tail_packets:
            lost = self._lost_in_tail(loss, loss, tails_s.shape[-1])
            _add_steps(
                late_s, tails_s, np.minimum(count, self.tail_packets)[..., None] * np.log1p(-lost), before, after
            )
        if np.any(np.asarray(crossing.tail_loss) > 0):
            first = np.broadcast_to(np.asarray(crossing.tail_loss, dtype=float), count.shape)
            lost = self._lost_in_tail(first, loss, tails_s.shape[-1])
            _add_steps(late_s, tails_s, np.log1p(-lost), before, after)
        before[..., 0] = -np.inf
        return units.ends_s[..., None] + late_s, before, after

    def _body(self, late_s: Array, body: Array, per_round: Array, repair_s: Array, loss: Array) -> Array:
        """Return log F of all packets but the last few, at lateness `late_s`."""
        rounds = late_s / repair_s[..., None]
        tried = np.floor(rounds + 1e-9)
        begun = np.clip(rounds - tried, 0.0, 1.0)  # of the round that is under way
        early, late = loss[..., None] ** self.copies, loss[..., None] ** self.late_copies
        lost = loss[..., None] * late**tried  # of the nearest class, without the attempt under way
        total = np.zeros_like(late_s)
        for nearness in range(CLASSES):
            members = body - nearness * per_round
            members = np.clip(members, 0.0, None if nearness == CLASSES - 1 else per_round)[..., None]
            waiting = np.minimum(members, (1.0 - begun) * per_round[..., None])
            total += waiting * np.log1p(-lost) + (members - waiting) * np.log1p(-lost * late)
            lost = lost * early
        return total

    def _tail_steps(self, units: Units, repair_s: Array, rounds: int) -> Array:
        """Return the lateness at which the first and further attempts of the last packets arrive."""
        first_s = self.tail.of(units.rtt_s, units.unit_s) * np.ones_like(units.count)
        copy_s = self.tail_packets * units.unit_s if self.tail_copies > 1 else first_s
        later_s = first_s[..., None] + repair_s[..., None] * np.arange(rounds - 1)
        return np.concatenate((np.zeros_like(later_s[..., :1]), copy_s[..., None], later_s), axis=-1)

    def _lost_in_tail(self, first: Array, loss: Array, attempts: int) -> Array:
        """Return the probability that all attempts up to each were in vain, `first` that of the first."""
        lost = np.empty((*loss.shape, attempts))
        lost[..., 0] = first
        lost[..., 1] = first * loss ** (self.tail_copies - 1)
        for attempt in range(2, attempts):
            lost[..., attempt] = lost[..., attempt - 1] * loss**self.late_copies
        return lost


def _rounds(loss: float) -> int:
    """Return after how many repairs in vain of one packet there is no need to look any further."""
    if loss <= 0:
        return LEAST_ROUNDS
    return min(max(ceil(LEAST_LOG / log(loss)), LEAST_ROUNDS), MOST_ROUNDS) if loss < 1 else MOST_ROUNDS


def _add_steps(late_s: Array, steps_s: Array, values: Array, before: Array, after: Array) -> None:
    """Add to log F just before and at each lateness what has the given values from each of the steps on."""
    before += values[..., :1]
    after += values[..., :1]
    for step in range(1, steps_s.shape[-1]):
        grown, step_s = values[..., step : step + 1] - values[..., step - 1 : step], steps_s[..., step : step + 1]
        after += np.where(late_s >= step_s, grown, 0.0)
        before += np.where(late_s > step_s, grown, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FecBlocks(SelectiveRepeat):
    """Forward error correction: `source_packets` of a message and `repair_packets` of redundancy make a block.

    A block fails when more of its packets are lost than it has repair packets (any MDS code: Reed-Solomon, RFC 5510);
    then its source packets are repaired a round trip later, again as a block. What is lost and repaired as one is thus
    the block. It is taken to be complete with its last packet, although without loss the source packets are enough.
    """

    source_packets: int = 32
    repair_packets: int = 2

    @property
    def block_packets(self) -> int:
        """Packets of a whole block."""
        return self.source_packets + self.repair_packets

    def units(self, crossing: Crossing) -> Units:
        """Return what the message is made of: its blocks, the last of which has as much redundancy but less source."""
        packets = np.asarray(crossing.packets(self.header_bytes), dtype=float)
        count = np.ceil(packets / self.source_packets)
        loss = block_failure(np.asarray(crossing.loss, dtype=float), self.block_packets, self.repair_packets)
        packet_s = np.asarray(crossing.packet_s(self.pace))
        missing = count * self.source_packets - packets + self._missing(crossing, packets)
        return self._units(crossing, count, loss, packet_s * self.block_packets, missing * packet_s)


def block_failure(loss: Array, packets: int, repairs: int) -> Array:
    """Return the probability that more than `repairs` of `packets` packets are lost: the tail of a binomial."""
    total = np.zeros_like(loss)
    term = (1.0 - loss) ** packets
    odds = loss / (1.0 - loss)
    for lost in range(packets + 1):
        if lost > repairs:
            total = total + term
        term = term * odds * (packets - lost) / (lost + 1)
    return np.asarray(np.minimum(total, 1.0))
