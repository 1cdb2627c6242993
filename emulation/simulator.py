"""The `sim` world: virtual time, `wan.link` models, full rate, no privileges, byte-identical for the same seed."""

import gc
from collections.abc import Mapping, Sequence
from functools import partial

from bicoastal.emulation.base import Backend, Capabilities, RunSpec, UnsupportedError
from bicoastal.emulation.clock import VirtualClock
from bicoastal.emulation.driver import APPLICATION, SAMPLING, Driver, Port, SpinningError, Transmit
from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.emulation.links.routes import ControlRoute, Route, Wire
from bicoastal.emulation.records import FlowSample, NoticeRecord, QueueSample, RunRecord
from bicoastal.emulation.service.placement import PlacedService, by_transport, place_all
from bicoastal.emulation.streams import stream
from bicoastal.emulation.traffic.flows import Flow, path_views, plan_flows
from bicoastal.emulation.traffic.jobs import BackgroundRun, FlowPorts, JobRun
from bicoastal.emulation.traffic.ledger import flow_sample, summarise
from bicoastal.transports.base import EndpointContext, PathView
from bicoastal.transports.events import Connected, Event, Failed, MessageReceived, Notice


class SimulatorBackend(Backend):
    """Runs any sans-IO transport. Native transports are programs and cannot run in virtual time."""

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
        gc.disable()  # there are millions of short-lived tuples without cycles, which the collector would only scan
        try:
            return _Simulation(spec, flows).run()
        finally:
            if collecting:
                gc.enable()
                gc.collect(0)  # the simulation that has ended holds cycles, and gradients in them


class _Simulation:
    """One run: makes links, flows and services, executes the events, and makes the record."""

    def __init__(self, spec: RunSpec, flows: Sequence[Flow]) -> None:
        self._spec = spec
        self._flows = flows
        self._driver = Driver(VirtualClock())
        self._failure = ""
        self._sampling_since: float | None = None
        self._notices: list[NoticeRecord] = []
        self._samples: list[FlowSample] = []
        self._queues: list[QueueSample] = []
        self._handshakes: dict[str, float] = {}
        self._wires = {
            directed.key: Wire(directed, spec.seed) for directed in DirectedLink.all_of(spec.topology.links.values())
        }
        self._ports: dict[str, FlowPorts] = {}
        owned: dict[str, dict[str, FlowPorts]] = {part.name: {} for part in spec.traffic}
        for flow in flows:
            owned[flow.owner][flow.name] = self._ports[flow.name] = self._make_flow(flow)
        self._services = self._make_services()
        self._jobs = [
            JobRun(
                job,
                spec.topology,
                owned[job.name],
                self._driver,
                time_limit_s=spec.time_limit_s,
                on_schedule=self._announce if job is spec.jobs[0] else _ignore,
                on_begin=self._begin_iteration,
                on_end=self._job_ended,
            )
            for job in spec.jobs
        ]
        background = [BackgroundRun(part, owned[part.name], self._driver) for part in spec.background]
        self._runs: tuple[JobRun | BackgroundRun, ...] = (*self._jobs, *background)
        self._owners = {name: run for run in self._runs for name in run.ports}
        self._unfinished = len(self._jobs)

    # -- building -----------------------------------------------------------------------------------------------------

    def _make_flow(self, flow: Flow) -> FlowPorts:
        views = path_views(self._spec.topology, flow.paths)
        client, server = (self._make_port(flow, role, views) for role in ("client", "server"))
        for source, target, site in ((client, server, flow.source), (server, client, flow.destination)):
            source.routes = {
                view.path_id: self._route(name, site, source, target)
                for view, name in zip(views, flow.paths, strict=True)
            }
        return FlowPorts(flow=flow, client=client, server=server)

    def _make_port(self, flow: Flow, role: str, views: Sequence[PathView]) -> Port:
        if flow.transport.make_endpoint is None:
            raise UnsupportedError(f"{flow.transport.name} makes no endpoints")
        context = EndpointContext(
            role=role,
            flow=flow.id,
            paths=views,
            rng=stream(self._spec.seed, f"flow/{flow.name}/{role}"),
            parameters=flow.parameters,
        )
        machine = flow.transport.make_endpoint(context)
        return Port(self._driver, f"{flow.name}:{role}", machine, partial(self._on_flow_event, flow.name, role))

    def _route(self, path_name: str, from_site: str, source: Port, target: Port) -> Transmit:
        topology = self._spec.topology
        wires = [self._wires[directed.key] for directed in DirectedLink.along(topology, path_name, from_site=from_site)]
        return Route(
            self._driver,
            wires,
            overhead_bytes=topology.paths[path_name].overhead_bytes,
            source=source,
            target=target,
            eager=self._spec.eager_encoding,
        ).transmit

    def _make_services(self) -> list[Port]:
        services: list[Port] = []
        members = by_transport(self._flows)
        for name, places in place_all(self._spec.topology, self._flows, seed=self._spec.seed).items():
            for placed in places:
                service = Port(self._driver, placed.name, placed.machine, self._on_any_event)
                service.routes = self._connect_service(service, placed, members[name])
                services.append(service)
        return services

    def _connect_service(self, service: Port, placed: PlacedService, flows: Sequence[Flow]) -> Mapping[int, Transmit]:
        """Give every flow's client a route to the service; return the service's routes to the clients."""
        routes: dict[int, Transmit] = {}
        eager = self._spec.eager_encoding
        for peer, (flow, delay_s) in enumerate(zip(flows, placed.delays_s, strict=True)):
            client = self._ports[flow.name].client
            there = ControlRoute(self._driver, delay_s=delay_s, target=service, path_id=peer, eager=eager)
            back = ControlRoute(self._driver, delay_s=delay_s, target=client, path_id=placed.path_id, eager=eager)
            client.routes = {**client.routes, placed.path_id: there.transmit}
            routes[peer] = back.transmit
        return routes

    # -- events -------------------------------------------------------------------------------------------------------

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

    def _on_flow_event(self, flow: str, role: str, port: Port, event: Event, now: float) -> None:
        match event:
            case MessageReceived() if role == "client":
                self._fail(f"{port.name} delivered message {event.message_id} to its own sender")
            case MessageReceived():
                try:
                    self._owners[flow].received(flow, event, now)
                except ValueError as error:
                    self._fail(str(error))
            case Connected():
                if role == "client" and flow not in self._handshakes:
                    self._handshakes[flow] = now
                    if len(self._handshakes) == len(self._ports):
                        for run in self._runs:
                            run.start(now)
            case _:
                self._on_any_event(port, event, now)

    def _on_any_event(self, port: Port, event: Event, now: float) -> None:
        match event:
            case Failed():
                self._fail(f"{port.name}: {event.reason}")
            case Notice():
                self._notices.append(NoticeRecord(source=port.name, at_s=now, kind=event.kind, detail=event.detail))

    def _announce(self, iteration: int, begins_s: float) -> None:
        for wire in self._wires.values():
            wire.link.begin_iteration(iteration, begins_s)

    def _begin_iteration(self, now: float) -> None:
        if self._spec.sample_interval_s is not None and self._sampling_since is None:
            self._sampling_since = now
            self._driver.at(now, SAMPLING, self._sample, 0)

    def _sample(self, number: int, now: float) -> None:
        interval_s, since_s = self._spec.sample_interval_s, self._sampling_since
        if interval_s is None or since_s is None or not any(job.active for job in self._jobs):
            self._sampling_since = None
            return
        for name, ports in self._ports.items():
            self._samples.append(flow_sample(name, now, ports.client_endpoint.sample(now)))
        self._queues += [wire.directed.queue_sample(wire.link, now, now) for wire in self._wires.values()]
        self._driver.at(since_s + (number + 1) * interval_s, SAMPLING, self._sample, number + 1)

    def _job_ended(self, reason: str) -> None:
        if reason:
            self._fail(reason)
        self._unfinished -= 1
        if not self._unfinished:
            self._driver.stop()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._driver.stop()

    # -- the record ---------------------------------------------------------------------------------------------------

    def _record(self) -> RunRecord:
        for job in self._jobs:
            job.close(self._failure)
        iterations = tuple(record for job in self._jobs for record in job.iterations)
        reason = self._failure or next((record.reason for record in iterations if record.status == "failed"), "")
        return RunRecord(
            scenario=self._spec.name,
            backend="sim",
            seed=self._spec.seed,
            scale=1.0,
            status="failed" if reason else "ok",
            reason=reason,
            array_note=self._spec.array_note,
            iterations=iterations,
            flows=tuple(record for job in self._jobs for record in job.flows),
            summaries=tuple(summarise(ports.flow, self._handshakes.get(name)) for name, ports in self._ports.items()),
            links=tuple(wire.directed.record(wire.link) for wire in self._wires.values()),
            samples=tuple(self._samples),
            queues=tuple(self._queues),
            notices=tuple(self._notices),
        )


def _ignore(iteration: int, begins_s: float) -> None:
    """Do nothing: only the iterations of the first job start link events."""
