"""The relay's model of the wide area: when a frame that enters a path at one end leaves it at the other end.

It has no socket and no clock. Links and random streams are those of the simulator (`links.directed_link`).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.emulation.records import LinkRecord, QueueSample
from bicoastal.emulation.relay.frames import ETHERNET_BYTES, BurstRule, Classifier, flip_bit_in_frame
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY

_new = tuple.__new__  # as in `wan.link`: the constructor of NamedTuple takes twice the time


class Departure(NamedTuple):
    """A frame that is due. way: 2n for path n from its first site to its last, 2n + 1 for the way back."""

    due_s: float
    way: int
    frame: bytes


class _Packet:
    """What a link reads of a frame. One object is used for all frames, since links keep no reference to it."""

    __slots__ = ("burst_left", "wire_bytes")

    def __init__(self) -> None:
        self.wire_bytes = 0
        self.burst_left: int | None = None


class _Wire:
    """The model of one direction of a link, shared by the ways across it. latest_s: the latest time it was given."""

    __slots__ = ("directed", "has_outages", "latest_s", "link")

    def __init__(self, directed: DirectedLink, seed: int) -> None:
        self.directed = directed
        self.link = directed.model(seed)
        self.latest_s = 0.0
        self.has_outages = directed.has_outages


class _Stop(NamedTuple):
    """A frame that will reach the end of a link, on a way that is not plain. hop: which link of the way."""

    due_s: float
    order: int
    way: int
    hop: int
    frame: bytes
    burst_left: int | None
    submitted_s: float


class _Way:
    """One direction of a path. plain: it has one link without outages, so each frame's departure is known at once.

    in_order: departures of a plain way, none earlier than the one before. strays: a heap of departures that would be.
    """

    __slots__ = ("added_bytes", "classify", "in_order", "plain", "strays", "wires")

    def __init__(self, wires: Sequence[_Wire], overhead_bytes: int, classify: Classifier | None) -> None:
        self.wires = wires
        self.added_bytes = overhead_bytes - ETHERNET_BYTES
        self.classify = classify
        self.in_order: deque[tuple[float, bytes]] = deque()
        self.strays: list[tuple[float, int, bytes]] = []
        self.plain = len(wires) == 1 and not wires[0].has_outages


class RelayModel:
    """The links of some paths of a topology. Times are seconds since the run began.

    paths: names; ways are numbered in their order. bursts: how to recognise the bursts on a path, by its name.
    calm: the links' events do not happen. shortest_delay_s: the least time that any frame takes.
    """

    def __init__(
        self,
        topology: Topology,
        paths: Sequence[str],
        *,
        seed: int,
        bursts: Mapping[str, BurstRule] | None = None,
        calm: bool = False,
    ) -> None:
        bursts = bursts or {}
        names = dict.fromkeys(name for path in paths for name in topology.paths[path].links)
        self._wires = {
            directed.key: _Wire(directed.without_events() if calm else directed, seed)
            for directed in DirectedLink.all_of(topology.links[name] for name in names)
        }
        self._ways: list[_Way] = []
        for name in paths:
            path = topology.paths[name]
            for back, from_site in ((False, path.sites[0]), (True, path.sites[-1])):
                wires = [self._wires[each.key] for each in DirectedLink.along(topology, name, from_site=from_site)]
                classify = bursts[name].start(back=back) if name in bursts else None
                self._ways.append(_Way(wires, path.overhead_bytes, classify))
        self.shortest_delay_s = min(way.wires[0].link.spec.delay_s for way in self._ways)
        self._packet = _Packet()
        self._stops: list[_Stop] = []
        self._order = 0

    def submit(self, way: int, frame: bytes, at_s: float) -> None:
        """Submit a frame that arrived at `at_s` to the first link of a way."""
        its = self._ways[way]
        wire = its.wires[0]
        if at_s < wire.latest_s:
            at_s = (
                wire.latest_s
            )  # clocks of two processors differ, and so do two paths: time must not decrease on a link
        else:
            wire.latest_s = at_s
        packet = self._packet
        packet.wire_bytes = len(frame) + its.added_bytes
        packet.burst_left = None if its.classify is None else its.classify(frame)
        if not its.plain:
            self._cross(way, 0, frame, packet.burst_left, at_s)
            return
        in_order = its.in_order
        for due_s, corrupt in wire.link.submit(packet, at_s):
            arriving = frame if corrupt is None else flip_bit_in_frame(frame, corrupt)
            if in_order and due_s < in_order[-1][0]:
                self._order += 1
                heappush(its.strays, (due_s, self._order, arriving))
            else:
                in_order.append((due_s, arriving))

    def departures(self, now: float, most: int) -> list[Departure]:
        """Remove and return the frames that are due by `now`, in order on each way; at most `most` of each way."""
        due: list[Departure] = []
        while self._stops and self._stops[0].due_s <= now:
            stop = heappop(self._stops)
            wires = self._ways[stop.way].wires
            wire = wires[stop.hop]
            if wire.has_outages and not wire.link.survives(stop.submitted_s, stop.due_s):
                continue
            if stop.hop + 1 < len(wires):
                self._cross(stop.way, stop.hop + 1, stop.frame, stop.burst_left, stop.due_s)
            else:
                due.append(Departure(stop.due_s, stop.way, stop.frame))
        for number, way in enumerate(self._ways):
            in_order, strays = way.in_order, way.strays
            for _ in range(most):
                if strays and (not in_order or strays[0][0] < in_order[0][0]):
                    if strays[0][0] > now:
                        break
                    due_s, _, frame = heappop(strays)
                elif in_order and in_order[0][0] <= now:
                    due_s, frame = in_order.popleft()
                else:
                    break
                due.append(_new(Departure, (due_s, number, frame)))
        return due

    def next_due_s(self) -> float:
        """Return when the next frame leaves the model or a link; infinity when there is no frame."""
        earliest = self._stops[0].due_s if self._stops else INFINITY
        for way in self._ways:
            if way.in_order and way.in_order[0][0] < earliest:
                earliest = way.in_order[0][0]
            if way.strays and way.strays[0][0] < earliest:
                earliest = way.strays[0][0]
        return earliest

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Announce that an iteration of the first job begins: `Link.begin_iteration`."""
        for wire in self._wires.values():
            wire.link.begin_iteration(iteration, begins_s)

    def queue_samples(self, now: float) -> list[QueueSample]:
        """Return what waits before every direction of every link at `now`."""
        found = []
        for wire in self._wires.values():
            wire.latest_s = max(wire.latest_s, now)
            found.append(wire.directed.queue_sample(wire.link, now, wire.latest_s))
        return found

    def link_records(self) -> tuple[LinkRecord, ...]:
        """Return what each direction of each link has counted."""
        return tuple(wire.directed.record(wire.link) for wire in self._wires.values())

    def _cross(self, way: int, hop: int, frame: bytes, burst_left: int | None, at_s: float) -> None:
        wire = self._ways[way].wires[hop]
        at_s = wire.latest_s = max(at_s, wire.latest_s)
        packet = self._packet
        packet.wire_bytes = len(frame) + self._ways[way].added_bytes
        packet.burst_left = burst_left
        for due_s, corrupt in wire.link.submit(packet, at_s):
            arriving = frame if corrupt is None else flip_bit_in_frame(frame, corrupt)
            self._order += 1
            heappush(self._stops, _Stop(due_s, self._order, way, hop, arriving, burst_left, at_s))
