"""How fast data is being delivered, as seen by the sender (draft-ietf-ccwg-bbr §4.1, delivery-rate estimation)."""

from transports.recovery.rack import SentPacket


class DeliveryRate:
    """Counts delivered bytes and turns each acknowledged packet into a rate sample."""

    __slots__ = ("app_limited_until", "delivered", "delivered_s", "first_sent_s")

    def __init__(self) -> None:
        self.delivered = 0
        self.delivered_s = 0.0
        self.first_sent_s = 0.0
        self.app_limited_until = 0

    def sent(self, packet: SentPacket, in_flight_bytes: int) -> None:
        """Stamp a packet that leaves at `packet.sent_s` with the present state."""
        if in_flight_bytes == 0:
            self.first_sent_s = self.delivered_s = packet.sent_s
        packet.delivered = self.delivered
        packet.delivered_s = self.delivered_s
        packet.first_sent_s = self.first_sent_s
        packet.app_limited = self.app_limited_until > self.delivered

    def application_limited(self, in_flight_bytes: int) -> None:
        """The application has nothing more to send: samples up to what is in flight now say little of the path."""
        self.app_limited_until = max(self.delivered + in_flight_bytes, 1)

    def sample(self, packet: SentPacket, now: float) -> float | None:
        """Return the rate in bit/s that the newest acknowledged packet shows; `delivered` is up to date already."""
        self.delivered_s = now
        self.first_sent_s = packet.sent_s
        # the slower of how it was sent and how it was acknowledged: ACK compression cannot make it too high
        interval_s = max(packet.sent_s - packet.first_sent_s, now - packet.delivered_s)
        if interval_s <= 0:
            return None
        return 8 * (self.delivered - packet.delivered) / interval_s
