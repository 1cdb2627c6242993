from dataclasses import replace

import pytest

from bicoastal.wan.collectives import LocalStage

# A hundred-trillion-parameter model's gradients of one layer on one GPU, and an NVLink of 1.8 TB/s (arXiv 2407.12819).
STAGE = LocalStage(name="rack", collective="all-reduce", ranks=4, volume_bytes=19.88e9, rate_Bps=1.8e12)


def test_a_published_stage_takes_its_published_time() -> None:
    assert STAGE.time_s == pytest.approx(16.57e-3, abs=0.005e-3)
    assert replace(STAGE, collective="all-gather").time_s == pytest.approx(8.28e-3, abs=0.005e-3)


def test_a_ring_pays_its_latency_at_every_step() -> None:
    # Thakur, Rabenseifner, Gropp 2005: (p - 1) alpha + (p - 1)/p n beta; 8 ranks, 1 ms, 8 MB at 1 GB/s
    ring = LocalStage(name="x", collective="reduce-scatter", ranks=8, volume_bytes=8e6, rate_Bps=1e9, latency_s=1e-3)
    assert ring.time_s == pytest.approx(7e-3 + 7e-3)
    assert replace(ring, collective="all-reduce").time_s == pytest.approx(28e-3)


def test_one_rank_alone_takes_no_time() -> None:
    assert replace(STAGE, ranks=1, latency_s=1.0).time_s == 0


def test_switches_that_add_up_halve_an_all_reduce_of_many_and_nothing_else() -> None:
    # Graham et al., COMHPC 2016: every rank sends its data once and receives the result once
    many = replace(STAGE, ranks=1000, in_network=True)
    assert many.time_s == pytest.approx(19.88e9 / 1.8e12)
    assert replace(many, collective="reduce-scatter").time_s == pytest.approx(0.999 * 19.88e9 / 1.8e12)
    assert replace(many, volume_bytes=1.0, latency_s=1.0).time_s == pytest.approx(2.0)  # up, and down
    assert replace(many, ranks=1).time_s == 0


def test_an_all_to_all_keeps_what_is_for_itself() -> None:
    assert replace(STAGE, collective="all-to-all").sent_bytes == pytest.approx(0.75 * 19.88e9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name: ''"),
        (
            {"collective": "broadcast"},
            "collective: 'broadcast' is not one of reduce-scatter, all-gather, all-reduce, all-to-all",
        ),
        ({"ranks": 0}, "ranks: 0"),
        ({"volume_bytes": 0}, "volume_bytes: 0"),
        ({"rate_Bps": float("nan")}, "rate_Bps: nan"),
        ({"latency_s": -1e-6}, "latency_s: -1e-06"),
    ],
)
def test_a_stage_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        replace(STAGE, **change)
