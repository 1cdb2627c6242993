"""The text of docs/scenarios.md. `python -m bicoastal.experiments.scenario.key_document` prints it from the keys."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bicoastal.experiments.scenario import deployment_keys, scenario_keys, study_keys
from bicoastal.experiments.scenario.bundled import Kind, bundled_names
from bicoastal.experiments.scenario.keys import Section
from bicoastal.transports.registry import Registry

SCENARIO_EXAMPLE = """\
[scenario]
name = "everything"
description = ""                    # default
sites = ["west", "east"]            # default; the first and the last are the coasts
iterations = 20                     # default
gap = "1 s"                         # default: computation between two iterations
seed = 0                            # default: of the first run
time_limit = "300 s"                # default: for one iteration, then the run fails
sample_interval = "5 ms"            # default: no time series

[[links]]
name = "plane"
count = 4                           # default: one; makes plane0, plane1, …
between = ["west", "east"]          # default: the coasts
rate = "5 Gbit/s"
rtt = "60 ms"                       # or delay = "30 ms", one way
mtu = 9000                          # default: 1500; bytes of the largest IP packet
queue = "0.5 BDP"                   # or a size, "2 MB"; default: one BDP
framing = 38                        # default: Ethernet's bytes on the wire besides those of IP
loss = 1e-4                         # default: none; both directions, each on its own
loss_back = { model = "none" }      # default: as loss; of the direction from the second site to the first
jitter = "0 s"                      # default
reorder = 0.01                      # default: 0
reorder_delay = "1 ms"              # needed with reorder
duplicate = 0                       # default
corrupt = 0                         # default
# capacity_trace = "lte.up"         # default: none; a file beside the scenario

[[links.events]]
at = "10 ms"
iteration = 3                       # default: counted from the beginning of the run
outage = "500 ms"                   # or rate = "2 Gbit/s", from then on

[[paths]]                           # default: each link is a path, unless there is [tunnels]
name = "northern"
links = ["plane0"]                  # one after another
overhead = 50                       # default: 0; bytes of encapsulation

[tunnels]                           # default: none; finds paths for all jobs that list none
count = 4                           # default: so many between two sites
search = "bottlenecks"              # default: "cheapest"
rounds = 1                          # default

[[jobs]]                            # or one [allreduce] with the same keys
name = "training"
shard = "57.13 MB"                  # or deployment = "hundred-trillion", bundled or a file
pattern = "exchange"                # default; or "reduce-scatter"
ranks_per_site = 2                  # default
dtype = "int32"                     # default; int8, int16, int64
array = "1 MB"                      # default: as large as the shard; smaller ones are repeated, to save memory
fabric = "100 GB/s"                 # default: of a GPU inside its coast; a deployment has its own stages instead
sites = ["west", "east"]            # default
paths = ["northern"]                # default: all between the sites
iterations = 20                     # default: the scenario's; so is gap
start = "0 s"                       # default

[[jobs]]
name = "neighbour"
shard = "1 MB"
transport = "cubic"                 # default: the transport under comparison
parameters = { hystart = false }

[[background]]
transport = "reno"
message = "1 GB"
from = "east"                       # default: the first site
to = "west"                         # default: the last site
gap = "0 s"                         # default: between two messages
start = "0 s"                       # default
messages = 5                        # default: until the jobs are done

[transports]
default = ["reno", "cubic", "adaptive"]     # default

[transports.adaptive]
headroom = 0.02                     # any parameter of the transport's own
"""
STUDY_EXAMPLE = """\
[study]
name = "loss"
description = ""                    # default
scenario = "coast-to-coast"         # default; bundled, or a file beside this one
transports = ["reno", "cubic"]      # default: the scenario's
backend = "sim"                     # default
seeds = 1                           # default: runs of each transport at each point

[set]                               # default: none; what is changed everywhere, as with --set
"scenario.iterations" = 10

[[axes]]                            # one or more; every combination of their values is a point
key = "links.loss"
label = "loss per packet"           # default: the key; for people
values = [0, 1e-5, 1e-4]
"""
_HEAD = """\
# Scenarios, studies and deployments: every key

This file is generated from the code: `python -m bicoastal.experiments.scenario.key_document`. Do not edit it.

All files are TOML. A rate, a time or a size is text with its unit, such as `"5 Gbit/s"`, `"60 ms"` or `"57.13 MB"`. A
key that is unknown, missing or of another kind gets one sentence with the file and the key.

`--set KEY=VALUE` changes a key before the file is read. `links.loss` is that key of every link, `links[1].loss` of the
second one. The name of a transport is the section of its parameters: `--set cubic.hystart=false`.
"""
_SCENARIOS = """\
## Scenarios

The tables [scenario] and [[links]] are required, and so is one of [allreduce] and [[jobs]]. All tables in one example:
"""
_STUDIES = """\
## Studies

A study is a scenario with some of its keys varied:
"""
_DEPLOYMENTS = """\
## Deployments

A deployment is a model, the way in which it is trained in parallel, and the machines that train it.
"""
_TRANSPORTS = """\
### [transports.NAME]

The parameters of each installed transport. The class of these parameters says what they mean.
"""
_BUNDLED: tuple[Kind, ...] = ("scenarios", "studies", "deployments")
_KINDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def document() -> str:
    """Return docs/scenarios.md."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for kind in _BUNDLED:
        yield f"Bundled {kind}: {', '.join(f'`{name}`' for name in bundled_names(kind))}."
        yield ""
    yield _SCENARIOS
    yield f"```toml\n{SCENARIO_EXAMPLE}```\n"
    yield from _sections(scenario_keys.SECTIONS)
    yield from _transports(Registry.installed())
    yield _STUDIES
    yield f"```toml\n{STUDY_EXAMPLE}```\n"
    yield from _sections(study_keys.SECTIONS)
    yield _DEPLOYMENTS
    yield from _sections(deployment_keys.SECTIONS)


def _sections(sections: Iterable[type[Section]]) -> Iterator[str]:
    for section in sections:
        yield f"### {section.title}\n\n{section.meaning}\n"
        rows = [(f"`{key.name}`", key.kind, key.said_default, key.meaning) for key in section.all_keys()]
        yield from _table(("key", "kind", "default", "meaning"), rows)


def _transports(registry: Registry) -> Iterator[str]:
    yield _TRANSPORTS
    for name in registry.names():
        parameters = registry.resolve(name).parameters
        if parameters is not None:
            yield f"`{name}`:\n"
            yield from _table(("key", "kind", "default"), _parameters(parameters))


def _parameters(parameters: type[Any]) -> list[tuple[str, ...]]:
    hints = get_type_hints(parameters)
    return [
        (f"`{f.name}`", _kind(hints[f.name]), "required" if f.default is MISSING else f"`{f.default!r}`")
        for f in fields(parameters)
    ]


def _kind(hint: Any) -> str:
    if hint in _KINDS:
        return _KINDS[hint]
    options = get_args(hint)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, options))}"
    return " or ".join("none" if option is type(None) else _KINDS.get(option, str(option)) for option in options)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


if __name__ == "__main__":
    sys.stdout.write(document())
