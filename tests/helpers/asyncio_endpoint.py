"""A sans-IO endpoint on an asyncio UDP socket, as any program would run it: nothing here knows what the endpoint is."""

import asyncio
from collections.abc import Callable
from typing import Any

from bicoastal.transports.base import Datagram, Endpoint
from bicoastal.transports.events import Event


class AsyncioEnd(asyncio.DatagramProtocol):
    """Pumps one endpoint over one socket; a server answers whoever spoke last. `events` is what it has told so far."""

    def __init__(self, endpoint: Endpoint, peer: tuple[str, int] | None = None) -> None:
        self.endpoint = endpoint
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._peer: Any = peer
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._peer is not None:
            self._pump()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._peer = address
        now = self._loop.time()
        self.endpoint.receive_datagram(Datagram(0, data, 28 + len(data), now), now)
        self._pump()

    def send_message(self, message_id: int, data: bytes) -> None:
        self.endpoint.send_message(message_id, data, self._loop.time())
        self._pump()

    async def expect(self, wanted: Callable[[Event], bool]) -> Event:
        """Return the next event that is wanted; drop others."""
        while True:
            event = await self.events.get()
            if wanted(event):
                return event

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()

    def _pump(self) -> None:
        now = self._loop.time()
        for datagram in self.endpoint.datagrams_to_send(now):
            if datagram.depart_at > now:
                self._loop.call_at(datagram.depart_at, self._release, bytes(datagram.payload))
            else:
                self._release(bytes(datagram.payload))
        while (event := self.endpoint.next_event()) is not None:
            self.events.put_nowait(event)
        if self._timer is not None:
            self._timer.cancel()
        timer = self.endpoint.get_timer()
        self._timer = None if timer is None else self._loop.call_at(timer, self._fire)

    def _release(self, payload: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(payload, self._peer)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        timer = self.endpoint.get_timer()
        if timer is not None and timer <= now:
            self.endpoint.handle_timer(now)
        self._pump()
