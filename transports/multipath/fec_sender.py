"""The sending half of an FEC-protected connection over many paths.

A message is planned when it is offered: blocks and repair from the measured loss (`redundancy`), its symbols over the
paths so that all land together (`interleaving`). Paths then take from their plan as window and pace allow; one that
has run out takes from the one that would land last. What is lost counts against its block: when what has arrived and
what is under way no longer make up the block, fresh repair goes to whichever path lands it first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.interleaving import block_sizes, interleave, land_together
from bicoastal.transports.coding.redundancy import RedundancyPlan, RedundancyTarget, choose_redundancy
from bicoastal.transports.events import Buffer
from bicoastal.transports.multipath.coded_path import CodedPath
from bicoastal.transports.multipath.fec_message import OutgoingMessage
from bicoastal.transports.multipath.fec_wire import (
    ANNOUNCEMENT_BLOCK,
    SOUNDING_BLOCK,
    SYMBOL_HEADER,
    ControlFrame,
    MissingSymbols,
    announcement_bytes,
)
from bicoastal.transports.paths.health import Belief
from bicoastal.transports.paths.path_set import PathSet
from bicoastal.transports.quic.symbols import Symbol, SymbolOutcome

ANNOUNCEMENTS = 8  # in DATAGRAM frames on each path that carries that many symbols or more
GRAIN_BYTES = 16  # symbols are a multiple of it, which the codes like
TAIL_SHARE = 0.02  # of a block, at most, for repair that covers what a path's tail may lose
TRIFLE = 128  # part of a round trip by which a path must be sooner to take over what another has been given
LEAST_REPAIR = 4  # symbols that even the shortest message may have


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyPolicy:
    """How much protection is wanted: see `redundancy.RedundancyTarget`, and `FecParameters` for what each is."""

    codes: tuple[ErasureCode, ...]
    messages: float
    target: float
    cover_paths: int
    max_overhead: float
    tail_losses: int


def make_tag(number: int, block: int, index: int) -> int:
    """Return the number by which a symbol's fate is reported."""
    return number << 48 | block << 32 | index


class FecSender:
    """Plans messages, feeds the paths, and mends what falls short.

    after_idle: as `QuicParameters.after_idle`. send_control(frame): puts a control frame on every path. planned: what
    was chosen for the latest message.
    """

    def __init__(
        self,
        paths: PathSet,
        coded: Sequence[CodedPath],
        protection: RedundancyPolicy,
        send_control: Callable[[ControlFrame], None],
        *,
        after_idle: str,
    ) -> None:
        self._paths = paths
        self._coded = coded
        self.planned: RedundancyPlan | None = None
        self._protection = protection
        self._send_control = send_control
        self._messages: dict[int, OutgoingMessage] = {}
        self._next_number = 0
        self._symbol_bytes = min(path.link.symbol_bytes for path in coded) - SYMBOL_HEADER.size
        self._symbol_bytes -= self._symbol_bytes % GRAIN_BYTES
        self._max_blocks = (self._symbol_bytes - announcement_bytes(0)) // 4
        self._after_idle = after_idle
        self._last_serial = 0
        self._plans_mixed = False  # paths have taken from one another's plans since all of them were empty
        self._metering = True

    @property
    def idle(self) -> bool:
        """Tell whether every message is known to have been delivered."""
        return not self._messages

    # -- planning -----------------------------------------------------------------------------------------------------

    def offer(self, message_id: int, data: Buffer, now: float) -> None:
        """Plan a message and hand it to the paths. Raises ValueError when it is too long for any code."""
        number = self._next_number
        self._next_number += 1
        length_bytes = len(memoryview(data).cast("B"))
        symbols = max(1, ceil(length_bytes / self._symbol_bytes))
        symbol_bytes = max(1, ceil(length_bytes / symbols))  # no more padding than a grain for each symbol
        symbol_bytes = min(self._symbol_bytes, ceil(symbol_bytes / GRAIN_BYTES) * GRAIN_BYTES)
        used = [path for path in self._coded if path.usable] or [path for path in self._coded if path.link.ready]
        for path in used:
            path.link.begin_burst(now, length_bytes // len(used), after_idle=self._after_idle)
        views = [path.view(now, symbol_bytes) for path in used]
        self._plans_mixed = self._plans_mixed and any(path.plan for path in self._coded)
        redundancy, r = self._choose(used, [view.rate_bps for view in views], max(1, length_bytes), symbol_bytes)
        message = OutgoingMessage(
            data, number=number, message_id=message_id, symbol_bytes=symbol_bytes, redundancy=redundancy, r=r
        )
        self._messages[number] = message
        self._send_control(message.announcement)
        if not message.blocks:
            return
        sizes = block_sizes(message.announcement.symbols, redundancy.blocks)
        counts = land_together(views, sum(sizes) + len(sizes) * r, symbol_bytes)
        copies = ceil((r + 1) / len(used))  # as safe as the symbols, at the least
        for path, share, slots in zip(used, counts, interleave(sizes, r, counts), strict=True):
            every = share // max(1, min(share, ANNOUNCEMENTS, max(copies, share // ANNOUNCEMENTS)))
            for at, (block, index) in enumerate(slots):
                if at % every == 0:
                    path.plan.append(make_tag(number, ANNOUNCEMENT_BLOCK, at))
                path.plan.append(make_tag(number, block, index))
            path.stirred = True

    def _choose(
        self, paths: Sequence[CodedPath], rates: Sequence[float], length_bytes: int, symbol_bytes: int
    ) -> tuple[RedundancyPlan, int]:
        protection = self._protection
        symbols = ceil(length_bytes / symbol_bytes)
        fastest = max(rates)
        redundancy = choose_redundancy(
            RedundancyTarget(
                message_bytes=length_bytes,
                symbol_bytes=symbol_bytes,
                messages=protection.messages,
                target=protection.target,
                cover_paths=min(protection.cover_paths, len(paths) - 1),
                max_overhead=max(protection.max_overhead, LEAST_REPAIR / symbols),
            ),
            tuple(path.meter.channel() for path in paths),
            tuple(max(1.0, round(20 * rate / fastest)) for rate in rates),
            protection.codes,
            self._max_blocks,
        )
        self.planned = redundancy
        tail = ceil(protection.tail_losses * len(paths) / redundancy.blocks) + 1
        tail = min(tail, int(TAIL_SHARE * redundancy.k), redundancy.code.max_repair(redundancy.k))
        return redundancy, max(redundancy.r, tail)

    # -- feeding the paths --------------------------------------------------------------------------------------------

    def pull(self, path_id: int, leave_s: float) -> Symbol | None:
        """Return the next symbol for a path, or None."""
        path = self._coded[path_id]
        if path.health.belief is Belief.DOWN:
            return None
        while True:
            planned = not path.repairs
            if not planned:
                tag = path.repairs.popleft()
            elif path.plan or self._take_over(path, leave_s):
                tag = path.plan.popleft()
            else:
                return None
            number, block_at, index = tag >> 48, tag >> 32 & 0xFFFF, tag & 0xFFFFFFFF
            message = self._messages.get(number)
            if message is None:
                continue
            if block_at == ANNOUNCEMENT_BLOCK:
                header = SYMBOL_HEADER.pack(number, ANNOUNCEMENT_BLOCK, 0)
                return Symbol(header + message.announcement.encode(), tag)
            block = message.blocks[block_at]
            block.queued -= 1
            if block.acked >= block.needed:
                continue
            block.in_flight += 1
            path.positions[tag] = path.sent
            path.sent += 1
            burst_left = self._burst_left(path) if planned else None
            return Symbol(message.symbol(block_at, index), tag, index >= block.k, burst_left)

    def _burst_left(self, path: CodedPath) -> int:
        """Return how many first transmissions are to follow on a path: its plan, or once plans have mixed its part."""
        if not self._plans_mixed:
            return len(path.plan)
        usable = [other for other in self._coded if other.usable]
        return sum(len(other.plan) for other in usable) // max(1, len(usable))

    def _take_over(self, path: CodedPath, leave_s: float) -> bool:
        """Take the last symbol of the path that would land last, if this one lands it sooner by more than a trifle."""
        busiest, latest_s = None, 0.0
        for other in self._coded:
            if len(other.plan) > 1 and other is not path:
                view = other.view(leave_s, self._symbol_bytes)
                landing_s = view.free_at_s + view.delay_s
                if busiest is None or landing_s > latest_s:
                    busiest, latest_s = other, landing_s
        if busiest is None:
            return False
        mine = path.view(leave_s, self._symbol_bytes)
        symbol_s = 8.0 * self._symbol_bytes / mine.rate_bps
        if leave_s + mine.delay_s + max(4 * symbol_s, path.rtt_s / TRIFLE) >= latest_s:
            return False
        self._plans_mixed = True
        path.plan.append(busiest.plan.pop())
        return True

    # -- what becomes of symbols --------------------------------------------------------------------------------------

    def on_reports(self, path: CodedPath, outcomes: Sequence[SymbolOutcome], now: float) -> None:
        """Take the fate of symbols of one path."""
        short: set[tuple[int, int]] = set()
        for tag, acked, _ in outcomes:
            number, block_at = tag >> 48, tag >> 32 & 0xFFFF
            position = path.positions.pop(tag, None)
            message = self._messages.get(number)
            if block_at >= SOUNDING_BLOCK:
                continue
            if position is None:
                if acked and tag in path.lost.get(number, ()):  # it was only late
                    path.lost[number].discard(tag)
                    path.meter.found()
                    if message is not None:
                        message.blocks[block_at].acked += 1
                continue
            if acked:
                path.meter.acknowledged()
            elif self._metering:
                path.meter.lost(position)
            if message is None:
                continue
            block = message.blocks[block_at]
            block.in_flight -= 1
            if acked:
                block.acked += 1
            else:
                path.lost.setdefault(number, set()).add(tag)
                block.lost.append(tag & 0xFFFFFFFF)
                short.add((number, block_at))
        for number, block_at in sorted(short):
            self._mend(number, block_at, now)

    def _mend(self, number: int, block_at: int, now: float) -> None:
        """Queue fresh symbols for a block that would not be whole if everything under way arrived."""
        message = self._messages[number]
        block = message.blocks[block_at]
        while block.shortfall > 0:
            index = block.fresh()
            if index is None:
                return
            path = self._first_to_land(now)
            block.queued += 1
            path.repairs.append(make_tag(number, block_at, index))
            path.stirred = True

    def _first_to_land(self, now: float) -> CodedPath:
        usable = [path for path in self._coded if path.usable] or list(self._coded)

        def landing_s(path: CodedPath) -> float:
            view = path.view(now, self._symbol_bytes)
            ahead = 8.0 * self._symbol_bytes * (len(path.repairs) + 1) / view.rate_bps  # the plan waits for repairs
            doubt_s = path.rtt_s if path.health.belief is Belief.SUSPECT else 0.0
            return ahead + view.delay_s + doubt_s

        return min(usable, key=landing_s)

    def on_missing(self, missing: MissingSymbols, now: float) -> None:
        """Take the receiver's word of what blocks miss. What is under way may already be the answer."""
        message = self._messages.get(missing.number)
        if message is None or missing.serial <= self._last_serial:
            return
        self._last_serial = missing.serial
        for block_at, count in missing.blocks.items():
            if block_at < len(message.blocks):
                message.blocks[block_at].missing(count)
                self._mend(missing.number, block_at, now)

    def on_done(self, number: int) -> None:
        """Forget a message: it has been delivered."""
        self._messages.pop(number, None)
        for path in self._coded:
            path.lost.pop(number, None)

    # -- acknowledgements that do not come ----------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when `on_timer` is due (inf: never)."""
        return min(self._paths.overdue_at_s(index) for index in range(len(self._coded)))

    def on_timer(self, now: float) -> list[int]:
        """Act on acknowledgements that are late; return the indices of the paths that are taken to be down.

        A path that becomes suspect has lost the last packets that it sent: they are mended. One that is down is planned
        around.
        """
        down = []
        for index, path in enumerate(self._coded):
            if self._paths.overdue_at_s(index) > now:
                continue
            belief = self._paths.judge(index, now)
            if belief is Belief.SUSPECT:
                path.link.declare_lost(now, congestion=True)
                self.on_reports(path, path.link.take_reports(), now)
                path.stirred = True
            elif belief is Belief.DOWN:
                self.give_to_others(path, now)
                down.append(index)
        return down

    def give_to_others(self, path: CodedPath, now: float) -> None:
        """Let other paths carry what waits for a path that is down, and mend what it has in flight."""
        self._metering = False  # an outage says nothing of how a path that works loses
        path.link.declare_lost(now)
        self.on_reports(path, path.link.take_reports(), now)
        self._metering = True
        waiting = [*path.repairs, *path.plan]
        path.repairs.clear()
        path.plan.clear()
        usable = [other for other in self._coded if other.usable]
        if usable:
            views = [other.view(now, self._symbol_bytes) for other in usable]
            counts = land_together(views, len(waiting), self._symbol_bytes)
            at = 0
            for other, count in zip(usable, counts, strict=True):
                other.plan.extend(waiting[at : at + count])
                at += count
                other.stirred = True
        else:
            path.plan.extend(waiting)
        path.stirred = True
