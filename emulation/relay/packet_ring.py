"""Reads and writes the Ethernet frames of an interface without the kernel's IP: AF_PACKET with a shared ring.

The kernel writes a frame and its time of arrival into a slot of the ring. The reader takes it at any later time,
without a system call. The ring has version 2: version 3 delivers whole blocks of frames, which delays them by
milliseconds. Source: packet(7), and Documentation/networking/packet_mmap.rst of Linux.
"""

import mmap
import socket
import struct
import time
from collections.abc import Callable
from errno import EAGAIN, ENOBUFS
from typing import NamedTuple

ETH_P_IP = 0x0800
_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_PACKET_QDISC_BYPASS = 20
_PACKET_IGNORE_OUTGOING = 23
_TPACKET_V2 = 1
_TP_STATUS_USER = 1
_TP_STATUS_COPY = 2  # the frame was cut to the slot
_HEADER = struct.Struct("=IIIHHII")  # tpacket2_hdr: status, len, snaplen, mac, net, sec, nsec
_HEADROOM = 128  # more than TPACKET2_HDRLEN and the alignment of the network header
_LARGEST_RING_BYTES = 16 << 20  # 8192 ordinary frames: 40 ms at the highest rate that a relay can read
_LEAST_RING_BYTES = 1 << 20
_RINGS_BYTES = 256 << 20  # of all rings of a process: the kernel cannot swap them out
_BLOCK_BYTES = 1 << 18
_RETRY_S = 100e-6
_ATTEMPTS = 200

_Take = Callable[[int, bytes, float], None]


class RingCounts(NamedTuple):
    """What the kernel counted since the last query. dropped: frames for which there was no free slot."""

    packets: int
    dropped: int


def ring_bytes(count: int) -> int:
    """Return the size of each of `count` rings in one process, a power of two; all rings share a limit."""
    share = max(_LEAST_RING_BYTES, min(_LARGEST_RING_BYTES, _RINGS_BYTES // count))
    return 1 << (share.bit_length() - 1)


class PacketRing:
    """The IPv4 frames that come in through `device`, and a way out through it. Raises OSError.

    mtu_bytes: largest IP packet. size_bytes: of the ring, see `ring_bytes`. refused: attempts to send for which the
    kernel had no room. unsent: frames that were not sent after all attempts. Make it inside the namespace of the
    device.
    """

    __slots__ = ("_at", "_map", "_slot_bytes", "_slots", "_socket", "_words", "refused", "unsent")

    def __init__(self, device: str, *, mtu_bytes: int, size_bytes: int) -> None:
        slot = 1 << (mtu_bytes + 14 + _HEADROOM - 1).bit_length()
        self._slot_bytes = slot
        self._slots = size_bytes // slot
        self._at = 0
        self.unsent = self.refused = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # it receives nothing until it is bound
        try:
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            block = max(_BLOCK_BYTES, slot)
            request = struct.pack("=IIII", block, size_bytes // block, slot, self._slots)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
            self._map = mmap.mmap(self._socket.fileno(), size_bytes)
            self._words = memoryview(self._map).cast("I")
            self._socket.setblocking(False)
            self._socket.bind((device, ETH_P_IP))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def receive(self, way: int, take: _Take, offset_s: float, most: int) -> int:
        """Hand up to `most` frames to `take(way, frame, arrived_s)`; return how many there were.

        offset_s: the difference to subtract from the kernel's stamps, which are wall-clock time.
        """
        words, ring, slot = self._words, self._map, self._slot_bytes
        at = self._at
        for number in range(most):
            start = at * slot
            status = words[start >> 2]
            if not status & _TP_STATUS_USER:
                self._at = at
                return number
            _, _, captured, mac, _, seconds, nanoseconds = _HEADER.unpack_from(ring, start)
            frame = ring[start + mac : start + mac + captured]
            words[start >> 2] = 0  # give the slot back to the kernel
            at = at + 1 if at + 1 < self._slots else 0
            if status & _TP_STATUS_COPY:
                raise OSError(f"a frame of more than {captured} bytes came in")
            take(way, frame, seconds + nanoseconds * 1e-9 - offset_s)
        self._at = at
        return most

    def send(self, frame: bytes) -> None:
        """Send a frame. When the receiver's backlog is full, try again for a while, then count the frame as unsent."""
        for _ in range(_ATTEMPTS):
            try:
                self._socket.send(frame)
                return
            except OSError as error:
                if error.errno not in (ENOBUFS, EAGAIN):
                    raise
            self.refused += 1
            time.sleep(_RETRY_S)
        self.unsent += 1

    def counts(self) -> RingCounts:
        """Return the kernel's counts and reset them."""
        packets, dropped = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return RingCounts(packets, dropped)

    def close(self) -> None:
        """Close the ring."""
        self._words.release()
        self._map.close()
        self._socket.close()
