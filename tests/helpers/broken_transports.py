"""Endpoints that the conformance suite must catch: each differs from a toy that passes in one thing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from bicoastal.transports.base import Counters, Datagram, EndpointContext, Sample
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from helpers.example_frames import ACK, DATA, Frame
from helpers.example_transports import ArqEndpoint


class LosesLastByte(ArqEndpoint):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, MessageReceived) and len(event.data) > 1000:
            return MessageReceived(message_id=event.message_id, data=bytes(event.data)[:-1])
        return event


class FlipsBit(ArqEndpoint):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, MessageReceived) and event.data:
            wrong = bytearray(event.data)
            wrong[-1] ^= 1
            return MessageReceived(message_id=event.message_id, data=wrong)
        return event


class DeliversTwice(ArqEndpoint):
    def on_data(self, frame: Frame) -> None:
        before = len(self.events)
        super().on_data(frame)
        self.events.extend(list(self.events)[before:])


class DeliversRepeats(ArqEndpoint):
    """Takes a duplicated datagram of a one-datagram message for another message."""

    def on_data(self, frame: Frame) -> None:
        if len(frame.data) == frame.total_bytes:
            self.events.append(MessageReceived(message_id=frame.message_id, data=frame.data))
        else:
            super().on_data(frame)


class MistakesIdentity(ArqEndpoint):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, MessageReceived):
            return MessageReceived(message_id=event.message_id & 0xFFFFFFFF, data=event.data)
        return event


class NeverRepairs(ArqEndpoint):
    def get_timer(self) -> float | None:
        return None


class GivesUpAtOnce(ArqEndpoint):
    def expire(self, lane: object, flight: object, now: float) -> None:
        self.events.append(Failed(reason="a packet was lost"))


class FailsWithoutReason(ArqEndpoint):
    def connect(self) -> None:
        self.events.append(Failed(reason=""))


class ConnectsTwice(ArqEndpoint):
    def on_hello(self, frame: Frame) -> None:
        self.events.append(Connected())
        super().on_hello(frame)


class Spins(ArqEndpoint):
    def handle_timer(self, now: float) -> None:
        """Forget to do anything about it."""


class SpinsBusily(ArqEndpoint):
    """Has something to send each time, but its timer never moves on."""

    since = 0.0

    def get_timer(self) -> float | None:
        self.since = self.since or (super().get_timer() or 0.0)
        return self.since if self.connected and self.since else super().get_timer()

    def handle_timer(self, now: float) -> None:
        super().handle_timer(now)
        if self.connected:
            self.emit(0, Frame(ACK, 2**63), now)


class TimerIsNoTime(ArqEndpoint):
    def get_timer(self) -> float | None:
        timer = super().get_timer()
        return float("inf") if timer is None else timer


class Chatters(ArqEndpoint):
    """Keeps the path alive for ever."""

    alive_at = 0.0

    def get_timer(self) -> float | None:
        timer = super().get_timer()
        return self.alive_at if timer is None else min(timer, self.alive_at)

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        if self.connected and now >= self.alive_at:
            self.emit(0, Frame(ACK, 2**63), now)
        self.alive_at = max(self.alive_at, now + 30.0)
        return super().datagrams_to_send(now)


class Floods(ArqEndpoint):
    """Answers every datagram with two."""

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        super().receive_datagram(datagram, now)
        self.emit(datagram.path_id, Frame(ACK, 2**63), now)
        self.emit(datagram.path_id, Frame(ACK, 2**63), now)


class HoldsBack(ArqEndpoint):
    """Sends one datagram a call, and leaves the others for a call that may never come."""

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        waiting = [*super().datagrams_to_send(now)]
        self.outbox = waiting[1:]
        return waiting[:1]


class RaisesOnGarbage(ArqEndpoint):
    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        before = self.rejected
        super().receive_datagram(datagram, now)
        if self.rejected > before:
            raise ValueError("payload: not a frame")


class CountsNoGarbage(ArqEndpoint):
    def counters(self) -> Counters:
        return replace(super().counters(), rejected=0)


class TrustsEverybody(ArqEndpoint):
    """Does not look at the checksum."""

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        octets = bytes(datagram.payload)
        if len(octets) >= 37:
            kind = octets[4]
            numbers = (int.from_bytes(octets[5 + 8 * n : 13 + 8 * n], "big") for n in range(4))
            sequence, message_id, total_bytes, offset = numbers
            frame = Frame(kind, sequence, message_id, total_bytes, offset, octets[37:])
            datagram = datagram._replace(payload=frame)
        super().receive_datagram(datagram, now)


class CountsBackwards(ArqEndpoint):
    def counters(self) -> Counters:
        return replace(super().counters(), packets=-self.packets)


class SamplesNonsense(ArqEndpoint):
    def sample(self, now: float) -> Sample:
        return Sample(cwnd_bytes=float("nan"))


class TakesAnyIdentifier(ArqEndpoint):
    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        super().send_message(message_id % 2**64, data, now)


class SendsOversize(ArqEndpoint):
    def __init__(self, context: EndpointContext) -> None:
        super().__init__(context)
        self.room_bytes += 1


class Rewrites(ArqEndpoint):
    """Changes what a call has returned: one field of every datagram it hands out."""

    def rewrite(self, datagram: Datagram) -> Datagram:
        raise NotImplementedError

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        return [self.rewrite(datagram) for datagram in super().datagrams_to_send(now)]


class UnderstatesSize(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(wire_bytes=datagram.wire_bytes - 20)


class DepartsNever(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(depart_at=float("inf"))


class DepartsBackwards(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        late_s = 0.002 if datagram.payload[0] == DATA else 0.0  # type: ignore[index]
        return datagram._replace(depart_at=datagram.depart_at + late_s)


class BurstEndsBelowZero(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        left = datagram.burst_left
        return datagram if left is None else datagram._replace(burst_left=left - 1)


class InventsPath(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(path_id=4)


class MisusesEcn(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(ecn=4)


class PacesByRunNumber(Rewrites):
    """Keeps something from one run to the next."""

    runs = count()

    def __init__(self, context: EndpointContext) -> None:
        super().__init__(context)
        self.delay_s = 1e-6 * next(self.runs)

    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(depart_at=datagram.depart_at + self.delay_s)


class Salted:
    """A payload whose octets differ from one run to the next, and nothing else does."""

    salts = count()

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.octets = bytes(frame._replace(offset=next(self.salts))) if frame.kind == ACK else bytes(frame)

    def __bytes__(self) -> bytes:
        return self.octets


class SaltsItsOctets(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(payload=Salted(datagram.payload))  # type: ignore[arg-type]


class Growing:
    """A payload that is not the same the second time."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.reads = 0

    def __bytes__(self) -> bytes:
        self.reads += 1
        return bytes(self.frame._replace(offset=self.reads)) if self.frame.kind == ACK else bytes(self.frame)


class ChangesAfterDeparture(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(payload=Growing(datagram.payload))  # type: ignore[arg-type]


class Smuggled(Frame):
    """A frame whose octets leave something out."""

    def __bytes__(self) -> bytes:
        return bytes(Frame(self.kind, self.sequence, self.message_id ^ (self.kind == DATA), *self[3:]))


class SmugglesBesideItsOctets(Rewrites):
    def rewrite(self, datagram: Datagram) -> Datagram:
        return datagram._replace(payload=Smuggled(*datagram.payload))  # type: ignore[misc]


class PeeksAtTheBurst(ArqEndpoint):
    """Acts on a field that no real packet carries."""

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        super().receive_datagram(datagram, now)
        if datagram.burst_left == 0:
            self.emit(datagram.path_id, Frame(ACK, 2**63), now)


BROKEN: list[tuple[Callable[[EndpointContext], ArqEndpoint], str]] = [
    (LosesLastByte, r"delivered \d+ B as message \d+; \d+ B were sent"),
    (FlipsBit, r"and differ first at byte \d+"),
    (DeliversTwice, r"delivered message \d+ a second time"),
    (DeliversRepeats, r"delivered message \d+ a second time"),
    (MistakesIdentity, r"delivered message \d+ that nobody sent"),
    (NeverRepairs, r"nothing was left to happen before (every message had been delivered|both ends were connected)"),
    (GivesUpAtOnce, r"gave up: a packet was lost \(on paths with neither outage nor much loss\)"),
    (FailsWithoutReason, r"failed without a reason"),
    (ConnectsTwice, r"was connected twice"),
    (Spins, r"spins: after handle_timer its timer still lies in the past"),
    (SpinsBusily, r"spins: after handle_timer its timer still lies in the past|floods: datagram \d+"),
    (TimerIsNoTime, r"get_timer gave inf, which is no time"),
    (Chatters, r"still sends 900 s after all was delivered"),
    (Floods, r"floods: datagram \d+"),
    (HoldsBack, r"datagrams_to_send kept something back|before every message had been delivered"),
    (RaisesOnGarbage, r"receive_datagram raised ValueError: payload: not a frame"),
    (CountsNoGarbage, r"did not count a malformed datagram"),
    (TrustsEverybody, r"did not count a malformed datagram"),
    (CountsBackwards, r"the counter packets went back from 0 to -\d+"),
    (SamplesNonsense, r"the sample's cwnd_bytes is nan"),
    (TakesAnyIdentifier, r"send_message took -1 for a 64-bit identifier"),
    (SendsOversize, r"sent \d+ B on path \d, whose MTU is \d+ B"),
    (UnderstatesSize, r"sent \d+ B above IP and called it \d+ B with IP"),
    (DepartsNever, r"wants a datagram released at inf, which is no time"),
    (DepartsBackwards, r"depart_at decreases along path \d"),
    (BurstEndsBelowZero, r"burst_left is -1"),
    (InventsPath, r"sent a datagram on path 4, which it does not have"),
    (MisusesEcn, r"ecn is 4, which two bits cannot hold"),
    (PacesByRunNumber, r"a second run with the same seed sent other datagrams"),
    (SaltsItsOctets, r"with payloads delivered as octets, it sent other datagrams"),
    (ChangesAfterDeparture, r"changed a payload after it had departed"),
    (SmugglesBesideItsOctets, r"delivered message \d+ that nobody sent"),
    (PeeksAtTheBurst, r"with payloads delivered as octets, it sent other datagrams"),
]
