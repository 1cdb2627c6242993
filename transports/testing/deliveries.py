"""The messages offered to a transport under test; each must arrive once, at the far end, with every octet equal."""

from bicoastal.transports.events import MessageReceived
from bicoastal.transports.testing.port import ContractError, Port


class Deliveries:
    """The messages of one conversation, by the role that is to receive them and by their identifiers.

    messages, payload_bytes: how many have been delivered as they were offered, and how much was in them.
    """

    def __init__(self) -> None:
        self._expected: dict[tuple[str, int], bytes] = {}
        self._received: set[tuple[str, int]] = set()
        self.messages = self.payload_bytes = 0

    def expect(self, role: str, message_id: int, content: bytes) -> None:
        """Wait for a message that is about to be offered to the other role."""
        self._expected[role, message_id] = content

    def expected(self, role: str, message_id: int) -> bytes:
        """Return the content of a message that has not been delivered."""
        return self._expected[role, message_id]

    def complete(self) -> bool:
        """Return whether every message that was expected has been delivered."""
        return not self._expected

    def check(self, port: Port, event: MessageReceived) -> None:
        """Take a delivery. Raises ContractError for one that nobody waits for, and for content that was not sent."""
        key = (port.role, event.message_id)
        expected = self._expected.pop(key, None)
        if expected is None:
            what = "a second time" if key in self._received else "that nobody sent"
            raise ContractError(f"{port.name} delivered message {event.message_id} {what}")
        self._received.add(key)
        data = bytes(event.data)
        if data != expected:
            differs = next((at for at, (a, b) in enumerate(zip(data, expected, strict=False)) if a != b), None)
            what = "" if differs is None else f", and differ first at byte {differs}"
            raise ContractError(
                f"{port.name} delivered {len(data)} B as message {event.message_id}; {len(expected)} B were sent{what}"
            )
        self.messages += 1
        self.payload_bytes += len(data)
