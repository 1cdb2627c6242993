from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from toys import ACK, DATA, NATIVE, STEERED, STRIPER, ArqEndpoint, Frame, Governor, SteeredEndpoint
from transports.base import (
    Counters,
    Datagram,
    EndpointContext,
    Sample,
    ServiceContext,
    ServicePlacement,
)
from transports.events import Buffer, Connected, Event, Failed, MessageReceived
from transports.registry import Registry
from transports.testing import ConformanceError, check_transport, make_schedule

SCHEDULES = 1200
CHUNKS = 6  # so that parallel workers share the work
TOYS = {"toy-striper": STRIPER, "toy-steered": STEERED}


INSTALLED = {
    name: spec
    for name in Registry.installed().names()
    if (spec := Registry.installed().resolve(name)).kind == "sans-io"  # programs have no verbs to check
}
SPECS = TOYS | INSTALLED
COSTLY = {"quic", "mpquic", "quic-fec", "mpquic-fec"}  # real TLS, packet by packet: most of their schedules are slow


def _chunks(*, slow: bool) -> list[tuple[str, int]]:
    return [(name, chunk) for name in SPECS for chunk in range(CHUNKS) if (name in COSTLY and chunk > 0) == slow]


def _check(name: str, chunk: int) -> None:
    size = SCHEDULES // CHUNKS
    report = check_transport(SPECS[name], rng_factory=Random, first=chunk * size, schedules=size)
    report.raise_on_failure()
    assert report.schedules == size
    assert report.messages > size
    assert all(report.impairments[name] > 0 for name in ("lost", "dropped_outage", "reordered", "duplicated"))
    assert report.impairments["corrupted"] > 0
    assert report.garbage > size
    assert report.gave_up <= size // 50


@pytest.mark.parametrize(("name", "chunk"), _chunks(slow=False))
def test_a_transport_keeps_its_promises(name: str, chunk: int) -> None:
    _check(name, chunk)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chunk"), _chunks(slow=True))
def test_a_costly_transport_keeps_its_promises(name: str, chunk: int) -> None:
    _check(name, chunk)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("name", [name for name in SPECS if name not in COSTLY])
def test_a_transport_keeps_its_promises_under_other_seeds(name: str, seed: int) -> None:
    check_transport(SPECS[name], rng_factory=Random, seed=seed, schedules=700).raise_on_failure()


@pytest.mark.parametrize(
    ("name", "seed", "schedule"),
    [
        ("b4", 5, 622),  # reordering forgotten while a packet was waited for: the sender stood still
        ("rdma-gbn", 1, 437),  # every other packet lost: all of the stream again for each that got through
        ("rdma-gbn", 3, 314),
        ("rdma-gbn", 6, 356),
        ("mpquic", 0, 852),  # each of two idle paths deferred to the other, which it took for the sooner
    ],
)
def test_a_schedule_that_once_broke_a_transport_no_longer_does(name: str, seed: int, schedule: int) -> None:
    spec = Registry.installed().resolve(name)
    check_transport(spec, rng_factory=Random, seed=seed, only=schedule).raise_on_failure()


# -- what the suite must catch: each of these differs from a toy that passes in one thing ------------------------------


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
            fields = [int.from_bytes(octets[5 + 8 * n : 13 + 8 * n], "big") for n in range(4)]
            datagram = datagram._replace(payload=Frame(kind, *fields, octets[37:]))
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


@pytest.mark.parametrize(("endpoint", "sentence"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_transport_is_caught(endpoint: Callable[[EndpointContext], ArqEndpoint], sentence: str) -> None:
    broken = replace(STRIPER, make_endpoint=endpoint)
    report = check_transport(broken, rng_factory=Random, schedules=100, stop_after=1)
    assert not report.ok
    with pytest.raises(ConformanceError, match=sentence):
        report.raise_on_failure()
    again = check_transport(broken, rng_factory=Random, only=report.violations[0].schedule)
    assert not again.ok  # what the report names can be run again alone


class CredulousGovernor(Governor):
    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        if not isinstance(datagram.payload, Frame):
            raise ValueError("payload: not a frame")
        super().receive_datagram(datagram, now)


class RestlessGovernor(Governor):
    def get_timer(self) -> float | None:
        return 0.0

    def handle_timer(self, now: float) -> None:
        """Forget to do anything about it."""


class ServerThatAsks(SteeredEndpoint):
    """Asks the service from an end that has no way to it."""

    def on_hello(self, frame: Frame) -> None:
        super().on_hello(frame)
        self.may_greet(0.0)


def governed_by(governor: type[Governor]) -> Callable[[ServiceContext], Sequence[ServicePlacement]]:
    return lambda context: [ServicePlacement(name="governor", site="west", machine=governor(context.topology))]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"make_services": governed_by(CredulousGovernor)}, r"service governor: receive_datagram raised ValueError"),
        ({"make_services": governed_by(RestlessGovernor)}, r"service governor spins"),
        ({"make_endpoint": ServerThatAsks}, r"server sent a datagram on path -1, which it does not have"),
        ({"make_services": lambda _context: ()}, r"client sent a datagram on path -1, which it does not have"),
    ],
)
def test_broken_services_are_caught(changes: dict[str, Callable[..., object]], sentence: str) -> None:
    report = check_transport(replace(STEERED, **changes), rng_factory=Random, schedules=5)  # type: ignore[arg-type]
    assert not report.ok
    with pytest.raises(ConformanceError, match=sentence):
        report.raise_on_failure()


# -- the suite itself --------------------------------------------------------------------------------------------------


def test_a_violation_says_which_schedule_when_and_what() -> None:
    broken = replace(STRIPER, make_endpoint=NeverRepairs)
    violation = check_transport(broken, rng_factory=Random, schedules=50, stop_after=1).violations[0]
    assert violation.sentence.startswith(f"schedule {violation.schedule} of seed 0 (")
    assert f"at {violation.at_s:.6f} s: " in violation.sentence


def test_a_check_ends_after_the_violations_asked_for() -> None:
    broken = replace(STRIPER, make_endpoint=TakesAnyIdentifier)
    report = check_transport(broken, rng_factory=Random, schedules=50, stop_after=3)
    assert (report.schedules, len(report.violations)) == (3, 3)


def test_giving_up_with_a_reason_is_allowed_in_an_outage_and_counted() -> None:
    resigned = replace(STRIPER, make_endpoint=GivesUpAtOnce)
    numbers = [n for n in range(200) if make_schedule(n, seed=0, paths="many", rng_factory=Random).weather == "outage"]
    reports = [check_transport(resigned, rng_factory=Random, only=number) for number in numbers]
    assert any(report.ok and report.gave_up == 1 for report in reports)


def test_schedules_are_functions_of_seed_and_number() -> None:
    def make(number: int, seed: int) -> object:
        return make_schedule(number, seed=seed, paths="many", rng_factory=Random)

    assert make(3, 0) == make(3, 0)
    assert len({str(make(number, seed)) for number in range(20) for seed in range(5)}) == 100


def test_schedules_reach_what_they_are_for() -> None:
    schedules = [make_schedule(number, seed=0, paths="many", rng_factory=Random) for number in range(1000)]
    offers = [offer for schedule in schedules for offer in schedule.offers]
    sizes = {offer.size_bytes for offer in offers}
    assert {0, 1} <= sizes
    assert max(sizes) > 300_000
    assert {offer.role for offer in offers} == {"client", "server"}
    assert {0, 2**64 - 1} <= {offer.message_id for offer in offers}
    assert {len(schedule.links) for schedule in schedules} == {1, 2, 3, 4}
    assert max(schedule.iterations for schedule in schedules) >= 4
    assert {garbage.kind for schedule in schedules for garbage in schedule.garbage} == {
        "random", "flipped", "truncated", "stale",
    }  # fmt: skip
    assert any(schedule.gentle for schedule in schedules)
    assert not all(schedule.gentle for schedule in schedules)


def test_a_one_path_transport_gets_one_path() -> None:
    assert all(len(make_schedule(number, seed=0, paths="one", rng_factory=Random).links) == 1 for number in range(50))


def test_parameters_reach_the_endpoints() -> None:
    with pytest.raises(ValueError, match=r"^gain: toy-striper has no such parameter"):
        check_transport(STRIPER, rng_factory=Random, parameters={"gain": 1})
    stop_and_wait = check_transport(STRIPER, rng_factory=Random, schedules=20, parameters={"max_window_packets": 1})
    assert stop_and_wait.ok


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^kind: toy-native is native, and only a sans-io transport can be checked$"):
        check_transport(NATIVE, rng_factory=Random)
    with pytest.raises(ValueError, match=r"^schedules: 0 is less than 1$"):
        check_transport(STRIPER, rng_factory=Random, schedules=0)
    with pytest.raises(ValueError, match=r"^replay_every: 0 is less than 1$"):
        check_transport(STRIPER, rng_factory=Random, replay_every=0)
    with pytest.raises(ValueError, match=r"^number: -1 is negative$"):
        check_transport(STRIPER, rng_factory=Random, only=-1)
