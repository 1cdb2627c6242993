"""Each fault of a scenario is one sentence that names the file, the key and what was expected."""

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from bicoastal.experiments.scenario.scenario import ScenarioError, read_scenario
from helpers.fake_backends import TRANSPORTS
from helpers.scenario_text import GOOD, sentence_of

# Each fault is made by replacing one text of GOOD by another, and has exactly one sentence.
MALFORMED = {
    "loss above 1": ("loss = 1e-4", "loss = 1.5", "links[0].loss: 1.5 is not a probability"),
    "negative loss": ("loss = 1e-4", "loss = -0.1", "links[0].loss: -0.1 is not a probability"),
    "loss that is no number": ("loss = 1e-4", "loss = nan", "links[0].loss: nan is not a probability"),
    "infinite loss": ("loss = 1e-4", "loss = inf", "links[0].loss: inf is not a probability"),
    "true as a loss": ("loss = 1e-4", "loss = true", "links[0].loss: true is not a probability"),
    "a list as a loss": ("loss = 1e-4", "loss = [1]", "links[0].loss: a list is not a probability"),
    "loss in words": ("loss = 1e-4", 'loss = "some"', "links[0].loss: 'some' is not a probability"),
    "unknown loss model": (
        "loss = 1e-4",
        'loss = { model = "gilbert" }',
        "links[0].loss.model: 'gilbert' is not one of none, bernoulli, periodic, gilbert-elliott, tail-of-burst, "
        "listed, trace, combined; did you mean 'gilbert-elliott'?",
    ),
    "loss model without a name": (
        "loss = 1e-4",
        "loss = { packets = 1 }",
        "links[0].loss.model: is missing; expected one of none, bernoulli, periodic, gilbert-elliott, tail-of-burst, "
        "listed, trace, combined",
    ),
    "loss model with a key too many": (
        "loss = 1e-4",
        'loss = { model = "tail-of-burst", packet = 1 }',
        "links[0].loss.packet: is not a known key; did you mean 'packets'?",
    ),
    "bursts shorter than a packet": (
        "loss = 1e-4",
        'loss = { model = "gilbert-elliott", mean_loss = 0.1, mean_burst = 0.5 }',
        "links[0].loss.mean_burst: 0.5 is not a number of packets of at least 1",
    ),
    "loss that no bursts reach": (
        "loss = 1e-4",
        'loss = { model = "gilbert-elliott", mean_loss = 0.9, mean_burst = 2 }',
        "links[0].loss.mean_loss: 0.9 cannot be reached by bursts of 2.0 packets",
    ),
    "fault in a part of a loss": (
        "loss = 1e-4",
        'loss = { model = "combined", parts = [{ model = "periodic", every = 0 }] }',
        "links[0].loss.parts[0].every: 0 is not between 1 and 2147483648",
    ),
    "trace with a letter": (
        "loss = 1e-4",
        'loss = { model = "trace", outcomes = "01x" }',
        "links[0].loss.outcomes: line 1 has 'x', which is neither 0 nor 1",
    ),
    "files named by a scenario without a place": (
        "loss = 1e-4",
        'loss = { model = "trace", file = "loss.txt" }',
        "links[0].loss.file: a bundled scenario cannot name files",
    ),
    "listed packet below zero": (
        "loss = 1e-4",
        'loss = { model = "listed", packets = [-1] }',
        "links[0].loss.packets: a list is not a list of packet numbers, counted from 0",
    ),
    "rate without a unit": (
        'rate = "5 Gbit/s"',
        "rate = 5",
        'links[0].rate: 5 is not a rate such as "5 Gbit/s"',
    ),
    "rate in text without a unit": (
        'rate = "5 Gbit/s"',
        'rate = "5"',
        "links[0].rate: '5' has no unit; write it like '5 Gbit/s'",
    ),
    "ambiguous rate": (
        'rate = "5 Gbit/s"',
        'rate = "5 G"',
        "links[0].rate: '5 G' is not a rate: write Gbit/s or Gbps for bits, GB/s for bytes, with the letters so",
    ),
    "zero rate": ('rate = "5 Gbit/s"', 'rate = "0 bps"', "links[0].rate: '0 bps' is not more than zero"),
    "negative rate": ('rate = "5 Gbit/s"', 'rate = "-5 Gbit/s"', "links[0].rate: '-5 Gbit/s' is negative"),
    "rate beyond floats": (
        'rate = "5 Gbit/s"',
        'rate = "1e400 Gbit/s"',
        "links[0].rate: '1e400 Gbit/s' is too large a number",
    ),
    "rate beyond reason": ('rate = "5 Gbit/s"', 'rate = "1e30 Gbit/s"', "links[0].rate: '1e30 Gbit/s' is too large"),
    "no rate": (
        'rate = "5 Gbit/s"',
        "",
        'links[0].rate: is missing; expected a rate such as "5 Gbit/s"',
    ),
    "both delay and rtt": (
        'rtt = "60 ms"',
        'rtt = "60 ms"\ndelay = "30 ms"',
        "links[0].rtt: cannot stand beside delay",
    ),
    "neither delay nor rtt": (
        'rtt = "60 ms"',
        "",
        'links[0].delay: is missing; expected a time such as "30 ms", or rtt = "60 ms"',
    ),
    "time in bytes": (
        'rtt = "60 ms"',
        'rtt = "60 MB"',
        "links[0].rtt: '60 MB' is not a time: its unit must be one of ns, us, ms, s, min, h",
    ),
    "a date as a time": ('rtt = "60 ms"', "rtt = 2026-01-01", 'links[0].rtt: a date is not a time such as "60 ms"'),
    "fractional MTU": ("mtu = 9000", "mtu = 9000.5", "links[0].mtu: 9000.5 is not an integer"),
    "true as an MTU": ("mtu = 9000", "mtu = true", "links[0].mtu: true is not an integer"),
    "MTU below IP's": ("mtu = 9000", "mtu = 100", "links[0].mtu: 100 is not between 576 and 65535"),
    "MTU above IP's": ("mtu = 9000", "mtu = 70000", "links[0].mtu: 70000 is not between 576 and 65535"),
    "huge MTU": (
        "mtu = 9000",
        f"mtu = 1{'0' * 4000}",
        "links[0].mtu: an integer of 13288 bits is not between 576 and 65535",
    ),
    "empty queue": (
        'queue = "0.5 BDP"',
        'queue = "0 BDP"',
        "links[1].queue: '0 BDP' of 2000000 bytes is not a queue of at least one byte",
    ),
    "queue in packets": (
        'queue = "0.5 BDP"',
        "queue = 100",
        'links[1].queue: 100 is not a size such as "2 MB" or "0.05 BDP"',
    ),
    "queue in bits": (
        'queue = "0.5 BDP"',
        'queue = "2 Mbit"',
        "links[1].queue: '2 Mbit' is not a size in bytes: its unit must be like B, kB, MB, GB or KiB, MiB, GiB; "
        'expected a size such as "2 MB" or "0.05 BDP"',
    ),
    "queue in a unit that is none": (
        'queue = "0.5 BDP"',
        'queue = "5 BPD"',
        "links[1].queue: '5 BPD' is not a size in bytes: its unit must be like B, kB, MB, GB or KiB, MiB, GiB; "
        'expected a size such as "2 MB" or "0.05 BDP"',
    ),
    "queue beyond numbers": (
        'queue = "0.5 BDP"',
        'queue = "1e999 MB"',
        """links[1].queue: '1e999 MB' is too large a number; expected a size such as "2 MB" or "0.05 BDP\"""",
    ),
    "reordering without a time": (
        "mtu = 9000",
        "reorder = 0.1",
        "links[0].reorder_delay: reordering needs a time for which a packet is held back",
    ),
    "unknown key of a link": ("mtu = 9000", "mut = 9000", "links[0].mut: is not a known key; did you mean 'mtu'?"),
    "count of zero": ("count = 2", "count = 0", "links[0].count: 0 is not between 1 and 1024"),
    "count beyond reason": ("count = 2", "count = 1000000000", "links[0].count: 1000000000 is not between 1 and 1024"),
    "two links of one name": ('name = "slow"', 'name = "plane1"', "links[1].name: another link is called 'plane1' too"),
    "name with a slash": (
        'name = "slow"',
        'name = "a/b"',
        "links[1].name: 'a/b' is not a name of 1 to 64 letters, digits, '.', '_' or '-'",
    ),
    "link to nowhere": (
        'name = "slow"',
        'name = "slow"\nbetween = ["west", "mars"]',
        "links[1].between: expected two of the sites west, east",
    ),
    "event that is two things": (
        'outage = "500 ms"',
        'outage = "500 ms"\nrate = "1 Gbit/s"',
        "links[1].events[0].rate: cannot stand beside outage",
    ),
    "event without a time": (
        'at = "10 ms"',
        "",
        'links[1].events[0].at: is missing; expected a time such as "60 ms"',
    ),
    "outage of no length": (
        'outage = "500 ms"',
        'outage = "0 ms"',
        "links[1].events[0].outage: '0 ms' is not more than zero",
    ),
    "outages that overlap": (
        'outage = "500 ms"',
        'outage = "500 ms"\n[[links.events]]\niteration = 1\nat = "20 ms"\noutage = "1 s"',
        "links[1].events: the outages at 0.01 s and 0.02 s overlap",
    ),
    "no links": (
        GOOD[GOOD.index("[[links]]") : GOOD.index("[allreduce]")],
        "",
        "links: is missing; expected at least one [[links]]",
    ),
    "links that are no list": (
        GOOD[GOOD.index("[[links]]") : GOOD.index("[allreduce]")],
        "[links]\n",
        "links: a table is not a list of tables [[links]]",
    ),
    "path over an unknown link": (
        "[allreduce]",
        '[[paths]]\nname = "p"\nlinks = ["plain0"]\n[allreduce]',
        "paths[0].links[0]: there is no link 'plain0'; did you mean 'plane0' or 'plane1'?",
    ),
    "no iterations": ("iterations = 3", "iterations = 0", "scenario.iterations: 0 is not between 1 and 1000000"),
    "true iterations": ("iterations = 3", "iterations = true", "scenario.iterations: true is not an integer"),
    "gap that is a number": ('gap = "2 s"', "gap = 2", 'scenario.gap: 2 is not a time such as "60 ms"'),
    "negative gap": ('gap = "2 s"', 'gap = "-2 s"', "scenario.gap: '-2 s' is negative"),
    "endless gap": ('gap = "2 s"', 'gap = "1e308 h"', "scenario.gap: '1e308 h' is too large"),
    "negative seed": ("seed = 7", "seed = -7", f"scenario.seed: -7 is not between 0 and {2**62}"),
    "no time at all": ('time_limit = "30 s"', 'time_limit = "0 s"', "scenario.time_limit: '0 s' is not more than zero"),
    "no name": ('name = "coast"', "", "scenario.name: is missing; expected text"),
    "a number as a name": ('name = "coast"', "name = 3", "scenario.name: 3 is not text"),
    "one site": ("seed = 7", 'sites = ["west"]', "scenario.sites: expected at least two"),
    "a site with an arrow": (
        "seed = 7",
        'sites = ["w>x", "e"]',
        "scenario.sites: 'w>x' holds a '>', which a site's name cannot",
    ),
    "a site twice": ("seed = 7", 'sites = ["w", "w"]', "scenario.sites[1]: 'w' stands there twice"),
    "unknown section": (
        "[allreduce]",
        "[allreduces]",
        "allreduce: is missing; expected a table [allreduce], or [[jobs]]",
    ),
    "unknown table": ("[transports]", "[extra]\n[transports]", "extra: is not a known key"),
    "no shard": (
        'shard = "57.13 MB"',
        "",
        'allreduce.shard: is missing; expected a size such as "57.13 MB", or a deployment',
    ),
    "shard without a unit": (
        'shard = "57.13 MB"',
        "shard = 57130000",
        'allreduce.shard: 57130000 is not a size such as "57.13 MB"',
    ),
    "shard and deployment": (
        'shard = "57.13 MB"',
        'shard = "57.13 MB"\ndeployment = "hundred-trillion"',
        "allreduce.deployment: cannot stand beside shard",
    ),
    "fabric beside a deployment": (
        'shard = "57.13 MB"',
        'deployment = "hundred-trillion"\nfabric = "1 GB/s"',
        "allreduce.fabric: cannot stand beside deployment, which has the rates of its own stages",
    ),
    "unknown deployment": (
        'shard = "57.13 MB"',
        'deployment = "hundred"',
        "allreduce.deployment: there is no deployment 'hundred'; did you mean 'hundred-trillion' or "
        "'hundred-trillion-moe'? there are gpt3-sakuraone, gpt3-two-sites, hundred-trillion, hundred-trillion-moe, "
        "llama3-405b",
    ),
    "two trips of a deployment whose weights are smaller than its gradients": (
        'shard = "57.13 MB"',
        'deployment = "gpt3-two-sites"\npattern = "reduce-scatter"',
        "allreduce.pattern: the first trip of gpt3-two-sites carries 4 bytes for a parameter and the second 2; both "
        "carry the same here, so that it takes a shard in the deployment's place",
    ),
    "deployment at one site": (
        'shard = "57.13 MB"',
        'deployment = "llama3-405b"',
        "allreduce.deployment: llama3-405b is at one site, so that nothing crosses the WAN",
    ),
    "arrays that fill the memory": (
        'shard = "57.13 MB"',
        'shard = "2 TB"',
        "allreduce.array: expected a size of at most 1 GiB, since arrays of a whole shard would not fit in memory",
    ),
    "array larger than the shard": (
        'shard = "57.13 MB"',
        'shard = "1 MB"\narray = "2 MB"',
        "allreduce.array: 2000000 is more than the shard's 1000000",
    ),
    "sum that overflows": (
        'shard = "57.13 MB"',
        'shard = "1 MB"\ndtype = "int8"\nranks_per_site = 4096',
        "allreduce.ranks_per_site: the sum over 8192 ranks may overflow int8",
    ),
    "floating point": (
        'shard = "57.13 MB"',
        'shard = "1 MB"\ndtype = "float32"',
        "allreduce.dtype: 'float32' is not one of int8, int16, int32, int64",
    ),
    "unknown pattern": (
        'shard = "57.13 MB"',
        'shard = "1 MB"\npattern = "exchanges"',
        "allreduce.pattern: 'exchanges' is not one of exchange, reduce-scatter; did you mean 'exchange'?",
    ),
    "path that is not there": (
        'shard = "57.13 MB"',
        'shard = "1 MB"\npaths = ["plane7"]',
        "allreduce.paths[0]: there is no path 'plane7'; did you mean 'plane1' or 'plane0'?",
    ),
    "allreduce and jobs": (
        "[allreduce]",
        '[[jobs]]\nshard = "1 MB"\n[allreduce]',
        "jobs: cannot stand beside allreduce",
    ),
    "nothing to compare": (
        '[allreduce]\nshard = "57.13 MB"',
        '[[jobs]]\nshard = "1 MB"\ntransport = "reno"',
        "jobs: each has a transport of its own, so there is none to compare; leave one without",
    ),
    "two jobs of one name": (
        "[allreduce]",
        '[[jobs]]\nname = "j"\nshard = "1 MB"\n[[jobs]]\nname = "j"',
        "jobs: two jobs or background flows are called 'j'",
    ),
    "unknown transport of a job": (
        "[allreduce]",
        '[[jobs]]\nshard = "1 MB"\n[[jobs]]\ntransport = "renno"',
        "jobs[1].transport: there is no transport 'renno'; did you mean 'reno'? there are adaptive, broken, crashing, "
        "cubic, dying, ending, leaving, lost, mute, odd, reno, stopping, unfit, waiting",
    ),
    "background from a place to itself": (
        "[transports]",
        '[[background]]\nfrom = "east"\ntransport = "reno"\nmessage = "1 MB"\n[transports]',
        "background[0].to: 'east' is where the flow comes from",
    ),
    "background without a transport": (
        "[transports]",
        '[[background]]\nmessage = "1 MB"\n[transports]',
        "background[0].transport: is missing; expected the name of a transport",
    ),
    "unknown transport": (
        '"adaptive"]',
        '"adaptiv"]',
        "transports.default[1]: there is no transport 'adaptiv'; did you mean 'adaptive'? there are adaptive, broken, "
        "crashing, cubic, dying, ending, leaving, lost, mute, odd, reno, stopping, unfit, waiting",
    ),
    "transport twice": ('"adaptive"]', '"reno"]', "transports.default[1]: 'reno' stands there twice"),
    "number as a transport": ('"adaptive"]', "7]", "transports.default[1]: 7 is not a name"),
    "no transports": ('["reno", "adaptive"]', "[]", "transports.default: a list is not a list of names"),
    "unknown parameter": (
        "gain = 1.5",
        "gian = 1.5",
        "transports.adaptive.gian: adaptive has no such parameter; it has gain, policy, window",
    ),
    "parameter of another type": (
        "gain = 1.5",
        'gain = "much"',
        "transports.adaptive.gain: 'much' is not a finite number",
    ),
    "parameter out of range": ("gain = 1.5", "gain = -1", "transports.adaptive.gain: -1.0 is not positive"),
    "table as a parameter": (
        "gain = 1.5",
        "gain = { a = 1 }",
        "transports.adaptive.gain: a table is not a number, a truth value or text",
    ),
}


@pytest.mark.parametrize(("old", "new", "sentence"), MALFORMED.values(), ids=MALFORMED)
def test_a_fault_is_one_sentence_with_file_key_and_expectation(old, new, sentence):
    assert old in GOOD
    assert sentence_of(GOOD.replace(old, new, 1)) == f"coast.toml: {sentence}"


def texts(node: object, steps: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Give the way to every text in a document."""
    if isinstance(node, str):
        yield steps
    for key, below in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from texts(below, (*steps, key))


DESCRIPTION = ("scenario", "description")  # which any text may be


@pytest.mark.parametrize("steps", sorted({*texts(tomllib.loads(GOOD))} - {DESCRIPTION}, key=str), ids=str)
@pytest.mark.parametrize("long", ["x" * 5000, "9" * 5000, "7" * 5000 + " ms"])
def test_no_sentence_repeats_a_long_value(steps: tuple[Any, ...], long: str):
    document: Any = tomllib.loads(GOOD)
    node = document
    for step in steps[:-1]:
        node = node[step]
    node[steps[-1]] = long
    with pytest.raises(ScenarioError) as caught:
        read_scenario(document, "coast.toml", TRANSPORTS)
    assert long[:40] in str(caught.value)
    assert len(str(caught.value)) < 300
