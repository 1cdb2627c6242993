"""Jobs and background traffic over time: gaps, trips, counts, and messages that are refused."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bicoastal.emulation.base import BackgroundSpec, RunSpec
from bicoastal.emulation.clock import VirtualClock
from bicoastal.emulation.driver import APPLICATION, Driver, Port
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.emulation.traffic.jobs import BackgroundRun, FlowPorts, JobRun
from bicoastal.transports.base import Counters, Datagram, Endpoint
from bicoastal.transports.events import Buffer, Event, MessageReceived
from bicoastal.transports.registry import Registry
from helpers.small_runs import background, iterations, job, plane, planes, run_spec, simulate


class Desk(Endpoint):
    """An endpoint whose messages the test carries; its counters are what the test says."""

    def __init__(self) -> None:
        self.offered: deque[tuple[int, memoryview, float]] = deque()
        self.counted = Counters()

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        self.offered.append((message_id, memoryview(data), now))

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        raise AssertionError("nothing is sent here")

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        return ()

    def get_timer(self) -> float | None:
        return None

    def handle_timer(self, now: float) -> None:
        raise AssertionError("no timer was set")

    def next_event(self) -> Event | None:
        return None

    def counters(self) -> Counters:
        return self.counted


def desks(spec: RunSpec, owner: str) -> tuple[Driver, dict[str, FlowPorts], dict[str, Desk]]:
    driver = Driver(VirtualClock())
    ports, senders = {}, {}
    for flow in plan_flows(spec, Registry.installed()):
        if flow.owner == owner:
            client, server = (Port(driver, flow.name, Desk(), lambda port, event, now: None) for _ in range(2))
            ports[flow.name] = FlowPorts(flow=flow, client=client, server=server)
            assert isinstance(client.machine, Desk)
            senders[flow.name] = client.machine
    return driver, ports, senders


class Stage:
    """A JobRun whose messages take one second each, and what it says meanwhile."""

    def __init__(self, spec: RunSpec) -> None:
        self.driver, self.ports, self.senders = desks(spec, "job")
        self.scheduled: list[tuple[int, float, float]] = []
        self.begun: list[float] = []
        self.ended: list[str] = []
        self.run = JobRun(
            spec.jobs[0],
            spec.topology,
            self.ports,
            self.driver,
            time_limit_s=spec.time_limit_s,
            on_schedule=lambda iteration, begins_s: self.scheduled.append(
                (iteration, begins_s, self.driver.clock.now())
            ),
            on_begin=self.begun.append,
            on_end=self.end,
        )
        self.driver.at(0.5, APPLICATION, lambda _, now: self.run.start(now), None)

    def end(self, reason: str) -> None:
        self.ended.append(reason)
        self.driver.stop()

    def carry(self) -> None:
        """Deliver all that is offered, each a second after it was."""
        self.driver.at(0.6, APPLICATION, self._collect, None)
        self.driver.run()

    def _collect(self, _: object, now: float) -> None:
        for name, desk in self.senders.items():
            while desk.offered:
                message_id, data, offered_s = desk.offered.popleft()
                self.driver.at(offered_s + 1.0, APPLICATION, self._deliver, (name, message_id, data))
        self.driver.at(now + 0.1, APPLICATION, self._collect, None)

    def _deliver(self, what: tuple[str, int, memoryview], now: float) -> None:
        name, message_id, data = what
        desk = self.senders[name]
        desk.counted = replace(desk.counted, packets=desk.counted.packets + 1)
        self.ports[name].client.wire_bytes += 100
        self.run.received(name, MessageReceived(message_id=message_id, data=data), now)


def test_iterations_follow_one_another_after_the_gap_and_are_announced_as_soon_as_they_are_known() -> None:
    stage = Stage(run_spec(planes(plane()), job("reno", iterations=3, gap_s=2.0, start_s=0.25)))
    stage.carry()
    assert stage.ended == [""]
    # connections stand at 0.5 s; each iteration takes 1 s and is followed by 2 s of computation
    assert stage.begun == pytest.approx([0.75, 3.75, 6.75])
    assert stage.scheduled == [
        (0, pytest.approx(0.75), pytest.approx(0.5)),
        (1, pytest.approx(3.75), pytest.approx(1.75)),
        (2, pytest.approx(6.75), pytest.approx(4.75)),
    ]
    assert [row.completion_s for row in stage.run.iterations] == pytest.approx([1.0] * 3)
    assert all(row.verified for row in stage.run.iterations)


def test_a_second_trip_begins_when_the_first_has_arrived_and_its_row_has_the_counters() -> None:
    stage = Stage(run_spec(planes(plane()), job("reno", pattern="reduce-scatter", iterations=1, start_s=0.0)))
    stage.carry()
    assert [(row.trip, row.start_s, row.completion_s) for row in stage.run.flows] == [
        (0, pytest.approx(0.5), pytest.approx(1.0)),
        (1, pytest.approx(1.5), pytest.approx(1.0)),
    ] * 2
    assert [(row.packets, row.wire_bytes) for row in stage.run.flows] == [(0, 0), (2, 200)] * 2
    (iteration,) = stage.run.iterations
    assert (iteration.completion_s, iteration.wire_bytes) == (pytest.approx(2.0), 400)


def test_many_flows_each_have_their_own_rows() -> None:
    topology = planes(*(plane(f"plane{index}") for index in range(5)))
    stage = Stage(run_spec(topology, job("reno", paths=tuple(topology.paths), pattern="reduce-scatter")))
    stage.carry()
    rows = [(row.flow, row.iteration, row.trip) for row in stage.run.flows]
    assert len(rows) == len(set(rows)) == 5 * 2 * 2 * 2
    for iteration in (0, 1):
        own = [row for row in stage.run.flows if row.iteration == iteration]
        assert sum(row.packets for row in own) == 20
        assert sum(row.payload_bytes for row in own) == 2 * 1000


def test_a_message_that_nobody_has_sent_is_refused() -> None:
    stage = Stage(run_spec(planes(plane()), job("reno", pattern="reduce-scatter", start_s=0.0)))
    name = next(iter(stage.ports))
    stage.driver.at(0.7, APPLICATION, lambda _, now: stage.driver.stop(), None)
    stage.driver.run()
    for message_id in (1, 256):  # the second trip, whose first has not arrived; the next iteration
        with pytest.raises(ValueError, match=rf"delivered message {message_id}, which was not sent$"):
            stage.run.received(name, MessageReceived(message_id=message_id, data=bytes(500)), 0.7)


def run_background(spec: BackgroundSpec) -> tuple[Driver, BackgroundRun, dict[str, Desk]]:
    topology = planes(plane(), plane("plane1", rate_bps=3e8))
    driver, ports, senders = desks(run_spec(topology, background=(spec,)), spec.name)
    run = BackgroundRun(spec, ports, driver)
    driver.at(0.0, APPLICATION, lambda _, now: run.start(now), None)
    return driver, run, senders


def test_other_traffic_sends_its_messages_one_after_another_and_then_no_more() -> None:
    driver, run, senders = run_background(background("reno", message_bytes=999, messages=3, gap_s=0.5, start_s=0.125))
    ((name, desk),) = senders.items()
    sent: list[tuple[float, int]] = []
    for _ in range(5):
        driver.run()
        if desk.offered:
            message_id, data, at_s = desk.offered.popleft()
            sent.append((at_s, len(data)))
            run.received(name, MessageReceived(message_id=message_id, data=bytes(data)), at_s + 1)
    assert sent == [(0.125, 999), (1.625, 999), (3.125, 999)]


def test_other_traffic_is_striped_by_rate_and_notices_any_change_or_swap() -> None:
    size = 400_000
    driver, run, senders = run_background(background("reno", message_bytes=size, paths=("plane0", "plane1")))
    driver.run()
    (name, first), (other, second) = ((name, desk.offered.popleft()) for name, desk in senders.items())
    assert (len(first[1]), len(second[1])) == (100_000, 300_000)  # 100 and 300 Mbit/s
    data = bytes(second[1])
    for block_bytes in (256, 1024, 1448, 8948, 8960, 65_536):
        blocks = [data[start : start + block_bytes] for start in range(0, len(data) - block_bytes, block_bytes)]
        assert len(set(blocks)) == len(blocks)
    for spoilt in (
        data[:-1] + bytes([data[-1] ^ 1]),
        data[:-1],
        data + b"x",
        data[1448:2896] + data[:1448] + data[2896:],
    ):
        driver, run, _ = run_background(background("reno", message_bytes=size, paths=("plane0", "plane1")))
        driver.run()
        with pytest.raises(ValueError, match=rf"^{other} did not deliver what was sent$"):
            run.received(other, MessageReceived(message_id=1, data=spoilt), 1.0)
    with pytest.raises(ValueError, match=rf"^{name} did not deliver what was sent$"):
        run.received(name, MessageReceived(message_id=2, data=bytes(first[1])), 1.0)


def test_messages_of_other_traffic_differ() -> None:
    driver, run, senders = run_background(background("reno", message_bytes=5000, messages=2))
    ((name, desk),) = senders.items()
    driver.run()
    message_id, data, _ = desk.offered.popleft()
    run.received(name, MessageReceived(message_id=message_id, data=data), 0.0)
    driver.run()
    assert bytes(desk.offered[0][1]) != bytes(data)


def starts(record: RunRecord, name: str) -> list[float]:
    return [row.start_s for row in iterations(record, name)]


def test_two_jobs_keep_their_own_time() -> None:
    topology = planes(plane(), plane("plane1"))
    record = simulate(
        run_spec(
            topology,
            job(gap_s=0.5, start_s=0.0),
            job(name="other", paths=("plane1",), iterations=3, gap_s=0.1, start_s=0.3),
        )
    )
    assert record.status == "ok"
    took_s = record.iterations[0].completion_s
    assert took_s is not None
    connected_s = max(summary.handshake_s or 0.0 for summary in record.summaries)
    assert starts(record, "job") == pytest.approx([connected_s, connected_s + took_s + 0.5])
    assert starts(record, "other") == pytest.approx([connected_s + 0.3 + n * (took_s + 0.1) for n in range(3)])
