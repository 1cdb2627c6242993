"""The controller: hears from every flow's agent what it wants and which paths work, and grants rates.

It is a sans-IO service. Peers are numbered in the order of the flows it was made for; a peer speaks for its own flow
only. Nothing is ever promised twice: what an agent may be using is the most of the grants that it has not replaced and
that have not expired, and of its safe share; a grant grows only into what all agents together leave of every link.
Decreases are therefore sent first, and increases follow as the decreases are acknowledged, or expire.

After a restart it knows nothing of the grants that are still in force. It learns them from the agents, and grants
nothing until all have spoken, or until whatever was granted must have expired.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from bicoastal.transports.b4.messages import AgentState, Grant, MalformedMessageError, Share, decode, wire_bytes
from bicoastal.transports.b4.parameters import ControlledParameters, job_of
from bicoastal.transports.b4.plan import EdgeKey, Want, capacity_bps, edges_of, share_out
from bicoastal.transports.base import Datagram, Machine, Rng, ServiceContext, ServicePlacement
from bicoastal.transports.events import Event, Notice
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY

TOLERANCE = 1e-9  # of a capacity: sums of rates that fill a link exactly may exceed it by rounding
SLACK = 1e-3  # of a capacity: a smaller change is not worth a message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    """Rates that an agent may be using until `until`, (forward, back) for each of its paths; see `_Peer`."""

    sequence: int
    rates: tuple[tuple[float, float], ...]
    until: float


@dataclass(slots=True)
class _Peer:
    """What is known of an agent.

    Rates are pairs for each path: its own, and what the far end has beyond its safe share. That share comes out of the
    headroom, half of which so stays free for acknowledgements, and is left out of all sums.
    """

    flow: str
    weight: float
    back: bool  # the flow runs against the direction of its paths
    paths: tuple[str, ...]  # by the flow's name, until it has spoken
    state: AgentState | None = None
    promises: list[_Promise] = field(default_factory=list)
    sequence: int = 0
    owed: bool = False  # an answer
    target: tuple[tuple[float, float], ...] = ()
    safe: tuple[float, ...] = ()
    safe_back: tuple[float, ...] = ()
    refused: bool = False

    def held(self, now: float) -> tuple[tuple[float, float], ...]:
        """Return the most that it may be sending on each path, by all that it may believe."""
        most = [(safe_bps, 0.0) for safe_bps in self.safe]
        for promise in self.promises:
            if promise.until > now:
                most = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(most, promise.rates, strict=True)]
        return tuple(most)


class Controller(Machine):
    """Grants rates to the flows it was made for. rejected: messages that were malformed or not the peer's to send."""

    def __init__(self, topology: Topology, flows: Sequence[str], rng: Rng, parameters: ControlledParameters) -> None:
        self._topology = topology
        self._parameters = parameters
        self._grace_s = parameters.grace_s + _longest_way_s(topology, parameters.site)
        self._epoch = rng.getrandbits(63) + 1  # 0 stands for no grant
        weights = parameters.weight_of
        self._peers = [
            _Peer(
                flow=flow,
                weight=weights.get(job_of(flow), 1.0),
                back=_runs_back(topology, flow),
                paths=_paths_of(topology, flow),
            )
            for flow in flows
        ]
        self._capacities = capacity_bps(topology, parameters.headroom)
        for peer in self._peers:
            self._know_paths(peer, peer.paths)
        self._began_at = 0.0
        self._predecessor = False  # somebody else's grants may be in force, or on their way
        self._quiet_until: float | None = None  # None: nothing has happened yet
        self._stale = False  # targets are to be computed again
        self._events: deque[Event] = deque()
        self.rejected = 0

    # -- verbs --------------------------------------------------------------------------------------------------------

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take an agent's state."""
        self._begin(now)
        if not 0 <= datagram.path_id < len(self._peers):
            self.rejected += 1
            return
        peer = self._peers[datagram.path_id]
        try:
            state = decode(datagram.payload)
            if not isinstance(state, AgentState):
                raise MalformedMessageError("type: only an agent has anything to say here")
            self._check(peer, state)
        except MalformedMessageError as error:
            self.rejected += 1
            if not peer.refused:
                peer.refused = True
                self._events.append(Notice(kind="b4-rejected", detail=f"from {peer.flow}: {error}"))
            return
        self._take(peer, state, now)

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """Return the grants that are due."""
        if self._quiet_until is None or not self._may_grant(now):
            return []
        if self._stale:
            self._stale = False
            self._plan()
        out: list[Datagram] = []
        for number, peer in enumerate(self._peers):
            if peer.state is not None and peer.target:
                self._grant(number, peer, now, out)
        return out

    def get_timer(self) -> float | None:
        """Return when the next promise expires, or when silence ends."""
        if self._quiet_until is not None and self._is_quiet():
            return self._quiet_until
        at = min((promise.until for peer in self._peers for promise in peer.promises), default=INFINITY)
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Forget promises that have expired: what they held is free."""
        self._may_grant(now)
        for peer in self._peers:
            before = len(peer.promises)
            peer.promises = [promise for promise in peer.promises if promise.until > now]
            if before and not peer.promises:
                self._stale = True  # its agent is gone, or has no use for its rates

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    # -- hearing ------------------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        if self._quiet_until is None:
            self._began_at = now
            self._quiet_until = now + self._parameters.lease_s + self._grace_s

    def _is_quiet(self) -> bool:
        return self._quiet_until is not None and self._quiet_until < INFINITY

    def _may_grant(self, now: float) -> bool:
        """Whether all that may still be in force is known."""
        if self._quiet_until is None:
            return False
        if self._quiet_until <= now or all(peer.state is not None for peer in self._peers):
            # A predecessor's last grants take a delay to arrive, and their acknowledgements another one.
            known_at = self._began_at + 2 * self._grace_s if self._predecessor else now
            self._quiet_until = INFINITY if known_at <= now else min(self._quiet_until, known_at)
        return self._quiet_until == INFINITY

    def _check(self, peer: _Peer, state: AgentState) -> None:
        if state.flow != peer.flow:
            raise MalformedMessageError(f"flow: the peer is {peer.flow!r}, not {state.flow!r}")
        names = [path.name for path in state.paths]
        if not names or len(set(names)) < len(names):
            raise MalformedMessageError("paths: there is none, or one of them is there twice")
        for name in names:
            if name not in self._topology.paths:
                raise MalformedMessageError(f"paths: {name!r} is not a path")
        if peer.state is not None and peer.state.instance == state.instance and peer.paths != tuple(names):
            raise MalformedMessageError("paths: they are not those of the flow")

    def _take(self, peer: _Peer, state: AgentState, now: float) -> None:
        before = peer.state
        if before is not None and before.instance == state.instance and state.sequence <= before.sequence:
            return  # late, or twice
        peer.state = state
        if before is None or before.instance != state.instance:
            self._know_paths(peer, tuple(path.name for path in state.paths))
            peer.target = ()
            if before is not None and peer.promises:  # another process: what the one before it had may be in use
                peer.promises = [promise for promise in peer.promises if len(promise.rates) == len(state.paths)]
        rates = tuple(
            (path.forward_bps, max(0.0, path.back_bps - safe_back))
            for path, safe_back in zip(state.paths, peer.safe_back, strict=True)
        )
        if state.epoch == self._epoch:
            # The agent uses what it says: of the grants sent before it came to that, none any more.
            peer.promises = [promise for promise in peer.promises if promise.sequence >= state.granted]
        elif state.epoch and state.lease_left_s:
            self._predecessor = True
            until = now + min(state.lease_left_s, self._parameters.lease_s) + self._grace_s
            peer.promises = [promise for promise in peer.promises if promise.sequence]
            peer.promises.append(_Promise(sequence=0, rates=rates, until=until))
        if state.reason != "ack":
            peer.owed = True
        if before is None or _wanted(before) != _wanted(state):
            self._stale = True
            detail = f"{state.reason} from {state.flow}: {state.demand_bytes} B to send"
            down = [path.name for path in state.paths if not path.up]
            self._events.append(Notice(kind="b4-heard", detail=f"{detail}; down: {', '.join(down) or 'none'}"))

    def _know_paths(self, peer: _Peer, paths: tuple[str, ...]) -> None:
        peer.paths = paths
        peer.safe = tuple(self._safe_bps(path, back=peer.back) for path in paths)
        peer.safe_back = tuple(self._safe_back_bps(path) for path in paths)

    def _safe_bps(self, path: str, *, back: bool) -> float:
        """Return the safe share of a path, as if all flows crossed it: so none has to be told when another comes."""
        least_bps = min(self._capacities[edge] for edge in edges_of(self._topology, path, back=back))
        return least_bps * self._parameters.safe_share / len(self._peers)

    def _safe_back_bps(self, path: str) -> float:
        """Return the far end's safe share."""
        return self._topology.path_rate_bps(path) * self._parameters.headroom / 2 / len(self._peers)

    # -- planning -----------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Compute what every agent ought to have."""
        wants: list[Want] = []
        floors: dict[str, float] = {}
        for number, peer in enumerate(self._peers):
            state = peer.state
            if state is None:  # it may be using its safe share
                up, backs = (False,) * len(peer.paths), [(False, self._demand_bps(peer))]
            else:
                up = tuple(path.up for path in state.paths)
                backs = [(False, self._demand_bps(peer)), (True, inf if state.back else None)]
            for far, wanted_bps in backs:
                wants.append(
                    Want(
                        key=(number, far),
                        paths=peer.paths,
                        up=up,
                        back=peer.back != far,
                        weight=peer.weight,
                        demand_bps=wanted_bps,
                        lowest=far,
                    )
                )
            for name, safe_bps in zip(peer.paths, peer.safe, strict=True):
                floors[name] = max(floors.get(name, 0.0), safe_bps)
        rates = share_out(self._topology, wants, headroom=self._parameters.headroom, floor_bps=floors)
        for number, peer in enumerate(self._peers):
            if peer.state is not None:
                forward, back = rates[number, False], rates[number, True]
                target = tuple(zip(forward, back, strict=True))
                peer.target = target

    # -- granting -----------------------------------------------------------------------------------------------------

    def _grant(self, number: int, peer: _Peer, now: float, out: list[Datagram]) -> None:
        """Send what can be granted now, where that is news or the agent waits for an answer."""
        latest = peer.promises[-1].rates if peer.promises else tuple((safe_bps, 0.0) for safe_bps in peer.safe)
        places = zip(peer.paths, peer.held(now), latest, peer.target, strict=True)
        rates = tuple(
            (
                self._next_bps(path, held[0], last[0], target[0], back=peer.back, now=now),
                self._next_bps(path, held[1], last[1], target[1], back=not peer.back, now=now),
            )
            for path, held, last, target in places
        )
        # An agent that has let its grant expire is left alone: it will ask when it wants another.
        if peer.owed or (rates != latest and peer.promises):
            peer.owed = False
            self._send(number, peer, rates, now, out)

    def _next_bps(
        self, path: str, held_bps: float, last_bps: float, target_bps: float, *, back: bool, now: float
    ) -> float:
        """Return the rate to grant now: the target, or as much of it as fits beside all that others may be using.

        Where that makes next to no difference it is the rate granted last.
        """
        edges = edges_of(self._topology, path, back=back)
        slack_bps = SLACK * min(self._capacities[edge] for edge in edges)
        if abs(target_bps - last_bps) <= slack_bps:
            return last_bps
        if target_bps <= held_bps:
            return target_bps
        room_bps = min(self._capacities[edge] * (1 + TOLERANCE) - self._load(edge, now) for edge in edges)
        next_bps = min(target_bps, held_bps + max(0.0, room_bps))
        return next_bps if next_bps - last_bps > slack_bps else last_bps

    def _load(self, edge: EdgeKey, now: float) -> float:
        """Return what all agents together may be sending across an edge."""
        load = 0.0
        for peer in self._peers:
            for path, (forward, back) in zip(peer.paths, peer.held(now), strict=True):
                if edge in edges_of(self._topology, path, back=peer.back):
                    load += forward
                if edge in edges_of(self._topology, path, back=not peer.back):
                    load += back
        return load

    def _send(
        self, number: int, peer: _Peer, rates: tuple[tuple[float, float], ...], now: float, out: list[Datagram]
    ) -> None:
        state = peer.state
        if state is None:
            return
        parameters = self._parameters
        peer.sequence += 1
        until = now + parameters.lease_s + self._grace_s
        peer.promises.append(_Promise(sequence=peer.sequence, rates=rates, until=until))
        grant = Grant(
            epoch=self._epoch,
            sequence=peer.sequence,
            instance=state.instance,
            heard=state.sequence,
            lease_s=parameters.lease_s,
            shares=tuple(
                Share(
                    forward_bps=forward,
                    back_bps=back + safe_back,
                    safe_bps=safe,
                    safe_back_bps=safe_back,
                    overhead_bytes=self._overhead_bytes(path),
                )
                for path, (forward, back), safe, safe_back in zip(
                    peer.paths, rates, peer.safe, peer.safe_back, strict=True
                )
            ),
        )
        out.append(Datagram(number, grant, wire_bytes(grant), now))

    def _demand_bps(self, peer: _Peer) -> float | None:
        """Return the rate that a burst needs, headers and framing included; None between bursts."""
        state = peer.state
        if state is None or not state.demand_bytes:
            return None
        if not state.deadline_s:
            return inf
        mtu_bytes = min(self._topology.path_mtu_bytes(path) for path in peer.paths)
        wire_bytes = mtu_bytes + max(self._overhead_bytes(path) for path in peer.paths)
        return state.demand_bytes * 8 / state.deadline_s * wire_bytes / (mtu_bytes - DATA_OVERHEAD_BYTES)

    def _overhead_bytes(self, path: str) -> int:
        framing_bytes = max(link.framing_bytes for link in self._topology.path_links(path))
        return framing_bytes + self._topology.paths[path].overhead_bytes


def _paths_of(topology: Topology, flow: str) -> tuple[str, ...]:
    """Return the paths that a flow's name tells, or all where it does not."""
    names = tuple(flow.split("/", 2)[2].split("+")) if flow.count("/") >= 2 else ()
    return names if names and all(name in topology.paths for name in names) else tuple(topology.paths)


def _runs_back(topology: Topology, flow: str) -> bool:
    """Tell from a flow's name, job/source>destination/paths, whether it runs against its paths' direction."""
    source = flow.split("/")[1].partition(">")[0] if flow.count("/") else ""
    starts = {path.sites[0] for path in topology.paths.values()}
    ends = {path.sites[-1] for path in topology.paths.values()}
    return source in ends and source not in starts


def _longest_way_s(topology: Topology, site: str) -> float:
    """Return the longest propagation delay from a site, the first where empty, to one that links lead to."""
    here = site or topology.sites[0].name
    delays_s = [topology.least_delay_s(here, each.name) for each in topology.sites]
    return max(delay_s for delay_s in delays_s if delay_s < INFINITY)


def _wanted(state: AgentState) -> tuple[object, ...]:
    """Return what a plan depends on."""
    return bool(state.demand_bytes), state.deadline_s, state.back, tuple((path.name, path.up) for path in state.paths)


def make_controller(context: ServiceContext) -> Sequence[ServicePlacement]:
    """Place a controller, unless rates are fixed. Raises ValueError for a site that the topology does not have."""
    parameters = context.parameters
    if not isinstance(parameters, ControlledParameters):
        raise TypeError("the controller is made with ControlledParameters")
    if parameters.rate_bps is not None:
        return ()
    site = parameters.site or context.topology.sites[0].name
    if all(site != each.name for each in context.topology.sites):
        raise ValueError(f"site: {site!r} is not one of the topology")
    machine = Controller(context.topology, context.flows, context.rng, parameters)
    return (ServicePlacement(name="b4-controller", site=site, machine=machine),)
