"""Control messages: unchanged octets, the propagation delay, and the loss of messages that are too old."""

import pytest

from bicoastal.emulation.service.control import LATEST_S, ControlMessage, MalformedControlError
from bicoastal.transports.base import Datagram


def test_a_datagram_crosses_as_it_was() -> None:
    sent = ControlMessage.of(Datagram(-2, b"what it says", 86, 1.0), service=1, peer=70_000, now=12.25)
    arrived = ControlMessage.decode(bytes(sent))
    assert arrived == (1, 70_000, 86, 12.25, b"what it says")


@pytest.mark.parametrize("octets", [b"", bytes(19)])
def test_what_is_shorter_than_its_header_is_malformed(octets: bytes) -> None:
    with pytest.raises(MalformedControlError, match=rf"^message: {len(octets)} octets are less than a header's 20$"):
        ControlMessage.decode(octets)


@pytest.mark.parametrize(
    ("sent_s", "now", "arrives_s"),
    [
        (5.0, 5.001, 5.03),  # the time that the sockets took does not count
        (5.0, 5.04, 5.04),  # it is late already
        (5.0, 5.03 + LATEST_S, 5.03 + LATEST_S),
        (5.0, 5.031 + LATEST_S, None),
        (9.0, 5.0, 5.03),  # nobody can send from the future to be heard for ever
        (float("nan"), 5.0, None),
        (float("-inf"), 5.0, None),
        (float("inf"), 5.0, 5.03),
    ],
)
def test_a_message_arrives_when_the_delay_has_passed_since_it_was_sent(
    sent_s: float, now: float, arrives_s: float | None
) -> None:
    arrives = ControlMessage(0, 0, 0, sent_s, b"").arrives_s(0.03, now)
    assert arrives == (None if arrives_s is None else pytest.approx(arrives_s))
