"""What can be set on every TCP."""

from dataclasses import dataclass

from bicoastal.transports.congestion.loss_based import REDUCES
from bicoastal.transports.recovery.rtt import MAX_RTO_S
from bicoastal.transports.tcp.segment import MAX_WINDOW_SHIFT
from bicoastal.wan.checks import FieldError

RFC6928_WINDOW_BYTES = 14600


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpParameters:
    """What can be set on every TCP.

    initial_window_segments: the window that a connection begins with, 10 whatever their size, as kernels do. RFC 6928
    §2 bounds it to max(2 MSS, 14600 bytes) besides, which is 10 segments at MTU 1500 but 2 at MTU 9000:
    initial_window_bounded keeps to that. after_idle: "decay" (RFC 2861, as Linux), "restart" (RFC 5681 §4.1) or "keep".
    byte_count_limit: L of RFC 3465, 1 for RFC 5681's slow start, 2 as kernels do. min_rto_s: floor of the RTO's
    variance term, seconds. delayed_ack_s, ack_every: the receiver's delayed ACK (RFC 5681 §4.2). quick_acks: segments
    acknowledged one by one when a connection begins. max_ack_delay_s: what a tail loss probe allows an unknown receiver
    for a delayed ACK (RFC 8985 §7.2), 200 ms as kernels do. reduces: of what a loss takes a share, "window" as kernels
    do, or "flight" (RFC 5681 §3.1 equation 4); see `transports.congestion.loss_based`. receive_window_bytes,
    max_receive_window_bytes: where the receiver's auto-tuning starts and ends. Raises ValueError naming the field.
    """

    initial_window_segments: int = 10
    initial_window_bounded: bool = False
    after_idle: str = "decay"
    byte_count_limit: int = 2
    min_rto_s: float = 0.2
    delayed_ack_s: float = 0.040
    ack_every: int = 2
    quick_acks: int = 16
    max_ack_delay_s: float = 0.2
    reduces: str = "window"
    receive_window_bytes: int = 65535
    max_receive_window_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.after_idle not in ("decay", "restart", "keep"):
            raise FieldError("after_idle", f"{self.after_idle!r} is not one of decay, restart, keep")
        if self.reduces not in REDUCES:
            raise FieldError("reduces", f"{self.reduces!r} is neither 'flight' nor 'window'")
        for name in ("initial_window_segments", "byte_count_limit", "ack_every"):
            if getattr(self, name) < 1:
                raise FieldError(name, f"{getattr(self, name)} is less than 1")
        if self.quick_acks < 0:
            raise FieldError("quick_acks", f"{self.quick_acks} is negative")
        if not 0 < self.min_rto_s <= MAX_RTO_S:
            raise FieldError("min_rto_s", f"{self.min_rto_s} is not above 0 and at most {MAX_RTO_S:g}")
        if not 0 <= self.delayed_ack_s < 0.5:  # RFC 9293 §3.8.6.3
            raise FieldError("delayed_ack_s", f"{self.delayed_ack_s} is not at least 0 and below 0.5")
        if not 0 <= self.max_ack_delay_s <= 1:
            raise FieldError("max_ack_delay_s", f"{self.max_ack_delay_s} is not between 0 and 1")
        if not self.receive_window_bytes <= self.max_receive_window_bytes <= 1 << 30:
            raise FieldError(
                "max_receive_window_bytes",
                f"{self.max_receive_window_bytes} is not between receive_window_bytes and {1 << 30}",
            )
        unit = 1 << self.window_shift
        if self.receive_window_bytes < unit:
            raise FieldError(
                "receive_window_bytes",
                f"{self.receive_window_bytes} is less than {unit}, "
                "the unit in which windows up to max_receive_window_bytes are told",
            )

    @property
    def window_shift(self) -> int:
        """The least shift with which the largest window can be told in 16 bits (RFC 7323 §2.2, at most 14: §2.3)."""
        return min(max(self.max_receive_window_bytes.bit_length() - 16, 0), MAX_WINDOW_SHIFT)

    def initial_window(self, mss_bytes: int) -> int:
        """Return the initial window in segments of `mss_bytes` octets (RFC 6928 §2)."""
        if not self.initial_window_bounded:
            return self.initial_window_segments
        return min(self.initial_window_segments, max(2, RFC6928_WINDOW_BYTES // mss_bytes))
