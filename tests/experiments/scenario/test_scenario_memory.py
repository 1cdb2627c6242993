"""Messages that this machine cannot hold are refused when the scenario is read."""

import pytest

from bicoastal.emulation.limits.memory import machine_memory_bytes
from bicoastal.wan.units import format_size
from helpers.scenario_text import GOOD, load, sentence_of

MACHINE = format_size(machine_memory_bytes())


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            'shard = "57.13 MB"',
            'shard = "100 TB"\narray = "1 MB"',
            "allreduce.shard: takes up to 533.3 TB of memory, and this machine has {MACHINE}; take a smaller shard",
        ),
        (
            "[transports]",
            '[[background]]\ntransport = "reno"\nmessage = "100 TB"\n[transports]',
            "background[0].message: takes up to 266.7 TB of memory, 266.7 TB with what stands before it, and this "
            "machine has {MACHINE}; take a smaller message",
        ),
    ],
)
def test_a_message_that_this_machine_cannot_hold_is_refused(old, new, sentence):
    # each direction: the message twice, and 1 kB of objects for each packet of 1,500 bytes
    found = sentence_of(GOOD.replace(old, new, 1))
    assert found == "coast.toml: " + sentence.replace("{MACHINE}", MACHINE)


def test_what_only_together_exceeds_the_memory_is_refused_at_the_last_of_it():
    each = f'[[jobs]]\nshard = "{machine_memory_bytes() // 15} B"\narray = "1 kB"\n'  # takes 5.33 times its shard
    two, three = (GOOD.replace('[allreduce]\nshard = "57.13 MB"', number * each) for number in (2, 3))
    assert len(load(two).jobs) == 2
    sentence = sentence_of(three)
    assert sentence.startswith("coast.toml: jobs[2].shard: takes up to ")
    assert sentence.endswith(f"with what stands before it, and this machine has {MACHINE}; take a smaller shard")
