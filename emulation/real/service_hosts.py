"""Starts the processes of a run's services, takes their news, and restarts them when they die."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from bicoastal.emulation.base import RunFailedError, RunSpec
from bicoastal.emulation.ends.udp import encapsulation_bytes
from bicoastal.emulation.processes.channel import ChannelClosedError
from bicoastal.emulation.processes.coordination import (
    SERVICE_NEWS,
    SERVICE_ORDERS,
    Broken,
    Connect,
    Finish,
    Finished,
    Noticed,
    Ready,
    ServiceAddress,
    ServiceNews,
    ServiceOrder,
    ServicePlan,
    require_ready,
)
from bicoastal.emulation.processes.credentials import service_identity, site_identity
from bicoastal.emulation.processes.worker_handle import WorkerGround, WorkerHandle
from bicoastal.emulation.records import NoticeRecord
from bicoastal.emulation.service.authority import issue
from bicoastal.emulation.service.placement import by_transport, place_all
from bicoastal.emulation.traffic.flows import Flow

MOST_RESTARTS = 5  # of one process in a run


class ServiceGround(WorkerGround, Protocol):
    """The namespaces of a run, or the hosts of Mininet, in which services are started."""

    @property
    def directory(self) -> Path:
        """The run's private directory, readable by this user alone."""


class _Host:
    """The process of one transport's services."""

    def __init__(self, ground: ServiceGround, site: str, plan: ServicePlan) -> None:
        self._ground = ground
        self._site = site
        self.plan = plan
        self.name = f"the services of {plan.address.transport}"
        self.restarts = 0
        self.runs = False  # it has been told the run's epoch
        self.handle = self._start()

    def _start(self) -> WorkerHandle[ServiceOrder, ServiceNews]:
        handle = WorkerHandle(
            self._ground,
            self._site,
            "bicoastal.emulation.service.program",
            name=f"the process of {self.name}",
            orders=SERVICE_ORDERS,
            news=SERVICE_NEWS,
        )
        try:
            handle.send(self.plan)
        except BaseException:
            handle.close()
            raise
        return handle

    def await_readiness(self) -> None:
        require_ready(self.name, self.handle.receive())

    def connect(self, epoch_s: float) -> None:
        """Begin the run's time at `epoch_s`."""
        self.handle.send(Connect(epoch_s=epoch_s))
        self.runs = True

    def start_again(self) -> None:
        """Start a new process in the place of one that has died; it reports when it is ready."""
        self.handle.close()
        self.runs = False
        self.restarts += 1
        self.plan = replace(self.plan, generation=self.restarts)
        self.handle = self._start()


class ServiceHosts:
    """The processes of all services of a run.

    addresses: by site, the addresses for its coast. doubts: reasons to doubt the run's figures. failure: the reason why
    a service has given up, or "". Raises as `place_all`, UnsupportedError when a process cannot execute its plan, and
    RunFailedError.
    """

    def __init__(
        self, spec: RunSpec, flows: Sequence[Flow], ground: ServiceGround, *, processors: Sequence[int] = ()
    ) -> None:
        self.failure = ""
        self._epoch_s: float | None = None
        self._notices: list[NoticeRecord] = []
        self._hosts: list[_Host] = []
        sites = dict.fromkeys(site for flow in flows for site in (flow.source, flow.destination))
        self.addresses: dict[str, tuple[ServiceAddress, ...]] = dict.fromkeys(sites, ())
        placed = place_all(spec.topology, flows, seed=spec.seed)
        standing = {name: tuple(each.site for each in places) for name, places in placed.items() if places}
        if not standing:
            return
        directory = ground.directory
        issued = issue(directory, [*map(site_identity, sites), *map(service_identity, standing)])
        try:
            for number, (name, places) in enumerate(standing.items()):
                address = ServiceAddress(
                    transport=name,
                    sites=places,
                    socket=str(directory / f"service-{number}"),
                    credentials=issued[service_identity(name)],
                )
                transport = by_transport(flows)[name][0].transport
                plan = ServicePlan(
                    spec=spec,
                    address=address,
                    generation=0,
                    encapsulation_bytes=encapsulation_bytes(transport) if transport.kind == "sans-io" else 0,
                    processors=tuple(processors),
                )
                self._hosts.append(_Host(ground, next(iter(sites)), plan))
                for site in sites:
                    theirs = replace(address, credentials=issued[site_identity(site)])
                    self.addresses[site] = (*self.addresses[site], theirs)
            for host in self._hosts:
                host.await_readiness()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that were started."""
        return tuple(host.handle.pid for host in self._hosts)

    @property
    def descriptors(self) -> Mapping[int, "_Host"]:
        """The descriptors that are readable when a service has sent news or has died."""
        return {host.handle.channel.fileno(): host for host in self._hosts}

    def connect(self, epoch_s: float) -> None:
        """Begin the run's time at `epoch_s`, on CLOCK_MONOTONIC."""
        self._epoch_s = epoch_s
        for host in self._hosts:
            host.connect(epoch_s)

    def receive(self, host: "_Host", now: float) -> None:
        """Take news from a service; restart it when it has died. Raises RunFailedError after too many restarts."""
        try:
            news = host.handle.channel.receive()
        except ChannelClosedError:
            self._replace(host, now)
            return
        self._take(host, news)

    def _take(self, host: "_Host", news: ServiceNews) -> None:
        match news:
            case Ready() if self._epoch_s is not None:  # it replaces a process that died
                host.connect(self._epoch_s)
            case Noticed(notice=notice):
                self._notices.append(notice)
            case Broken(reason=reason, transport=True):
                self.failure = self.failure or reason
            case Broken(reason=reason):
                raise RunFailedError(f"{host.name} broke: {reason}")
            case other:
                raise RunFailedError(f"{host.name} sent {type(other).__name__} at the wrong time")

    def _replace(self, host: "_Host", now: float) -> None:
        cause = host.handle.cause_of_death()
        if host.restarts >= MOST_RESTARTS or self._epoch_s is None:
            raise RunFailedError(f"the process of {host.name} has died: {cause}")
        host.start_again()
        source = host.plan.address.transport
        detail = f"its process died ({cause}); another has taken its place"
        self._notices.append(NoticeRecord(source=source, at_s=now, kind="service-restarted", detail=detail))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the run's figures."""
        return tuple(
            f"{host.name} were started again {host.restarts} time{'s' if host.restarts > 1 else ''}"
            for host in self._hosts
            if host.restarts
        )

    def finish(self) -> tuple[NoticeRecord, ...]:
        """End all processes in order; return their notices. A process that was still starting is not used."""
        for host in self._hosts:
            if host.runs:
                host.handle.send(Finish())
                while not isinstance(news := host.handle.receive(), Finished):
                    self._take(host, news)
        return tuple(self._notices)

    def close(self) -> None:
        """End every process."""
        for host in self._hosts:
            host.handle.close()
