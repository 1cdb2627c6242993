"""The `sim` world: virtual time, `wan.link` models, full rate, no privileges, byte-identical for the same seed."""

import gc
from collections.abc import Sequence
from functools import partial
from random import Random

from emulation.base import Backend, BackgroundSpec, Capabilities, RunSpec, UnsupportedError
from emulation.clock import VirtualClock
from emulation.driver import APPLICATION, ARRIVAL, SAMPLING, Driver, Port, SpinningError, Transmit
from emulation.flows import Flow, path_views, plan_flows
from emulation.jobs import BackgroundRun, FlowPorts, JobRun
from emulation.records import FlowSample, FlowSummary, LinkRecord, NoticeRecord, QueueSample, RunRecord, Status
from emulation.streams import stream
from transports.base import Datagram, EndpointContext, ServiceContext
from transports.events import Connected, Event, Failed, MessageReceived, Notice
from wan.link import Arrival, Link
from wan.schedule import Outage
from wan.topology import Topology


class SimulatorBackend(Backend):
    """Runs any sans-IO transport; native ones are programs, which have no place in virtual time."""

    def capabilities(self) -> Capabilities:
        """Return what the simulator offers, on every machine."""
        return Capabilities(name="sim", real_time=False)

    def run(self, spec: RunSpec) -> RunRecord:
        """Run `spec` in virtual time. See `Backend.run`."""
        flows = plan_flows(spec, self.registry)
        features = self.capabilities().features
        for flow in flows:
            if flow.transport.kind == "native":
                raise UnsupportedError(f"{flow.transport.name} is a program for real packets; sim has none")
            if missing := flow.transport.requires - features:
                raise UnsupportedError(f"{flow.transport.name} needs {', '.join(sorted(missing))}, which sim lacks")
        collecting = gc.isenabled()
        gc.disable()  # millions of short-lived tuples and no cycles: the collector would only look at them
        try:
            return _Simulation(spec, flows).run()
        finally:
            if collecting:
                gc.enable()


class _Route:
    """One way of a path: link after link, to the port at its far end."""

    def __init__(
        self, driver: Driver, links: Sequence[Link], overhead_bytes: int, source: Port, target: Port, *, eager: bool
    ) -> None:
        self._driver = driver
        self._links = links
        self._overhead_bytes = overhead_bytes
        self._framing_bytes = links[0].spec.framing_bytes + overhead_bytes
        self._may_vanish = [any(isinstance(event, Outage) for event in link.spec.events) for link in links]
        self._source = source
        self._target = target
        self._eager = eager

    def transmit(self, datagram: Datagram, now: float) -> None:
        """Put a datagram on the first link."""
        self._source.wire_bytes += datagram.wire_bytes + self._framing_bytes
        if self._eager:
            datagram = datagram._replace(payload=bytes(datagram.payload))
        if self._overhead_bytes:
            datagram = datagram._replace(wire_bytes=datagram.wire_bytes + self._overhead_bytes)
        self._hop(0, datagram, now)

    def _hop(self, index: int, datagram: Datagram, now: float) -> None:
        link = self._links[index]
        for arrival in link.submit(datagram, now):
            if arrival.corrupt is None and index + 1 == len(self._links) and not self._may_vanish[index]:
                self._driver.at(arrival.at_s, ARRIVAL, self._target.receive, datagram)
            else:
                self._driver.at(arrival.at_s, ARRIVAL, self._arrive, (index, datagram, arrival, now))

    def _arrive(self, argument: tuple[int, Datagram, Arrival, float], now: float) -> None:
        index, datagram, arrival, submitted_s = argument
        if self._may_vanish[index] and not self._links[index].survives(submitted_s, arrival.at_s):
            return
        if arrival.corrupt is not None:
            datagram = datagram._replace(payload=_flip(bytes(datagram.payload), arrival.corrupt))
        if index + 1 < len(self._links):
            self._hop(index + 1, datagram, now)
            return
        if self._overhead_bytes:
            datagram = datagram._replace(wire_bytes=datagram.wire_bytes - self._overhead_bytes)
        self._target.receive(datagram, now)


def _flip(octets: bytes, position: float) -> bytes:
    """Flip the bit at `position`, a fraction of the payload."""
    if not octets:
        return octets
    bit = min(int(position * 8 * len(octets)), 8 * len(octets) - 1)
    flipped = bytearray(octets)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)


class _ControlRoute:
    """The way between an endpoint and a service: reliable, in order, and as late as the propagation to its site."""

    def __init__(self, driver: Driver, delay_s: float, target: Port, path_id: int) -> None:
        self._driver = driver
        self._delay_s = delay_s
        self._target = target
        self._path_id = path_id

    def transmit(self, datagram: Datagram, now: float) -> None:
        """Deliver a control datagram, addressed as its receiver knows the sender."""
        arriving = datagram._replace(path_id=self._path_id)
        self._driver.at(now + self._delay_s, ARRIVAL, self._target.receive, arriving)


class _Simulation:
    """One run: builds the world, lets it happen, writes down what did."""

    def __init__(self, spec: RunSpec, flows: Sequence[Flow]) -> None:
        self._spec = spec
        self._flows = flows
        self._driver = Driver(VirtualClock())
        self._failure = ""
        self._sampling = False
        self._notices: list[NoticeRecord] = []
        self._samples: list[FlowSample] = []
        self._queues: list[QueueSample] = []
        self._handshakes: dict[str, float] = {}
        self._links = {
            (name, back): Link(link, back=back, stream=partial(self._link_stream, name, back))
            for name, link in spec.topology.links.items()
            for back in (False, True)
        }
        self._ports = {flow.name: self._make_flow(flow) for flow in flows}
        self._services = self._make_services()
        self._jobs = [
            JobRun(
                job,
                spec.topology,
                {flow.name: self._ports[flow.name] for flow in flows if flow.owner == job.name},
                self._driver,
                time_limit_s=spec.time_limit_s,
                on_begin=partial(self._begin_iteration, first=job is spec.jobs[0]),
                on_end=self._job_ended,
            )
            for job in spec.jobs
        ]
        self._background = [self._make_background(part) for part in spec.background]
        self._runs: tuple[JobRun | BackgroundRun, ...] = (*self._jobs, *self._background)
        self._owners: dict[str, JobRun | BackgroundRun] = {}
        for run in self._runs:
            self._owners.update(dict.fromkeys(run.ports, run))
        self._unfinished = len(self._jobs)

    def _link_stream(self, name: str, back: bool, process: str) -> Random:
        return stream(self._spec.seed, f"link/{name}/{'back' if back else 'forth'}/{process}")

    # -- building -----------------------------------------------------------------------------------------------------

    def _make_flow(self, flow: Flow) -> FlowPorts:
        make_endpoint = flow.transport.make_endpoint
        if make_endpoint is None:
            raise UnsupportedError(f"{flow.transport.name} makes no endpoints")
        views = path_views(self._spec.topology, flow.paths)
        ports = [
            Port(
                self._driver,
                f"{flow.name}:{role}",
                make_endpoint(
                    EndpointContext(
                        role=role,
                        flow=flow.name,
                        paths=views,
                        rng=stream(self._spec.seed, f"flow/{flow.name}/{role}"),
                        parameters=flow.parameters,
                    )
                ),
                partial(self._on_event, flow.name, role),
            )
            for role in ("client", "server")
        ]
        client, server = ports
        for source, target, site in ((client, server, flow.source), (server, client, flow.destination)):
            source.routes = {
                view.path_id: self._route(name, site, source, target)
                for view, name in zip(views, flow.paths, strict=True)
            }
        return FlowPorts(flow=flow, client=client, server=server)

    def _route(self, path_name: str, from_site: str, source: Port, target: Port) -> Transmit:
        path = self._spec.topology.paths[path_name]
        steps = list(zip(path.links, path.sites[:-1], strict=True))
        if path.sites[0] != from_site:
            steps = list(zip(reversed(path.links), reversed(path.sites[1:]), strict=True))
        links = [self._links[name, self._spec.topology.links[name].a != site] for name, site in steps]
        return _Route(
            self._driver, links, path.overhead_bytes, source, target, eager=self._spec.eager_encoding
        ).transmit

    def _make_services(self) -> list[Port]:
        services: list[Port] = []
        transports = {flow.transport.name: flow.transport for flow in self._flows}
        for name, transport in transports.items():
            members = [flow for flow in self._flows if flow.transport.name == name]
            context = ServiceContext(
                topology=self._spec.topology,
                flows=tuple(flow.name for flow in members),
                rng=stream(self._spec.seed, f"service/{name}"),
                parameters=members[0].parameters,
            )
            for number, placement in enumerate(transport.make_services(context), start=1):
                service = Port(self._driver, placement.name, placement.machine, self._on_service_event)
                routes: dict[int, Transmit] = {}
                for peer, flow in enumerate(members):
                    delay_s = control_delay_s(self._spec.topology, flow.source, placement.site)
                    client = self._ports[flow.name].client
                    client.routes = {
                        **client.routes,
                        -number: _ControlRoute(self._driver, delay_s, service, peer).transmit,
                    }
                    routes[peer] = _ControlRoute(self._driver, delay_s, client, -number).transmit
                service.routes = routes
                services.append(service)
        return services

    def _make_background(self, part: BackgroundSpec) -> BackgroundRun:
        ports = {flow.name: self._ports[flow.name] for flow in self._flows if flow.owner == part.name}
        return BackgroundRun(part, ports, self._driver)

    # -- happening ----------------------------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        """Connect, run every job to its end, and write the record."""
        self._driver.clock.start()
        self._driver.at(0.0, APPLICATION, self._connect, None)
        self._driver.at(self._spec.time_limit_s, APPLICATION, self._check_connected, None)
        try:
            self._driver.run()
        except SpinningError as error:
            self._failure = str(error)
        if not self._failure and self._unfinished:
            self._failure = "nothing was left to happen before the jobs were done"
        return self._record()

    def _connect(self, _: object, now: float) -> None:
        for service in self._services:
            service.pump(now)
        for ports in self._ports.values():
            ports.server.pump(now)
            ports.client.pump(now)

    def _check_connected(self, _: object, now: float) -> None:
        if missing := [name for name in self._ports if name not in self._handshakes]:
            self._fail(f"{missing[0]} did not connect within {self._spec.time_limit_s:g} s")

    def _on_event(self, flow: str, role: str, port: Port, event: Event, now: float) -> None:
        match event:
            case MessageReceived():
                try:
                    self._owners[flow].received(flow, event, now)
                except ValueError as error:
                    self._fail(str(error))
            case Connected():
                if role == "client":
                    self._handshakes[flow] = now
                    if len(self._handshakes) == len(self._ports):
                        for run in self._runs:
                            run.start(now)
            case Failed():
                self._fail(f"{port.name}: {event.reason}")
            case Notice():
                self._notices.append(NoticeRecord(source=port.name, at_s=now, kind=event.kind, detail=event.detail))

    def _on_service_event(self, port: Port, event: Event, now: float) -> None:
        match event:
            case Failed():
                self._fail(f"{port.name}: {event.reason}")
            case Notice():
                self._notices.append(NoticeRecord(source=port.name, at_s=now, kind=event.kind, detail=event.detail))

    def _begin_iteration(self, iteration: int, now: float, *, first: bool) -> None:
        if first:
            for link in self._links.values():
                link.begin_iteration(iteration, now)
        if self._spec.sample_interval_s is not None and not self._sampling:
            self._sampling = True
            self._driver.at(now, SAMPLING, self._sample, None)

    def _sample(self, _: object, now: float) -> None:
        if not any(job.active for job in self._jobs):
            self._sampling = False
            return
        for name, ports in self._ports.items():
            sample = ports.client_endpoint.sample(now)
            self._samples.append(
                FlowSample(
                    flow=name,
                    at_s=now,
                    cwnd_bytes=sample.cwnd_bytes,
                    in_flight_bytes=sample.in_flight_bytes,
                    pacing_rate_bps=sample.pacing_rate_bps,
                    srtt_s=sample.srtt_s,
                )
            )
        for (name, back), link in self._links.items():
            self._queues.append(
                QueueSample(
                    link=name, direction=self._direction(name, back), at_s=now, backlog_bytes=link.backlog_bytes(now)
                )
            )
        self._driver.at(now + (self._spec.sample_interval_s or 0.0), SAMPLING, self._sample, None)

    def _job_ended(self, reason: str) -> None:
        if reason:
            self._fail(reason)
        self._unfinished -= 1
        if not self._unfinished:
            self._driver.stop()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._driver.stop()

    # -- writing down -------------------------------------------------------------------------------------------------

    def _direction(self, name: str, back: bool) -> str:
        link = self._spec.topology.links[name]
        return f"{link.b}>{link.a}" if back else f"{link.a}>{link.b}"

    def _record(self) -> RunRecord:
        for job in self._jobs:
            job.close(self._failure)
        iterations = tuple(record for job in self._jobs for record in job.iterations)
        failed = next((record.reason for record in iterations if record.status == "failed"), "")
        reason = self._failure or failed
        status: Status = "failed" if reason else "ok"
        return RunRecord(
            scenario=self._spec.name,
            backend="sim",
            seed=self._spec.seed,
            scale=1.0,
            status=status,
            reason=reason,
            array_note=self._spec.jobs[0].allreduce.array_note,
            iterations=iterations,
            flows=tuple(record for job in self._jobs for record in job.flows),
            summaries=tuple(
                FlowSummary(
                    flow=name,
                    job=ports.flow.owner,
                    transport=ports.flow.transport.name,
                    source=ports.flow.source,
                    destination=ports.flow.destination,
                    path="+".join(ports.flow.paths),
                    handshake_s=self._handshakes.get(name),
                )
                for name, ports in self._ports.items()
            ),
            links=tuple(
                LinkRecord(
                    link=name,
                    direction=self._direction(name, back),
                    packets=link.packets,
                    bytes=link.bytes,
                    delivered=link.delivered,
                    lost=link.lost,
                    dropped_queue=link.dropped_queue,
                    dropped_outage=link.dropped_outage,
                    duplicated=link.duplicated,
                    corrupted=link.corrupted,
                    reordered=link.reordered,
                )
                for (name, back), link in self._links.items()
            ),
            samples=tuple(self._samples),
            queues=tuple(self._queues),
            notices=tuple(self._notices),
        )


def control_delay_s(topology: Topology, site: str, other: str) -> float:
    """Return the least propagation delay between two sites over the links, in seconds (Dijkstra; inf if apart)."""
    delays = {name.name: float("inf") for name in topology.sites}
    delays[site] = 0.0
    unseen = set(delays)
    while unseen:
        nearest = min(unseen, key=lambda name: (delays[name], name))
        unseen.remove(nearest)
        for link in topology.links.values():
            for here, there in ((link.a, link.b), (link.b, link.a)):
                if here == nearest:
                    delays[there] = min(delays[there], delays[here] + link.delay_s)
    return delays[other]
