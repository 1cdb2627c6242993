"""Proportional Rate Reduction: how much may be sent during fast recovery (RFC 9937)."""

from math import ceil

from bicoastal.wan.checks import FieldError


class ProportionalRateReduction:
    """The counts of bytes in one recovery episode; sizes are bytes.

    While more than ssthresh is in flight, what is delivered is answered in the proportion ssthresh / RecoverFS. Below
    that, the bound is conservation (PRR-CRB), or slow start (PRR-SSRB) where an ACK is a SafeACK: it moves SND.UNA and
    shows no further loss. Either way an episode ends with ssthresh in flight, unless it lost more than that.

    A sender of full segments cannot use a fraction of one, so the proportional share is rounded up to whole segments.
    RFC 9937 §6.2 rounds up to its unit too, and counts segments in its examples.

    Raises ValueError naming the argument.
    """

    __slots__ = (
        "_delivered_bytes",
        "_mss_bytes",
        "_out_bytes",
        "_recover_fs_bytes",
        "_ssthresh_bytes",
        "_window_bytes",
    )

    def __init__(self, *, mss_bytes: int) -> None:
        if mss_bytes < 1:
            raise FieldError("mss_bytes", f"{mss_bytes} is not positive")
        self._mss_bytes = mss_bytes
        self._recover_fs_bytes = 1  # RecoverFS
        self._ssthresh_bytes = 0.0
        self._delivered_bytes = 0  # prr_delivered
        self._out_bytes = 0  # prr_out
        self._window_bytes = 0.0

    def on_enter(self, *, in_flight_bytes: int, ssthresh_bytes: float) -> None:
        """Begin an episode (RFC 9937 §6.1).

        in_flight_bytes becomes RecoverFS: all that may yet be delivered, counted before the ACK that begins the
        episode. It is the sum of what is in flight now, what has just been marked lost, and what this very ACK
        delivered. That ACK goes through `on_ack` like those after it.
        """
        self._recover_fs_bytes = max(in_flight_bytes, 1)
        self._ssthresh_bytes = ssthresh_bytes
        self._delivered_bytes = self._out_bytes = 0
        self._window_bytes = 0.0

    def on_sent(self, sent_bytes: int) -> None:
        """Note what was sent during the episode, new or again (RFC 9937 §6.3)."""
        self._out_bytes += sent_bytes

    def on_ack(self, *, delivered_bytes: int, in_flight_bytes: int, lost_bytes: int, advanced: bool) -> float:
        """Take an acknowledgement and return the window: what is in flight and what may be sent now (RFC 9937 §6.2).

        delivered_bytes: newly acknowledged or selectively acknowledged. in_flight_bytes: after this ACK. lost_bytes:
        marked lost because of it. advanced: it moved SND.UNA.
        """
        mss_bytes, ssthresh_bytes, out_bytes = self._mss_bytes, self._ssthresh_bytes, self._out_bytes
        if delivered_bytes:
            self._delivered_bytes += delivered_bytes
            if in_flight_bytes > ssthresh_bytes:
                share_bytes = self._delivered_bytes * ssthresh_bytes / self._recover_fs_bytes
                send_bytes: float = ceil(share_bytes / mss_bytes) * mss_bytes - out_bytes
            else:
                send_bytes = max(self._delivered_bytes - out_bytes, delivered_bytes)  # PRR-CRB
                if advanced and not lost_bytes:  # SafeACK: PRR-SSRB
                    send_bytes += mss_bytes
                send_bytes = min(send_bytes, ssthresh_bytes - in_flight_bytes)
            self._window_bytes = in_flight_bytes + max(send_bytes, 0)
        if not out_bytes:
            # the first repair goes at once, whatever the share (RFC 9937 §6.2, "force a fast retransmit")
            self._window_bytes = max(self._window_bytes, in_flight_bytes + mss_bytes)
        return self._window_bytes
