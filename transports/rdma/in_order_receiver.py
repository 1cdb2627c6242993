"""The receiver of `rdma-gbn`: it accepts packets only in their order."""

from bicoastal.transports.events import Buffer
from bicoastal.transports.paced.packets import LAST, MAX_U32, NAK, Data, Report
from bicoastal.transports.paced.receiver import Reassembly
from bicoastal.wan.units import INFINITY


class InOrderReceiver:
    """Takes packets only in their order. It drops all others, and reports a missing packet once, by a NAK."""

    def __init__(self, *, ack_every: int, ack_delay_s: float) -> None:
        self._reassembly = Reassembly()
        self._ack_every = ack_every
        self._ack_delay_s = ack_delay_s
        self._expected = 0
        self._unreported = 0
        self._flags = 0
        self._nak_for = -1
        self._echo, self._echo_at = 0, 0.0
        self._due_at = INFINITY

    def on_data(self, path_id: int, packet: Data, now: float) -> bool:
        """Take a packet if it is the expected one. See `Receiving`."""
        number = packet.number
        if number > self._expected:
            if self._nak_for != self._expected:
                self._nak_for = self._expected
                self._flags = NAK
                self._due_at = now
            return False
        if number < self._expected:  # sent again, because its acknowledgement was lost or late
            self._due_at = now
            return False
        self._expected += 1
        self._flags = 0
        self._echo, self._echo_at = number, now
        self._unreported += 1
        if packet.flags & LAST or self._unreported >= self._ack_every:
            self._due_at = now
        elif self._unreported == 1:
            self._due_at = min(self._due_at, now + self._ack_delay_s)
        return self._reassembly.add(packet.offset, packet.payload)

    def messages(self) -> list[tuple[int, Buffer]]:
        """Remove and return the complete messages, oldest first."""
        return self._reassembly.messages()

    def timer(self) -> float:
        """Return when a report is due, or infinity."""
        return self._due_at

    def reports(self, now: float, token: int) -> list[Report]:
        """Return the report that is due: everything below `stop` has arrived."""
        if now < self._due_at:
            return []
        self._due_at = INFINITY
        self._unreported = 0
        flags, self._flags = self._flags, 0
        delay_us = min(round((now - self._echo_at) * 1e6), MAX_U32)
        return [Report(token, 0, flags, self._echo, delay_us, 0, self._expected, 0, 0, ())]
