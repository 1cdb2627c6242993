"""Random streams depend only on a name and a seed, in any process."""

import subprocess
import sys

import pytest

from bicoastal.emulation.streams import stream

NAMES = (
    "link/plane0/forth/loss",
    "link/plane0/back/loss",
    "link/plane1/forth/loss",
    "flow/job/west>east/plane0/client",
)


def first(seed: int, name: str) -> int:
    return stream(seed, name).getrandbits(64)


def test_one_name_and_seed_give_one_stream_whatever_others_have_drawn() -> None:
    alone = [stream(1, NAMES[0]).random() for _ in range(3)]
    generator, other = stream(1, NAMES[0]), stream(1, NAMES[1])
    mixed = [(generator.random(), other.random())[0] for _ in range(3)]
    assert alone == [mixed[0]] * 3
    assert len(set(mixed)) == 3


def test_other_names_and_other_seeds_give_other_streams() -> None:
    draws = [first(seed, name) for seed in (0, 1, 2, 10**30, -1) for name in NAMES]
    assert len(set(draws)) == len(draws)


def test_seed_and_name_cannot_be_mistaken_for_another_pair() -> None:
    assert first(1, "1/x") != first(11, "/x") != first(1, "/x")


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_streams_do_not_depend_on_the_process(hash_seed: str) -> None:
    draw = f"print([stream(7, name).getrandbits(64) for name in {NAMES!r}])"
    code = f"from bicoastal.emulation.streams import stream; {draw}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == str([first(7, name) for name in NAMES])
