"""The table [tunnels]: paths across many links that the reader finds for the jobs, so that nobody has to list them."""

from collections.abc import Mapping, Sequence

from bicoastal.experiments.scenario.scenario_keys import BackgroundKeys, JobKeys, TunnelKeys
from bicoastal.experiments.scenario.tables import Table
from bicoastal.transports.b4.allocator import FlowGroup, allocate
from bicoastal.transports.b4.bandwidth import Application
from bicoastal.transports.b4.network import Network
from bicoastal.transports.b4.tunnels import Tunnel, TunnelTable, cheapest_tunnels
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from bicoastal.wan.units import INFINITY

Pair = tuple[str, str]


def find_paths(
    document: Table, sites: tuple[str, ...], links: Mapping[str, LinkSpec], listed: Mapping[str, Path]
) -> dict[str, Path]:
    """Return paths by name for the jobs and the background traffic that list none, beside those that are listed.

    search = "cheapest": the loop-free paths of least delay between two sites (Yen 1971). "bottlenecks": the tunnels
    that the B4 allocator takes when all pairs of sites want as much as they can get: each next one avoids the links
    that are full by then (Jain et al., SIGCOMM 2013, §4.3). A path is used in both directions; it is found for the
    direction of the job that comes first. Raises ScenarioError.
    """
    table = document.table("tunnels")
    count = TunnelKeys.count.read(table)
    search = TunnelKeys.search.read(table)
    if table.has("rounds") and search != "bottlenecks":
        table.fail("rounds", 'has a meaning with search = "bottlenecks" only')
    rounds = TunnelKeys.rounds.read(table)
    TunnelKeys.finish(table)
    topology = document.adopt(
        lambda: Topology(sites=[Site(name=name) for name in sites], links=links.values(), paths=()),
        {"name": "scenario.sites"},
    )
    network = Network.from_topology(topology)
    pairs = _pairs_without_paths(document, sites)
    found = (
        cheapest_tunnels(network, pairs, count) if search == "cheapest" else _allocated(network, pairs, count, rounds)
    )
    paths: dict[str, Path] = {}
    known = {(path.sites, path.links) for path in listed.values()}
    for pair in pairs:
        if not found[pair]:
            table.fail("", f"no links lead from {pair[0]} to {pair[1]}")
        for number, tunnel in enumerate(found[pair], start=1):
            ways = {(tunnel.sites, tunnel.links), (tunnel.sites[::-1], tunnel.links[::-1])}
            if known.isdisjoint(ways):
                name = f"{pair[0]}-{pair[1]}-{number}"
                while name in paths or name in listed:
                    name += "_"
                paths[name] = Path(name=name, sites=tunnel.sites, links=tunnel.links)
    return paths


def _pairs_without_paths(document: Table, sites: tuple[str, ...]) -> list[Pair]:
    """Return the pairs of sites between which paths are wanted, each once. What is wrong is left to later readers."""
    pairs: list[Pair] = []
    for ends in _ends(document, sites):
        if len(ends) == 2 and set(ends) <= set(sites) and ends[0] != ends[1]:
            pair = ends[0], ends[1]
            if pair not in pairs and pair[::-1] not in pairs:
                pairs.append(pair)
    return pairs


def _ends(document: Table, sites: tuple[str, ...]) -> list[Sequence[str]]:
    jobs = document.tables("jobs") if document.has("jobs") else (document.table("allreduce"),)
    ends: list[Sequence[str]] = [JobKeys.sites.read(job, (sites[0], sites[-1])) for job in jobs if not job.has("paths")]
    ends += [
        (BackgroundKeys.source.read(flow, sites[0]), BackgroundKeys.destination.read(flow, sites[-1]))
        for flow in document.tables("background")
        if not flow.has("paths")
    ]
    return ends


def _allocated(network: Network, pairs: Sequence[Pair], count: int, rounds: int) -> TunnelTable:
    groups = [
        FlowGroup(
            source=source,
            destination=destination,
            applications=(Application(name="all", weight=1.0, demand_bps=INFINITY),),
        )
        for source, destination in pairs
    ]
    allocation = allocate(network, groups, tunnels_per_group=count, rounds=rounds)
    tunnels: dict[Pair, tuple[Tunnel, ...]] = {}
    for pair, part in zip(pairs, allocation.groups, strict=True):
        tunnels[pair] = tuple(share.tunnel for share in part.tunnels)
    return tunnels
