"""What the tests of tails share: messages through the simulator, and trials of any model."""

import numpy as np
import numpy.typing as npt

from bicoastal.emulation.clock import VirtualClock
from bicoastal.emulation.driver import APPLICATION, Driver, Port
from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.emulation.links.routes import Route, Wire
from bicoastal.emulation.streams import stream
from bicoastal.experiments.extrapolation.tails import trials as tails_trials
from bicoastal.experiments.extrapolation.tails.model import Crossing, TailModel
from bicoastal.transports.base import Endpoint, EndpointContext, PathView
from bicoastal.transports.events import Connected, Event, MessageReceived
from bicoastal.transports.registry import Registry
from bicoastal.wan.flow_id import FlowId
from bicoastal.wan.loss import Bernoulli, LossSpec
from helpers.small_runs import job, plane, planes, run_spec, simulate

Array = npt.NDArray[np.float64]
SHARES = (0.5, 0.99, 0.999)


def trials(model: TailModel, crossing: Crossing, messages: int, seed: int = 5) -> Array:
    """Return completions of `messages` messages whose losses are drawn one by one."""
    return tails_trials.trials(model, crossing, messages, np.random.default_rng(seed))


def simulated(
    transport: str,
    crossing: Crossing,
    *,
    runs: int,
    iterations: int,
    first: int = 0,
    paths: int = 8,
    lost: LossSpec | None = None,
) -> Array:
    """Return completions of single-path messages in `sim`, of all iterations from `first` on, over seeds 0 to runs.

    lost: in the place of what the crossing loses by chance.
    """
    found = []
    for seed in range(runs):
        links = [
            plane(
                f"plane{index}",
                rate_bps=float(crossing.rate_bps),
                delay_s=float(crossing.rtt_s) / 2,
                mtu_bytes=crossing.mtu_bytes,
                loss=lost or Bernoulli(probability=float(crossing.loss)),
            )
            for index in range(paths)
        ]
        jobs = [
            job(
                transport,
                name=f"job{index}",
                paths=(link.name,),
                shard_bytes=int(crossing.payload_bytes),
                iterations=iterations,
                gap_s=crossing.idle_s,
                array_bytes=4096,
                start_s=0.5,
            )
            for index, link in enumerate(links)
        ]
        record = simulate(run_spec(planes(*links), *jobs, seed=seed, time_limit_s=1000.0))
        assert record.status == "ok", record.reason
        found += [flow.completion_s for flow in record.flows if flow.iteration >= first]
    return np.array(found, dtype=float)


def alone(transport: str, crossing: Crossing) -> float:
    """Return the completion of a connection's first message where nothing comes the other way: no job sends so.

    Without loss; for transports on one path that need no service.
    """
    driver, spec, found = Driver(VirtualClock()), Registry.installed().resolve(transport), []
    link = plane(rate_bps=float(crossing.rate_bps), delay_s=float(crossing.rtt_s) / 2, mtu_bytes=crossing.mtu_bytes)
    wires = [Wire(directed, 0) for directed in DirectedLink.all_of([link])]
    view = PathView(path_id=0, name=link.name, mtu_bytes=link.mtu_bytes)

    def on_event(port: Port, event: Event, now: float) -> None:
        if isinstance(event, Connected) and port is client:
            driver.at(now + 0.5, APPLICATION, begin, None)
        elif isinstance(event, MessageReceived):
            found.append(now)
            driver.stop()

    def begin(_: object, now: float) -> None:
        found.append(now)
        assert isinstance(client.machine, Endpoint)
        client.machine.send_message(1, bytes(int(crossing.payload_bytes)), now)
        client.pump(now)

    def port(role: str) -> Port:
        context = EndpointContext(
            role=role,
            flow=FlowId(owner="alone", source="west", destination="east", paths=(view.name,)),
            paths=(view,),
            rng=stream(0, role),
            parameters=spec.make_parameters({}),
        )
        assert spec.make_endpoint is not None
        return Port(driver, role, spec.make_endpoint(context), on_event)

    client, server = port("client"), port("server")
    for source, target, wire in ((client, server, wires[0]), (server, client, wires[1])):
        route = Route(driver, [wire], overhead_bytes=0, source=source, target=target, eager=False)
        source.routes = {0: route.transmit}
    for each in (server, client):
        each.pump(0.0)
    driver.run()
    began_s, arrived_s = found
    return arrived_s - began_s
