"""Orders to a relay and its answers, the troubles in its report, and the joined report of several."""

import socket
import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from bicoastal.emulation.processes.channel import Channel
from bicoastal.emulation.processes.wire_format import WireFormatError
from bicoastal.emulation.realtime.lateness import Lateness
from bicoastal.emulation.records import LinkRecord, QueueSample
from bicoastal.emulation.relay.frames import DscpBursts, TcpBursts
from bicoastal.emulation.relay.protocol import (
    ANSWERS,
    ORDERS,
    Answer,
    BeginIteration,
    Order,
    Ready,
    Refusal,
    RelayPath,
    RelayPlan,
    RelayReport,
    ReportRequest,
    Restart,
)
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.small_runs import link_record

PUNCTUAL = Lateness(count=1000, mean_s=40e-6, p50_s=40e-6, p99_s=90e-6, max_s=5e-3)


def link(name: str) -> LinkRecord:
    return link_record(link=name, direction="east>west")


def queue(name: str, at_s: float) -> QueueSample:
    return QueueSample(link=name, direction="east>west", at_s=at_s, backlog_bytes=0.0)


REPORT = RelayReport(
    elapsed_s=10.0,
    lateness=PUNCTUAL,
    reading=PUNCTUAL,
    cpu_share=0.4,
    busiest_cpu_share=0.6,
    ring_dropped=0,
    unsent=0,
    backlog_dropped=0,
    real_time=True,
    links=(link("one"),),
    queues=(queue("one", 1.0), queue("one", 3.0)),
)


def test_a_relay_that_is_on_time_has_no_troubles() -> None:
    assert REPORT.troubles() == ()


def test_each_trouble_is_named_with_its_figure() -> None:
    late = replace(
        REPORT,
        lateness=replace(PUNCTUAL, p99_s=1.234e-3),
        busiest_cpu_share=0.99,
        ring_dropped=3,
        unsent=2,
        backlog_dropped=1,
    )
    assert late.troubles() == (
        "the relay was 1.23 ms late at the 99th percentile",
        "the relay took 99% of a core in its busiest second",
        "3 packets were lost before the relay could take them",
        "2 packets were lost for want of room in the kernel",
        "1 packets were lost in the processors' backlogs",
    )


def test_limits_are_the_callers_to_choose() -> None:
    assert len(REPORT.troubles(p99_limit_s=80e-6, cpu_limit=0.5)) == 2


def test_several_relays_make_one_report() -> None:
    other = replace(
        REPORT,
        busiest_cpu_share=0.9,
        ring_dropped=5,
        backlog_dropped=7,
        real_time=False,
        links=(link("two"),),
        queues=(queue("two", 2.0),),
    )
    both = RelayReport.merged([replace(REPORT, ring_dropped=1, backlog_dropped=6), other])
    assert both.lateness.count == 2000
    assert (both.busiest_cpu_share, both.ring_dropped, both.real_time) == (0.9, 6, False)
    assert both.backlog_dropped == 7  # a count of the whole machine, which each has seen
    assert [each.link for each in both.links] == ["one", "two"]
    assert [each.at_s for each in both.queues] == [1.0, 2.0, 3.0]


PLAN = RelayPlan(
    topology=Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[LinkSpec(name="l", a="east", b="west", rate_bps=1e8, delay_s=0.03, loss=Bernoulli(probability=0.1))],
        paths=[Path(name="p", sites=("east", "west"), links=("l",))],
    ),
    paths=(RelayPath(name="p", left="bc0l", right="bc0r", mtu_bytes=1500),),
    seed=1,
    epoch_s=12.5,
    bursts={"p": TcpBursts(port=5001, burst_bytes=(1, 2)), "q": DscpBursts()},
)


@pytest.mark.parametrize(
    "order",
    [
        PLAN,
        replace(PLAN, processor=3, sample_interval_s=0.01, calm=True, real_time=False),
        Restart(seed=2, epoch_s=0.0, bursts={"p": DscpBursts()}),
        BeginIteration(iteration=3, begins_s=4.5),
        ReportRequest(stop=True),
    ],
    ids=lambda order: type(order).__name__,
)
def test_every_order_arrives_as_it_was_given(order: Order) -> None:
    assert ORDERS.decode(ORDERS.encode(order)) == order


@pytest.mark.parametrize("answer", [Ready(), Refusal(reason="no"), REPORT], ids=lambda answer: type(answer).__name__)
def test_every_answer_arrives_as_it_was_given(answer: Answer) -> None:
    assert ANSWERS.decode(ANSWERS.encode(answer)) == answer


def test_an_answer_is_no_order() -> None:
    with pytest.raises(
        WireFormatError, match=r"^'Ready' is not one of RelayPlan, Restart, BeginIteration, ReportRequest$"
    ):
        ORDERS.decode(ANSWERS.encode(Ready()))


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (ORDERS.encode(ReportRequest()), "an order came to a relay that has no plan yet"),
        (b'{"Exit":{}}', "'Exit' is not one of RelayPlan, Restart, BeginIteration, ReportRequest"),
        (b"\x80\x04.", "it is not JSON: "),
    ],
    ids=["out of turn", "unknown", "no JSON"],
)
def test_a_relay_refuses_what_is_no_order_and_ends(octets: bytes, reason: str) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [sys.executable, "-m", "bicoastal.emulation.relay.program", str(theirs.fileno())]
        relay = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
    with ours, relay:
        ours.sendall(struct.pack("!I", len(octets)) + octets)
        answer = Channel(ours, sends=ORDERS, receives=ANSWERS).receive(20)
        assert isinstance(answer, Refusal)
        assert answer.reason.startswith(f"the relay broke: {reason}")
        assert relay.wait(20) == 1
        assert relay.stderr.read() == b""
