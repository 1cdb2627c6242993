"""`struct tcp_info` as linux/tcp.h declares it, field by field, and as this kernel fills it in."""

import ctypes
import socket
import threading
import time

import pytest

from bicoastal.emulation.ends.tcp_info import combined_info, parse_tcp_info, read_tcp_info

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class TcpInfoStruct(ctypes.Structure):
    """include/uapi/linux/tcp.h of Linux 6.7, whose compiler pads it as C's does."""

    _fields_ = (
        ("state", U8), ("ca_state", U8), ("retransmits", U8), ("probes", U8), ("backoff", U8), ("options", U8),
        ("wscale", U8), ("flags", U8),
        ("rto", U32), ("ato", U32), ("snd_mss", U32), ("rcv_mss", U32),
        ("unacked", U32), ("sacked", U32), ("lost", U32), ("retrans", U32), ("fackets", U32),
        ("last_data_sent", U32), ("last_ack_sent", U32), ("last_data_recv", U32), ("last_ack_recv", U32),
        ("pmtu", U32), ("rcv_ssthresh", U32), ("rtt", U32), ("rttvar", U32), ("snd_ssthresh", U32),
        ("snd_cwnd", U32), ("advmss", U32), ("reordering", U32), ("rcv_rtt", U32), ("rcv_space", U32),
        ("total_retrans", U32),
        ("pacing_rate", U64), ("max_pacing_rate", U64), ("bytes_acked", U64), ("bytes_received", U64),
        ("segs_out", U32), ("segs_in", U32), ("notsent_bytes", U32), ("min_rtt", U32), ("data_segs_in", U32),
        ("data_segs_out", U32),
        ("delivery_rate", U64), ("busy_time", U64), ("rwnd_limited", U64), ("sndbuf_limited", U64),
        ("delivered", U32), ("delivered_ce", U32),
        ("bytes_sent", U64), ("bytes_retrans", U64), ("dsack_dups", U32), ("reord_seen", U32),
        ("rcv_ooopack", U32), ("snd_wnd", U32), ("rcv_wnd", U32), ("rehash", U32),
        ("total_rto", U16), ("total_rto_recoveries", U16), ("total_rto_time", U32),
    )  # fmt: skip


def filled() -> TcpInfoStruct:
    """Return one in which every field has a value of its own."""
    made = TcpInfoStruct()
    for place, (name, kind) in enumerate(TcpInfoStruct._fields_):
        setattr(made, name, 1000 + place if ctypes.sizeof(kind) > 1 else place)
    return made


def test_every_figure_is_taken_from_its_field() -> None:
    made = filled()
    made.unacked, made.sacked, made.lost, made.retrans = 100, 30, 20, 5
    info = parse_tcp_info(bytes(made))
    assert info.mss_bytes == made.snd_mss
    assert info.in_flight_segments == 55  # RFC 6675: what is neither acknowledged nor lost, and what is sent again
    assert info.rtt_s == pytest.approx(made.rtt * 1e-6)
    assert info.min_rtt_s == pytest.approx(made.min_rtt * 1e-6)
    assert info.cwnd_segments == made.snd_cwnd
    assert info.retransmissions == made.total_retrans
    assert info.pacing_rate_bps == 8 * made.pacing_rate
    assert info.bytes_acked == made.bytes_acked
    assert info.segments_sent == made.segs_out
    assert info.data_segments_sent == made.data_segs_out
    assert info.delivery_rate_bps == 8 * made.delivery_rate
    assert info.bytes_sent == made.bytes_sent
    assert info.spurious == made.dsack_dups
    assert info.timeouts == made.total_rto


def test_no_limit_is_infinite_and_in_flight_never_negative() -> None:
    made = filled()
    made.pacing_rate = (1 << 64) - 1
    made.unacked, made.sacked, made.lost, made.retrans = 10, 8, 8, 0
    info = parse_tcp_info(bytes(made))
    assert info.pacing_rate_bps == float("inf")
    assert info.in_flight_segments == 0


def test_a_kernel_that_does_not_count_timeouts_has_none_and_an_older_one_is_refused() -> None:
    octets = bytes(filled())
    assert parse_tcp_info(octets[: TcpInfoStruct.total_rto.offset]).timeouts == 0
    assert parse_tcp_info(octets + bytes(100)).timeouts == parse_tcp_info(octets).timeouts
    least = TcpInfoStruct.reord_seen.offset
    with pytest.raises(ValueError, match=rf"^struct tcp_info has {least} bytes here; Linux 4.19 and later"):
        parse_tcp_info(octets[:least])


def test_this_kernel_counts_what_was_sent() -> None:
    size = 300_000
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sender,
    ):
        receiver, _ = listener.accept()
        with receiver:
            sending = threading.Thread(target=sender.sendall, args=(bytes(size),))  # no buffer has to hold it all
            sending.start()
            left = size
            while left:
                left -= len(receiver.recv(left))
            sending.join()
            until = time.monotonic() + 5
            while (info := read_tcp_info(sender)).in_flight_segments and time.monotonic() < until:
                time.sleep(0.001)
            # a busy machine may let a tail loss probe repeat what was only late: the kernel counts it, and so do we
            assert info.bytes_sent >= size
            assert (info.bytes_sent == size) == (info.retransmissions == 0)
            assert info.bytes_acked in (size, size + 1)  # the SYN counts (RFC 4898, ThruOctetsAcked)
            assert 0 < info.data_segments_sent <= info.segments_sent
            assert 0 < info.min_rtt_s <= info.rtt_s < 1
            assert info.spurious <= info.retransmissions <= 2
            assert info.timeouts == 0
            assert info.cwnd_segments >= 10
            assert info.mss_bytes > 536


def test_subflows_are_added_up_and_one_alone_is_itself() -> None:
    one = parse_tcp_info(bytes(filled()))
    other = one._replace(rtt_s=3 * one.rtt_s, min_rtt_s=one.min_rtt_s / 2, bytes_acked=5, cwnd_segments=7)
    both = combined_info([one, other])
    assert combined_info([one]) == one
    assert both.bytes_acked == one.bytes_acked + 5
    assert both.cwnd_segments == one.cwnd_segments + 7
    assert both.rtt_s == pytest.approx(2 * one.rtt_s)
    assert both.min_rtt_s == one.min_rtt_s / 2
    for name in ("segments_sent", "data_segments_sent", "retransmissions", "bytes_sent", "spurious", "timeouts"):
        assert getattr(both, name) == 2 * getattr(one, name)
