"""How the simulator handles machines: their notices, their errors, and services."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from bicoastal.emulation.base import RunSpec, UnsupportedError
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.streams import stream
from bicoastal.transports.base import Datagram, Endpoint, EndpointContext, Machine, ServiceContext, ServicePlacement
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived, Notice
from bicoastal.transports.registry import TransportSpec
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.example_frames import Frame
from helpers.example_transports import STEERED, STRIPER, ArqEndpoint, Governor, SteeredEndpoint
from helpers.small_runs import DELAY_S, background, job, plane, planes, run_spec, simulate


def toy(make: Callable[[EndpointContext], Endpoint]) -> TransportSpec:
    return replace(STRIPER, name="toy", paths="one", make_endpoint=make)


def run(make: Callable[[EndpointContext], Endpoint]) -> tuple[str, str]:
    record = simulate(run_spec(planes(plane()), job("toy"), time_limit_s=20.0), toy(make))
    return record.status, record.reason


# -- what machines tell -----------------------------------------------------------------------------------------------


class Talkative(ArqEndpoint):
    """Says when it was offered a message, and when one has come."""

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        super().send_message(message_id, data, now)
        self.events.append(Notice(kind="offered", detail=f"{message_id}"))

    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, MessageReceived):
            self.events.append(Notice(kind="arrived", detail=f"{event.message_id}"))
        return event


def told(record: RunRecord, kind: str, detail: str) -> dict[str, float]:
    """Return who said this, and when."""
    notices = [notice for notice in record.notices if (notice.kind, notice.detail) == (kind, detail)]
    assert len({notice.source for notice in notices}) == len(notices)
    return {notice.source: notice.at_s for notice in notices}


def test_notices_of_both_ends_reach_the_records_with_their_times_in_order() -> None:
    record = simulate(run_spec(planes(plane()), job("toy")), toy(Talkative))
    assert record.status == "ok"
    for row in record.iterations:
        identifier = str(256 * row.iteration)
        offered = told(record, "offered", identifier)
        assert offered == {f"job/{way}/plane0:client": row.start_s for way in ("east>west", "west>east")}
        arrived = told(record, "arrived", identifier)
        assert set(arrived) == {f"job/{way}/plane0:server" for way in ("east>west", "west>east")}
        assert row.completion_s is not None
        assert max(arrived.values()) == pytest.approx(row.start_s + row.completion_s)
    assert all(before.at_s <= after.at_s for before, after in pairwise(record.notices))


def test_each_end_of_each_flow_draws_from_a_stream_of_its_own_keyed_by_seed_and_name() -> None:
    drawn: dict[tuple[str, str], int] = {}

    def make(context: EndpointContext) -> Endpoint:
        drawn[str(context.flow), context.role] = context.rng.getrandbits(64)
        return ArqEndpoint(context)

    simulate(run_spec(planes(plane()), job("toy")), toy(make))
    alone = dict(drawn)
    drawn.clear()
    simulate(
        run_spec(planes(plane(), plane("plane1")), job("toy", name="first", paths=("plane1",)), job("toy")), toy(make)
    )
    assert len(alone) == 4
    assert len(set(drawn.values())) == len(drawn) == 8
    assert {name: draw for name, draw in drawn.items() if name in alone} == alone
    name = "job/west>east/plane0"
    assert alone[name, "server"] == stream(0, f"flow/{name}/server").getrandbits(64)
    drawn.clear()
    simulate(run_spec(planes(plane()), job("toy"), seed=1), toy(make))
    assert set(drawn.values()).isdisjoint(alone.values())


@pytest.mark.parametrize("eager", [False, True])
def test_what_arrives_is_what_was_sent_without_its_encapsulation_and_as_octets_if_so_asked(eager: bool) -> None:
    sent: list[tuple[int, bytes]] = []
    arrived: list[tuple[int, bytes]] = []
    kinds: set[type] = set()

    class Observed(ArqEndpoint):
        def receive_datagram(self, datagram: Datagram, now: float) -> None:
            arrived.append((datagram.wire_bytes, bytes(datagram.payload)))
            kinds.add(type(datagram.payload))
            super().receive_datagram(datagram, now)

        def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
            out = super().datagrams_to_send(now)
            sent.extend((datagram.wire_bytes, bytes(datagram.payload)) for datagram in out)
            return out

    spec = run_spec(planes(plane(), overhead_bytes=50), job("toy", shard_bytes=5000), eager_encoding=eager)
    assert simulate(spec, toy(Observed)).status == "ok"
    assert sorted(arrived) == sorted(sent)
    assert kinds == ({bytes} if eager else {Frame})


# -- machines that misbehave ------------------------------------------------------------------------------------------


class Spinning(ArqEndpoint):
    def get_timer(self) -> float | None:
        return 0.5 if self.connected else super().get_timer()

    def handle_timer(self, now: float) -> None:
        if not self.connected:
            super().handle_timer(now)


class Creeping(ArqEndpoint):
    creeping_s = 0.5

    def get_timer(self) -> float | None:
        return self.creeping_s if self.connected else super().get_timer()

    def handle_timer(self, now: float) -> None:
        if self.connected:
            self.creeping_s = now + 1e-9
        else:
            super().handle_timer(now)


class NeverDone(ArqEndpoint):
    def next_event(self) -> Event | None:
        return super().next_event() or (Notice(kind="and another thing") if self.connected else None)


class GivesUp(ArqEndpoint):
    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        self.events.append(Failed(reason="it is too far"))


class TellsItsOwnSide(ArqEndpoint):
    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        super().send_message(message_id, data, now)
        self.events.append(MessageReceived(message_id=message_id, data=data))


class Renames(ArqEndpoint):
    def next_event(self) -> Event | None:
        event = super().next_event()
        return replace(event, message_id=event.message_id + 1) if isinstance(event, MessageReceived) else event


class Cuts(ArqEndpoint):
    def next_event(self) -> Event | None:
        event = super().next_event()
        return replace(event, data=bytes(event.data)[1:]) if isinstance(event, MessageReceived) else event


class Repeats(ArqEndpoint):
    def __init__(self, context: EndpointContext) -> None:
        super().__init__(context)
        self.repeated = False

    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, MessageReceived) and not self.repeated:
            self.repeated = True
            self.events.append(event)
        return event


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Spinning, "job/west>east/plane0:server set its timer 10000 times without letting time pass, at 0.500000000 s"),
        (
            Creeping,
            "job/west>east/plane0:server set its timer 10000 times without effect within 0.1 s, at 0.500010001 s",
        ),
        (NeverDone, "job/west>east/plane0:server had 100000 events without letting time pass, at 0.010007600 s"),
        (GivesUp, "job/west>east/plane0:client: it is too far"),
        (TellsItsOwnSide, "job/west>east/plane0:client delivered message 0 to its own sender"),
        (Renames, "job/west>east/plane0 delivered message 1, which was not sent"),
        (Cuts, "job/west>east/plane0 delivered 999 bytes as message 0 instead of 1000"),
        (Repeats, "job/west>east/plane0 delivered message 0 in iteration 0, which is not expected"),
    ],
)
def test_a_machine_that_misbehaves_fails_the_run_and_is_named(
    make: Callable[[EndpointContext], Endpoint], reason: str
) -> None:
    assert run(make) == ("failed", reason)


class ConnectsTwice(ArqEndpoint):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, MessageReceived):
            self.events.append(Connected())
        return event

    def on_ack(self, sequence: int, now: float) -> None:
        super().on_ack(sequence, now)
        self.events.append(Connected())


def test_a_machine_that_says_again_that_it_is_connected_does_not_start_the_job_again() -> None:
    record = simulate(run_spec(planes(plane()), job("toy")), toy(ConnectsTwice))
    assert record.status == "ok"
    assert [row.iteration for row in record.iterations] == [0, 1]
    assert all((summary.handshake_s or 0) < 3 * DELAY_S for summary in record.summaries)


# -- services ---------------------------------------------------------------------------------------------------------


class Reeve(Governor):
    """A governor that says what it does, and keeps what it is sent."""

    def __init__(self, context: ServiceContext, seen: list[Datagram], failure: str = "") -> None:
        super().__init__(context.topology)
        self.seen = seen
        self.failure = failure
        self.events: deque[Event] = deque()

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        super().receive_datagram(datagram, now)
        self.seen.append(datagram)
        self.events.append(
            Failed(reason=self.failure) if self.failure else Notice(kind="asked", detail=str(datagram.path_id))
        )

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None


def steered(site: str, seen: list[Datagram], failure: str = "") -> TransportSpec:
    def place(context: ServiceContext) -> Sequence[ServicePlacement]:
        machine: Machine = Reeve(context, seen, failure)
        return (ServicePlacement(name="reeve", site=site, machine=machine),)

    return replace(STEERED, name="toy-steered", make_endpoint=SteeredEndpoint, make_services=place)


def triangle() -> Topology:
    """The reeve's site is joined with each coast, nearer to the west; no path goes there."""
    return Topology(
        sites=[Site(name=name) for name in ("west", "east", "reeve's", "moon")],
        links=[
            plane(),
            LinkSpec(name="a", a="west", b="reeve's", rate_bps=1e9, delay_s=0.002),
            LinkSpec(name="b", a="reeve's", b="east", rate_bps=1e9, delay_s=0.030),
        ],
        paths=[Path(name="plane0", sites=("west", "east"), links=("plane0",))],
    )


def test_a_service_is_reached_by_the_shortest_way_over_any_links_whether_or_not_a_path_goes_there() -> None:
    seen: list[Datagram] = []
    record = simulate(run_spec(triangle(), job("toy-steered")), steered("reeve's", seen))
    assert record.status == "ok"
    asked = {notice.detail: notice.at_s for notice in record.notices if notice.source == "reeve"}
    # peers in the order of the flows: from the west 2 ms; from the east, over the west, 10 + 2 ms instead of 30
    assert asked == {"0": pytest.approx(0.002), "1": pytest.approx(0.012)}
    handshakes = {summary.source: summary.handshake_s for summary in record.summaries}
    assert handshakes["west"] == pytest.approx(2 * 0.002 + 2 * DELAY_S, rel=0.01)
    assert handshakes["east"] == pytest.approx(2 * 0.012 + 2 * DELAY_S, rel=0.01)


def test_the_control_path_carries_octets_where_everything_is_to_be_encoded() -> None:
    seen: list[Datagram] = []
    spec = run_spec(triangle(), job("toy-steered"))
    record = simulate(spec, steered("reeve's", seen))
    assert not any(isinstance(datagram.payload, bytes) for datagram in seen)
    seen.clear()
    assert simulate(replace(spec, eager_encoding=True), steered("reeve's", seen)) == record
    assert seen
    assert all(isinstance(datagram.payload, bytes) for datagram in seen)


def test_control_traffic_is_not_on_the_wire() -> None:
    record = simulate(run_spec(triangle(), job("toy-steered")), steered("reeve's", []))
    assert [row.packets for row in record.links if row.link in ("a", "b")] == [0] * 4


def test_a_service_that_fails_fails_the_run() -> None:
    record = simulate(run_spec(triangle(), job("toy-steered")), steered("reeve's", [], "it has lost the plan"))
    assert (record.status, record.reason) == ("failed", "reeve: it has lost the plan")


def refused(spec: RunSpec, site: str) -> Callable[[], object]:
    return partial(simulate, spec, steered(site, []))


def test_a_service_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^links: none lead from west to moon, where reeve stands$"):
        refused(run_spec(triangle(), job("toy-steered")), "moon")()


def test_flows_that_share_a_service_cannot_want_different_things_of_it() -> None:
    fast = job("toy-steered", name="fast", parameters=(("max_window_packets", 99),))
    with pytest.raises(
        UnsupportedError, match=r"^job and fast give toy-steered different parameters, but would share its reeve$"
    ):
        refused(run_spec(triangle(), job("toy-steered"), fast), "west")()


def test_two_uses_of_a_transport_cannot_differ_in_whether_they_need_a_service() -> None:
    fixed, granted = (job("b4", name=name, parameters=rate) for name, rate in (("a", (("rate_bps", 1e6),)), ("b", ())))
    for jobs in ((fixed, granted), (granted, fixed)):
        with pytest.raises(UnsupportedError, match=r"give b4 different parameters, but would share its b4-controller$"):
            simulate(run_spec(triangle(), *jobs))


def test_paces_that_need_no_service_may_differ() -> None:
    slow, fast = (job("b4", name=name, parameters=(("rate_bps", bps),)) for name, bps in (("a", 1e6), ("b", 2e6)))
    assert simulate(run_spec(triangle(), slow, fast)).status == "ok"


def test_two_transports_with_the_same_kind_of_service_cannot_be_in_one_run() -> None:
    spec = run_spec(triangle(), job("b4"), background=(background("rdma-sr", messages=1),))
    expected = r"^job runs b4 and others rdma-sr: each has a b4-controller of its own, which does not know what the"
    with pytest.raises(UnsupportedError, match=expected):
        simulate(spec)


def test_transports_with_services_of_different_kinds_may_be_in_one_run() -> None:
    record = simulate(run_spec(triangle(), job("b4"), job("toy-steered", name="toy")), steered("west", []))
    assert record.status == "ok"


def test_all_users_of_a_transport_share_its_services() -> None:
    seen: list[Datagram] = []
    others = background("toy-steered", messages=1)
    record = simulate(run_spec(triangle(), job("toy-steered"), background=(others,)), steered("west", seen))
    assert record.status == "ok"
    assert sorted({datagram.path_id for datagram in seen}) == [0, 1, 2]
