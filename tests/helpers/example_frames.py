"""What the toys put on the wire: one frame a packet, and how octets are told from damaged ones."""

import struct
import zlib
from typing import NamedTuple

from bicoastal.transports.base import Encodable
from bicoastal.transports.events import Buffer

HELLO, WELCOME, DATA, ACK, RATE = range(5)
IP_HEADER_BYTES = 20
HEADER = struct.Struct("!BQQQQ")
OVERHEAD_BYTES = IP_HEADER_BYTES + 4 + HEADER.size


class Frame(NamedTuple):
    """What travels: encoded only when somebody wants octets, with a CRC over all of it."""

    kind: int
    sequence: int = 0
    message_id: int = 0
    total_bytes: int = 0
    offset: int = 0
    data: Buffer = b""

    def __bytes__(self) -> bytes:
        body = HEADER.pack(self.kind, self.sequence, self.message_id, self.total_bytes, self.offset) + bytes(self.data)
        return zlib.crc32(body).to_bytes(4, "big") + body


def decode(payload: bytes | Encodable) -> Frame:
    """Return the frame of a payload. Raises ValueError for anything that is none."""
    if isinstance(payload, Frame):
        return payload
    octets = bytes(payload)
    body = octets[4:]
    if len(body) < HEADER.size or zlib.crc32(body) != int.from_bytes(octets[:4], "big"):
        raise ValueError("payload: not a frame, or a damaged one")
    kind, sequence, message_id, total_bytes, offset = HEADER.unpack_from(body)
    return Frame(kind, sequence, message_id, total_bytes, offset, body[HEADER.size :])
