"""A message on its way out: its blocks, what is known of their symbols, and what each still needs."""

from bicoastal.transports.coding.codes import Encoder, block_checksum
from bicoastal.transports.coding.interleaving import block_sizes
from bicoastal.transports.coding.redundancy import RedundancyPlan
from bicoastal.transports.events import Buffer
from bicoastal.transports.multipath.fec_wire import SYMBOL_HEADER, Announcement


class OutgoingBlock:
    """One block. A symbol is queued, then in flight, then acknowledged or lost; the last two may be revised.

    needed: how many acknowledged symbols the block is known to take; more than k where the code has failed with k.
    """

    __slots__ = ("_repairs", "acked", "encoder", "in_flight", "k", "limit", "lost", "needed", "next_index", "queued")

    def __init__(self, encoder: Encoder, k: int, r: int, max_repair: int) -> None:
        self.encoder = encoder
        self.k = k
        self.needed = k
        self.next_index = k + r
        self.limit = k + max_repair
        self.queued = k + r
        self.in_flight = self.acked = 0
        self.lost: list[int] = []  # what can be sent again when the code has no repair symbol left
        self._repairs: list[bytes] = []

    def symbol(self, index: int) -> Buffer:
        """Return a symbol; repair is made many at a time."""
        number = index - self.k
        if number < 0:
            return self.encoder.source(index)
        if number >= len(self._repairs):
            have = len(self._repairs)
            ahead = max(self.next_index - self.k, number + 1, have + have // 4)
            self._repairs += self.encoder.repair(have, min(ahead, self.limit - self.k) - have)
        return self._repairs[number]

    @property
    def shortfall(self) -> int:
        """Return how many more symbols must be queued, as if everything queued or in flight were to arrive."""
        return self.needed - self.acked - self.in_flight - self.queued

    def fresh(self) -> int | None:
        """Return the index of a symbol never sent, or, where the code has no more, of one that was lost."""
        if self.next_index < self.limit:
            self.next_index += 1
            return self.next_index - 1
        return self.lost.pop(0) if self.lost else None

    def missing(self, count: int) -> None:
        """Take the receiver's word that it needs `count` symbols more than have arrived there."""
        self.needed = max(self.needed, self.acked + count)


class OutgoingMessage:
    """One message, cut and announced as `redundancy` says; `data` must not change until it is delivered."""

    __slots__ = ("announcement", "blocks", "r")

    def __init__(
        self, data: Buffer, *, number: int, message_id: int, symbol_bytes: int, redundancy: RedundancyPlan, r: int
    ) -> None:
        view = memoryview(data).cast("B")
        symbols = -(-len(view) // symbol_bytes)
        code = redundancy.code
        self.r = r
        self.blocks: list[OutgoingBlock] = []
        checksums: list[int] = []
        at = 0
        for k in block_sizes(symbols, redundancy.blocks) if symbols else ():
            block: Buffer = view[at : at + k * symbol_bytes]
            if len(block) < k * symbol_bytes:
                block = bytes(block) + bytes(k * symbol_bytes - len(block))
            at += k * symbol_bytes
            checksums.append(block_checksum(block))
            self.blocks.append(OutgoingBlock(code.encoder(block, symbol_bytes), k, r, code.max_repair(k)))
        self.announcement = Announcement(
            number, message_id, len(view), symbol_bytes, len(self.blocks), code, tuple(checksums)
        )

    def symbol(self, block_at: int, index: int) -> bytes:
        """Return a symbol with its header."""
        header = SYMBOL_HEADER.pack(self.announcement.number, block_at, index)
        return b"".join((header, self.blocks[block_at].symbol(index)))
