"""Messages over a connection, and the parameters that one is made with."""

from random import Random

import pytest

from bicoastal.transports.base import Counters, EndpointContext, PathView
from bicoastal.transports.tcp.parameters import TcpParameters
from bicoastal.transports.tcp.registration import RENO
from helpers.tcp_pair import CLIENT, FRAME, MSS, SERVER, U32, Pair, payload


def test_messages_arrive_once_in_order_and_whole() -> None:
    pair = Pair("cubic", lose=lambda packet: packet.number % 11 == 6).connect()
    sizes = [0, 1, MSS - FRAME, MSS - FRAME + 1, 70_000, 0, 3]
    for number, size in enumerate(sizes):
        pair.send(payload(size, number), message_id=2**64 - 1 - number)
    pair.run()
    assert [data for _, data in pair.received()] == [payload(size, number) for number, size in enumerate(sizes)]
    ids = [event.message_id for _, role, event in pair.events if role == SERVER and hasattr(event, "message_id")]
    assert ids == [2**64 - 1 - number for number in range(len(sizes))]


@pytest.mark.parametrize("message_id", [-1, 2**64])
def test_an_identifier_that_is_no_u64_is_refused(message_id: int) -> None:
    pair = Pair().connect()
    with pytest.raises(ValueError, match="message_id"):
        pair.client.send_message(message_id, b"", pair.now)


def test_a_clean_transfer_repairs_probes_and_rejects_nothing() -> None:
    pair = Pair("cubic").connect()
    pair.send(payload(500_000))
    pair.run()
    counters = pair.client.counters()
    assert counters == Counters(packets=len(pair.sent(CLIENT, data=False)))
    assert pair.server.counters() == Counters(packets=len(pair.sent(SERVER, data=False)))


@pytest.mark.parametrize("lost", [frozenset(), frozenset({3, 40, 41, 95})])
@pytest.mark.parametrize("short_of_the_top", [0, 1, 1448, 60_000])
def test_sequence_numbers_wrap_in_mid_transfer(short_of_the_top: int, lost: frozenset[int]) -> None:
    pair = Pair(
        client_bits=(U32 - 1 - short_of_the_top, 0),
        server_bits=(U32 - 1 - short_of_the_top // 2, 0),
        lose=lambda packet: packet.data in lost,
        octets=True,
    )
    pair.send(payload(150_000, 1), CLIENT)
    pair.send(payload(140_000, 2), SERVER)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(150_000, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(140_000, 2)]
    assert len(pair.repairs(CLIENT)) == len(pair.repairs(SERVER)) == len(lost)
    assert max(packet.segment.sequence for packet in pair.packets) > U32 - 2 - short_of_the_top
    assert min(packet.segment.sequence for packet in pair.sent()) < 150_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_window_segments", 0),
        ("byte_count_limit", 0),
        ("ack_every", 0),
        ("quick_acks", -1),
        ("after_idle", "sometimes"),
        ("min_rto_s", 0.0),
        ("min_rto_s", 61.0),
        ("min_rto_s", float("nan")),
        ("delayed_ack_s", -0.001),
        ("delayed_ack_s", 0.5),
        ("max_ack_delay_s", -0.001),
        ("max_ack_delay_s", 1.5),
        ("reduces", "cwnd"),
        ("receive_window_bytes", 0),
        ("receive_window_bytes", 16383),
        ("max_receive_window_bytes", 65534),
        ("max_receive_window_bytes", (1 << 30) + 1),
    ],
)
def test_parameters_are_checked_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        TcpParameters(**{name: value})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"min_rto_s": 60.0},
        {"delayed_ack_s": 0.0},
        {"receive_window_bytes": 1, "max_receive_window_bytes": 65535},
        {"receive_window_bytes": 16384},
    ],
)
def test_whatever_parameters_are_accepted_a_connection_can_be_made_with(parameters: dict[str, object]) -> None:
    pair = Pair(**parameters).connect()
    pair.send(payload(3000))
    pair.run()
    assert [data for _, data in pair.received()] == [payload(3000)]


def test_a_path_without_room_for_data_is_refused() -> None:
    path = PathView(path_id=0, name="narrow", mtu_bytes=52)
    assert RENO.make_endpoint is not None
    with pytest.raises(ValueError, match=r"^mtu_bytes: 52"):
        RENO.make_endpoint(
            EndpointContext(role=CLIENT, flow="f", paths=[path], rng=Random(1), parameters=TcpParameters())
        )
