"""The topology of a scenario's tables: sites, links with their loss and events, and paths over them."""

import re
from collections.abc import Sequence
from pathlib import Path as FilePath

from bicoastal.experiments.scenario.keys import Key
from bicoastal.experiments.scenario.scenario_keys import MOST_PACKETS, EventKeys, LinkKeys, LossKeys, PathKeys
from bicoastal.experiments.scenario.tables import (
    MAX_FILE_BYTES,
    MAX_QUANTITY,
    ScenarioError,
    Table,
    close_matches,
    shown,
)
from bicoastal.experiments.scenario.tunnel_search import find_paths
from bicoastal.wan.checks import FieldError
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace
from bicoastal.wan.schedule import CapacityTrace, LinkEvent, Outage, RateStep
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from bicoastal.wan.units import parse_size

_MAX_CAPACITY_BYTES = 32_000_000  # of a recording: a minute of 1 Gbit/s has 5,000,000 lines
_BDP = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*BDP")
_LINK_KEYS = {
    "rate_bps": "rate",
    "delay_s": "delay",
    "queue_bytes": "queue",
    "mtu_bytes": "mtu",
    "framing_bytes": "framing",
    "jitter_s": "jitter",
    "reorder": "reorder",
    "reorder_delay_s": "reorder_delay",
    "duplicate": "duplicate",
    "corrupt": "corrupt",
    "events": "events",
    "a": "between",
    "b": "between",
}


def read_topology(
    document: Table, sites: tuple[str, ...], links: Sequence[Table], *, directory: FilePath | None
) -> Topology:
    """Return the topology. `directory` is where files that the scenario names are looked for. Raises ScenarioError."""
    specs: dict[str, LinkSpec] = {}
    for table in links:
        link = read_link(table, sites, directory)
        if link.name in specs:
            table.fail("name", f"another link is called {shown(link.name)} too")
        specs[link.name] = link
    paths: dict[str, Path] = {}
    for table in document.tables("paths"):
        path = _read_path(table, specs)
        if path.name in paths:
            table.fail("name", f"another path is called {shown(path.name)} too")
        paths[path.name] = path
        PathKeys.finish(table)
    if document.has("tunnels"):
        paths |= find_paths(document, sites, specs, paths)
    elif not paths:  # every link is a path of its own
        paths = {name: Path(name=name, sites=(link.a, link.b), links=(name,)) for name, link in specs.items()}
    return document.adopt(
        lambda: Topology(sites=[Site(name=name) for name in sites], links=specs.values(), paths=paths.values()),
        {"name": "scenario.sites"},
    )


def read_link(table: Table, sites: tuple[str, ...], directory: FilePath | None) -> LinkSpec:
    """Return one link."""
    name = LinkKeys.name.read(table)
    ends = LinkKeys.between.read(table, (sites[0], sites[-1]))
    if len(ends) != 2 or not set(ends) <= set(sites):
        table.fail("between", f"expected two of the sites {', '.join(sites)}")
    trace = _read_capacity_trace(table, directory)
    rate_bps = LinkKeys.rate.read(table, None if trace is None else trace.mean_rate_bps)
    delay_key = table.only_one_of("delay", "rtt", expected='a time such as "30 ms", or rtt = "60 ms"')
    delay_s = LinkKeys.rtt.read(table) / 2 if delay_key == "rtt" else LinkKeys.delay.read(table)
    values = {
        "mtu_bytes": LinkKeys.mtu.read(table),
        "framing_bytes": LinkKeys.framing.read(table),
        "queue_bytes": _read_queue(table, rate_bps * 2 * delay_s / 8),
        "loss": read_loss(table, LinkKeys.loss, directory),
        "loss_back": read_loss(table, LinkKeys.loss_back, directory) if table.has("loss_back") else None,
        "jitter_s": LinkKeys.jitter.read(table),
        "reorder": LinkKeys.reorder.read(table),
        "reorder_delay_s": LinkKeys.reorder_delay.read(table),
        "duplicate": LinkKeys.duplicate.read(table),
        "corrupt": LinkKeys.corrupt.read(table),
        "events": (*((trace,) if trace else ()), *(_read_event(event) for event in LinkKeys.events.read(table))),
    }
    LinkKeys.finish(table)
    return table.adopt(
        lambda: LinkSpec(name=name, a=ends[0], b=ends[1], rate_bps=rate_bps, delay_s=delay_s, **values),  # type: ignore[arg-type]
        {**_LINK_KEYS, "delay_s": delay_key},
    )


def _read_capacity_trace(table: Table, directory: FilePath | None) -> CapacityTrace | None:
    name = LinkKeys.capacity_trace.find(table)
    if name is None:
        return None
    text = _read_file(table, "capacity_trace", name, directory, _MAX_CAPACITY_BYTES)
    try:
        return CapacityTrace.from_text(text)
    except FieldError as error:
        table.fail("capacity_trace", f"{shown(name)}: {error.message}")


def _read_file(table: Table, key: str, name: str, directory: FilePath | None, most_bytes: int) -> str:
    """Return the text of a file that a scenario names, found from the scenario's own directory."""
    if directory is None:
        table.fail(key, "a bundled scenario cannot name files")
    try:
        with (directory / name).open(encoding="utf-8") as file:
            text = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ScenarioError(
            f"{table.label(key)}: {shown(name)} cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'})"
        ) from error
    if len(text) > most_bytes:  # /dev/zero has no end
        table.fail(key, f"the file is larger than {most_bytes // 1_000_000} MB")
    return text


def _read_queue(table: Table, bdp_bytes: float) -> int | None:
    value = LinkKeys.queue.find(table)
    if value is None:
        return None
    expected = 'a size such as "2 MB" or "0.05 BDP"'
    if not isinstance(value, str):
        table.fail("queue", f"{shown(value)} is not {expected}")
    if (match := _BDP.fullmatch(value.strip())) is None:
        try:
            parse_size(value)
        except ValueError as error:
            table.fail("queue", f"{error}; expected {expected}")
        except OverflowError:  # which `size_bytes` tells
            pass
        return table.size_bytes("queue")
    size_bytes = float(match[1]) * bdp_bytes
    if not 1 <= size_bytes <= MAX_QUANTITY:
        table.fail("queue", f"{shown(value)} of {bdp_bytes:.0f} bytes is not a queue of at least one byte")
    return round(size_bytes)


def _read_event(table: Table) -> LinkEvent:
    kind = table.only_one_of("outage", "rate", expected='a time such as "500 ms", or rate = "2 Gbit/s"')
    at_s = EventKeys.at.read(table)
    iteration = EventKeys.iteration.find(table)
    if kind == "outage":
        event: LinkEvent = Outage(at_s=at_s, duration_s=EventKeys.outage.read(table), iteration=iteration)
    else:
        event = RateStep(at_s=at_s, rate_bps=EventKeys.rate.read(table), iteration=iteration)
    EventKeys.finish(table)
    return event


def _read_path(table: Table, links: dict[str, LinkSpec]) -> Path:
    name = PathKeys.name.read(table)
    names = PathKeys.links.read(table)
    for index, link in enumerate(names):
        if link not in links:
            table.fail(f"links[{index}]", f"there is no link {shown(link)}{close_matches(link, links)}")
    # The first link is walked towards the end that the second one touches too; a single one from a to b.
    first = links[names[0]]
    here = first.a
    if len(names) > 1 and first.a in (links[names[1]].a, links[names[1]].b):
        here = first.b
    sites = [here]
    for index, link in enumerate(names):
        ends = (links[link].a, links[link].b)
        if here not in ends:
            table.fail(f"links[{index}]", f"{shown(link)} does not begin at {shown(here)}, where the one before ends")
        here = ends[1] if here == ends[0] else ends[0]
        sites.append(here)
    overhead_bytes = PathKeys.overhead.read(table)
    return table.adopt(
        lambda: Path(name=name, sites=tuple(sites), links=names, overhead_bytes=overhead_bytes),
        {"sites": "links", "links": "links", "overhead_bytes": "overhead"},
    )


def read_loss(table: Table, key: Key[object], directory: FilePath | None) -> LossSpec:
    """Return the loss at `key`: a probability, or a table with a `model`; none when the key is not there."""
    value = key.find(table)
    if value is None:
        return NoLoss()
    if not isinstance(value, dict):
        probability = table.probability(key.name)
        return Bernoulli(probability=probability) if probability else NoLoss()
    return _read_model(table.table(key.name), directory)


def _read_model(table: Table, directory: FilePath | None) -> LossSpec:
    match LossKeys.model.read(table):
        case "none":
            loss: LossSpec = NoLoss()
        case "bernoulli":
            loss = Bernoulli(probability=LossKeys.probability.read(table))
        case "periodic":
            every, first = LossKeys.every.read(table), LossKeys.first.find(table)
            loss = Periodic(every=every, first=first, min_wire_bytes=LossKeys.min_wire_bytes.read(table))
        case "gilbert-elliott":
            loss = _read_gilbert_elliott(table)
        case "tail-of-burst":
            loss = TailOfBurst(packets=LossKeys.tail_packets.read(table))
        case "listed":
            loss = _read_listed(table)
        case "trace":
            loss = _read_trace(table, directory)
        case _:
            parts = tuple(_read_model(part, directory) for part in LossKeys.parts.read(table))
            loss = Combined(parts=parts)
    table.finish()
    return loss


def _read_gilbert_elliott(table: Table) -> LossSpec:
    if table.has("good_to_bad"):
        changes = [key.read(table) for key in (LossKeys.good_to_bad, LossKeys.bad_to_good)]
        losses = [key.read(table) for key in (LossKeys.loss_good, LossKeys.loss_bad)]
        return table.adopt(
            lambda: GilbertElliott(
                good_to_bad=changes[0], bad_to_good=changes[1], loss_good=losses[0], loss_bad=losses[1]
            ),
            {"bad_to_good": "bad_to_good"},
        )
    mean_loss = LossKeys.mean_loss.read(table)
    burst = LossKeys.mean_burst.read(table)
    return table.adopt(
        lambda: GilbertElliott.from_means(mean_loss=mean_loss, mean_burst_packets=burst),
        {"mean_loss": "mean_loss", "mean_burst_packets": "mean_burst"},
    )


def _read_listed(table: Table) -> LossSpec:
    value = LossKeys.listed_packets.read(table)
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < MOST_PACKETS for item in value):
        table.fail("packets", f"{shown(value)} is not a list of packet numbers, counted from 0")
    minimum = LossKeys.min_wire_bytes.read(table)
    return table.adopt(lambda: Listed(indices=tuple(value), min_wire_bytes=minimum), {"indices": "packets"})


def _read_trace(table: Table, directory: FilePath | None) -> LossSpec:
    key = table.only_one_of("outcomes", "file", expected='text such as "0001000", or the name of a file')
    text = (LossKeys.file if key == "file" else LossKeys.outcomes).read(table)
    if key == "file":
        text = _read_file(table, key, text, directory, MAX_FILE_BYTES)
    repeat, minimum = LossKeys.repeat.read(table), LossKeys.min_wire_bytes.read(table)
    return table.adopt(lambda: Trace.from_text(text, repeat=repeat, min_wire_bytes=minimum), {"outcomes": key})
