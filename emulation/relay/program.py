"""The relay: forwards the frames of some paths between their ends, with the delays and losses of `wan.link`.

It is a separate process in the middle namespace: `python -m bicoastal.emulation.relay.program FD`.
`emulation.relay.process` starts it and sends it orders over a socket. It ends with SIGTERM, when it is ordered to, or
when the other end of the socket is closed.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from ctypes import CDLL
from pathlib import Path
from types import FrameType

from bicoastal.emulation.processes.channel import Channel, ChannelClosedError
from bicoastal.emulation.processes.wire_format import WireFormatError
from bicoastal.emulation.realtime.lateness import LatenessHistogram
from bicoastal.emulation.records import QueueSample
from bicoastal.emulation.relay.model import RelayModel
from bicoastal.emulation.relay.packet_ring import PacketRing, ring_bytes
from bicoastal.emulation.relay.protocol import (
    ANSWERS,
    ORDERS,
    Answer,
    BeginIteration,
    Order,
    Ready,
    Refusal,
    RelayPlan,
    RelayReport,
    ReportRequest,
    Restart,
)
from bicoastal.wan.units import INFINITY

AT_ONCE = 16  # frames received from one interface, or sent on one way, before the next one is served
_IDLE_S = 0.1
_GRAIN_S = 50e-6  # under load, frames that are due within this time are sent together
_MOST_PATIENCE_S = 5e-3  # the longest time that frames may wait in the ring
_PRIORITY = 10
_PR_SET_TIMERSLACK = 29


class Relay:
    """The loop that moves frames. It owns the sockets and the clock; `RelayModel` decides what happens to frames."""

    def __init__(self, plan: RelayPlan, control: Channel[Answer, Order]) -> None:
        self._plan = plan
        self._control = control
        self._stopping = False
        devices = [(device, path.mtu_bytes) for path in plan.paths for device in (path.left, path.right)]
        self._arrivals = select.epoll()  # one descriptor for all rings: select takes none above 1023
        size_bytes = ring_bytes(len(devices))
        self._rings = [PacketRing(device, mtu_bytes=mtu_bytes, size_bytes=size_bytes) for device, mtu_bytes in devices]
        for ring in self._rings:
            self._arrivals.register(ring.fileno(), select.EPOLLIN)
        self._control_only = [control.fileno()]
        self._all = [control.fileno(), self._arrivals.fileno()]
        if plan.processor is not None:
            os.sched_setaffinity(0, {plan.processor})
        self._real_time = plan.real_time and _prefer_this_process()
        self._begin(
            Restart(
                seed=plan.seed,
                epoch_s=plan.epoch_s,
                bursts=plan.bursts,
                sample_interval_s=plan.sample_interval_s,
                calm=plan.calm,
            )
        )

    def _begin(self, order: Restart) -> None:
        names = [path.name for path in self._plan.paths]
        self._model = RelayModel(self._plan.topology, names, seed=order.seed, bursts=order.bursts, calm=order.calm)
        self._patience_s = min(self._model.shortest_delay_s / 2, _MOST_PATIENCE_S)
        self._epoch_s = order.epoch_s
        self._sample_interval_s = order.sample_interval_s
        self._next_sample_s = 0.0 if order.sample_interval_s else INFINITY
        self._queues: list[QueueSample] = []
        self._lateness, self._reading = LatenessHistogram(), LatenessHistogram()
        self._began_s = self._second_s = time.monotonic()
        self._began_cpu_s = self._second_cpu_s = time.process_time()
        self._busiest = 0.0
        self._ring_dropped = 0
        for ring in self._rings:
            ring.counts()
            ring.unsent = ring.refused = 0
        self._backlog_before = _backlog_dropped()

    def run(self) -> None:
        """Move frames until an order or a signal ends it."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        gc.collect()
        gc.freeze()
        gc.disable()  # the loop makes no cycles, and a collection would take as long as a burst
        # A frame for way 2n comes in at path n's left interface and leaves at its right one, and way 2n + 1 back.
        inlets = list(enumerate(self._rings))
        outlets = [self._rings[way ^ 1] for way in range(len(self._rings))]
        monotonic = time.monotonic
        while not self._stopping:
            model, late, epoch_s = self._model, self._lateness.add, self._epoch_s
            now = monotonic()
            departures = model.departures(now - epoch_s, AT_ONCE)
            for due_s, way, frame in departures:
                outlets[way].send(frame)
                late(monotonic() - epoch_s - due_s)
            offset_s = time.time() - monotonic()
            received = 0
            for way, ring in inlets:
                received += ring.receive(way, self._take, offset_s, AT_ONCE)
            if received or departures:
                if now >= self._second_s + 1.0:
                    self._end_second(now)
                if now - epoch_s >= self._next_sample_s:
                    self._sample(now - epoch_s)
            else:
                self._wait()

    def _take(self, way: int, frame: bytes, arrived_s: float) -> None:
        now = time.monotonic()
        arrived_s = min(arrived_s, now)  # the wall clock may have been set back since the last comparison
        self._reading.add(now - arrived_s)
        self._model.submit(way, frame, arrived_s - self._epoch_s)

    def _wait(self) -> None:
        now = time.monotonic()
        if now >= self._second_s + 1.0:
            self._end_second(now)
        now -= self._epoch_s
        if now >= self._next_sample_s:
            self._sample(now)
        due_s = self._model.next_due_s()
        if due_s < now + self._patience_s:
            # Arrivals can wait: the kernel stamps them, and none can be due within `_patience_s`. Waking up only for
            # departures, and for several of them at once, halves the work.
            descriptors, until = self._control_only, max(due_s, now + _GRAIN_S)
        else:
            descriptors, until = self._all, min(due_s, now + _IDLE_S)
        # select, whose time limit is in microseconds: that of poll and epoll is rounded to milliseconds.
        ready, _, _ = select.select(descriptors, (), (), max(0.0, min(until, self._next_sample_s) - now))
        if self._control.fileno() in ready:
            self._execute_order()

    def _execute_order(self) -> None:
        try:
            order = self._control.receive()
        except ChannelClosedError:
            self._stopping = True
            return
        match order:
            case Restart():
                self._begin(order)
            case BeginIteration():
                self._model.begin_iteration(order.iteration, order.begins_s)
            case ReportRequest():
                self._control.send(self._report())
                self._stopping = order.stop
            case RelayPlan():
                raise WireFormatError("a second plan came to a relay that has one")

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _end_second(self, now: float) -> None:
        cpu_s = time.process_time()
        self._busiest = max(self._busiest, (cpu_s - self._second_cpu_s) / (now - self._second_s))
        self._second_s, self._second_cpu_s = now, cpu_s

    def _sample(self, now: float) -> None:
        self._queues += self._model.queue_samples(now)
        if self._sample_interval_s is not None:
            self._next_sample_s = now + self._sample_interval_s

    def _report(self) -> RelayReport:
        elapsed_s = time.monotonic() - self._began_s
        cpu_share = (time.process_time() - self._began_cpu_s) / elapsed_s
        refused = sum(ring.refused for ring in self._rings)  # those were sent again later
        self._ring_dropped += sum(ring.counts().dropped for ring in self._rings)
        return RelayReport(
            elapsed_s=elapsed_s,
            lateness=self._lateness.summary(),
            reading=self._reading.summary(),
            cpu_share=cpu_share,
            busiest_cpu_share=max(self._busiest, cpu_share),
            ring_dropped=self._ring_dropped,
            unsent=sum(ring.unsent for ring in self._rings),
            backlog_dropped=max(0, _backlog_dropped() - self._backlog_before - refused),
            real_time=self._real_time,
            links=self._model.link_records(),
            queues=tuple(self._queues),
        )

    def close(self) -> None:
        """Close the sockets of all interfaces."""
        self._arrivals.close()
        for ring in self._rings:
            ring.close()


def _prefer_this_process() -> bool:
    """Ask for a real-time priority; return whether it was granted. An ordinary user does not get it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        return False
    return True


def _backlog_dropped() -> int:
    """Return how many packets the processors' backlogs have refused: the second column of softnet_stat."""
    lines = Path("/proc/net/softnet_stat").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def main() -> int:
    """Forward frames as the process at the other end of the socket orders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent process too, which then stops this one
    CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # nanoseconds; the default makes every wait up to 50 µs longer
    control = Channel(socket.socket(fileno=int(sys.argv[1])), sends=ANSWERS, receives=ORDERS)
    try:
        return _serve(control)
    except ChannelClosedError:
        return 0  # the process that started the relay has ended
    except WireFormatError as error:
        control.send(Refusal(reason=f"the relay broke: {error}"))
        return 1


def _serve(control: Channel[Answer, Order]) -> int:
    plan = control.receive()
    if not isinstance(plan, RelayPlan):
        raise WireFormatError("an order came to a relay that has no plan yet")
    try:
        relay = Relay(plan, control)
    except OSError as error:
        control.send(Refusal(reason=f"the relay cannot take its interfaces: {error.strerror or error}"))
        return 1
    control.send(Ready())
    try:
        relay.run()
    except OSError as error:
        control.send(Refusal(reason=f"the relay broke: {error}"))
        return 1
    finally:
        relay.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
