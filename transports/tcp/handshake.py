"""The handshake of a TCP: when SYNs are sent, and what those of both ends agree on."""

from math import inf
from typing import NamedTuple

from bicoastal.transports.tcp.segment import MAX_WINDOW_SHIFT, TIMESTAMPS_BYTES, Segment

MAX_TRIES = 8  # the last one's time is over after 183 s: RFC 9293 §3.8.3 asks for three minutes
MAX_WAIT_S = 60.0  # RFC 6298 §2.5
DEFAULT_MSS = 536  # RFC 9293 §3.7.1: of a peer that does not tell


class Agreement(NamedTuple):
    """Of one end of a connection. An option that the peer's SYN does not offer is not used.

    segment_bytes: payload of a full segment that may be sent. scaled: whether windows are, by send_shift those that
    come, by receive_shift those that go. timestamps: every segment bears them. selective: the peer takes SACK blocks.
    """

    segment_bytes: int
    send_shift: int
    receive_shift: int
    timestamps: bool
    selective: bool
    scaled: bool


def agree(own_mss: int, own_shift: int, syn: Segment) -> Agreement:
    """Return what follows from the peer's SYN, where our own offers `own_mss`, a shift of `own_shift`, and everything.

    RFC 9293 §3.7.1 and RFC 6691 §3: the MSS option leaves out options, so a full segment is smaller by those it bears.
    RFC 7323 §2.2 and §3.2: windows are scaled, and timestamps borne, both ways or not at all. RFC 2018 §2: SACK blocks
    may be sent only to who permits them.
    """
    timestamps = syn.timestamp_value is not None
    scaled = syn.window_scale is not None
    mss = min(own_mss, syn.mss or DEFAULT_MSS)
    return Agreement(
        segment_bytes=max(mss - (TIMESTAMPS_BYTES if timestamps else 0), 1),
        send_shift=min(syn.window_scale or 0, MAX_WINDOW_SHIFT),  # RFC 7323 §2.3
        receive_shift=own_shift if scaled else 0,
        timestamps=timestamps,
        selective=syn.sack_permitted,
        scaled=scaled,
    )


class SynTimer:
    """When the SYN, or the answer to one, is to be sent, and sent again: after 1 s, 2 s, 4 s (RFC 6298 §2.1, §5.5).

    due_s: inf for never. lost: it had to be sent again because no answer came, not because the peer asked twice.
    """

    __slots__ = ("_sent_s", "_tries", "due_s", "lost")

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.lost = False
        self._tries = 0
        self._sent_s = 0.0

    def sent(self, now: float) -> bool:
        """Note that it is being sent; return whether there has not been enough of that."""
        self._tries += 1
        self._sent_s = now
        self.due_s = now + min(2.0 ** (self._tries - 1), MAX_WAIT_S)
        return self._tries <= MAX_TRIES

    def expire(self, now: float) -> None:
        """Note the time: if the answer is due by now, what was sent is taken for lost."""
        if self._tries and self.due_s <= now:
            self.lost = True

    def stop(self) -> None:
        """Send it no more: the handshake is over."""
        self.due_s = inf

    def rtt_s(self, now: float) -> float | None:
        """Return the round trip that the answer arriving now shows; None if it may answer either of two (Karn)."""
        return now - self._sent_s if self._tries == 1 else None
