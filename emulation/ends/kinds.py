"""Makes the end that a flow's transport needs in real time, and the settings that belong to it."""

import importlib
from collections.abc import Callable, Sequence

from bicoastal.emulation.base import JobSpec, RunSpec, UnsupportedError
from bicoastal.emulation.ends.flow_end import EndContext, FlowEnd
from bicoastal.emulation.ends.kernel_tcp import HEADER_BYTES
from bicoastal.emulation.ends.udp import UdpEnd
from bicoastal.emulation.ground.wiring import CoastOptions
from bicoastal.emulation.relay.frames import BurstRule, DscpBursts, TcpBursts
from bicoastal.emulation.traffic.flows import Flow, stripe
from bicoastal.wan.topology import Path

FIRST_PORT = 20_000  # of those that flows use, in namespaces of their own


def make_end(context: EndContext) -> FlowEnd:
    """Return the end of a flow. Raises UnsupportedError, in one sentence, when its program cannot be loaded."""
    transport = context.flow.transport
    if transport.kind == "sans-io":
        return UdpEnd(context)
    module, _, attribute = (transport.program or "").partition(":")
    try:
        program: Callable[[EndContext], FlowEnd] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnsupportedError(f"the program of {transport.name} cannot be loaded: {error}") from error
    return program(context)


def burst_rules(spec: RunSpec, flows: Sequence[Flow]) -> dict[str, BurstRule]:
    """Return how the relay recognises the bursts of a path's first job, for every path that a job uses.

    Raises UnsupportedError for a transport whose bursts cannot be recognised from its packets.
    """
    numbers = port_numbers(flows, FIRST_PORT)
    rules: dict[str, BurstRule] = {}
    for job in spec.jobs:
        for flow in flows:
            if flow.owner != job.name:
                continue
            for path in flow.paths:
                if path not in rules:
                    rules[path] = _burst_rule(job, flow, spec.topology.paths[path], numbers[flow.name])
    return rules


def _burst_rule(job: JobSpec, flow: Flow, path: Path, port: int) -> BurstRule:
    if flow.transport.kind == "sans-io":
        return DscpBursts()
    if flow.transport.paths == "many":
        raise UnsupportedError(f"the bursts of {flow.transport.name} cannot be told from outside, path by path")
    sizes: dict[str, list[int]] = {path.sites[0]: [], path.sites[-1]: []}
    for message in job.allreduce.messages:
        start, stop = stripe(message.payload_bytes, flow.capacities)[flow.index]
        if start < stop:
            sizes[message.source].append(stop - start + HEADER_BYTES)
    forth, back = map(tuple, sizes.values())
    if not (forth or back):
        return DscpBursts()  # the path is too long for so small a message, which does not use it
    return TcpBursts(port=port, burst_bytes=forth or back, back_bytes=back, lead_bytes=HEADER_BYTES)


def port_numbers(flows: Sequence[Flow], first: int) -> dict[str, int]:
    """Return the port of every flow. Both directions of the same stripe of a job have the same port."""
    places: dict[tuple[str, int], int] = {}
    return {flow.name: first + places.setdefault((flow.owner, flow.index), len(places)) for flow in flows}


def coast_options(flows: Sequence[Flow]) -> CoastOptions:
    """Return the settings of the kernel's TCP for these flows, in the namespaces of a run."""
    return CoastOptions(slow_start_after_idle=not any("learned windows" in flow.transport.requires for flow in flows))
