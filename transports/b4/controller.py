"""The controller: it receives the state of every flow's agent and answers with rates.

It is a sans-IO service. Peers are numbered in the order of the flows; a peer sends messages for its own flow only.

No capacity is promised twice. The rate that an agent may be using is the largest of three: its safe share, and every
grant that it has not replaced and that has not expired. A grant grows only into what all agents leave of every link.
Decreases are therefore sent first; increases follow when the decreases are acknowledged or have expired.

After a restart the controller does not know the grants that are still in force. The agents report them. It grants
nothing until every agent has reported, or until every earlier grant must have expired.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bicoastal.transports.b4.messages import AgentState, Grant, MalformedMessageError, Share, decode, wire_bytes
from bicoastal.transports.b4.parameters import ControlledParameters
from bicoastal.transports.b4.plan import EdgeKey, Want, capacity_bps, edges_of, share_out
from bicoastal.transports.base import Datagram, FlowId, Machine, Rng, ServiceContext, ServicePlacement
from bicoastal.transports.events import Event, Notice
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES
from bicoastal.wan.checks import FieldError
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY

TOLERANCE = 1e-9  # of a capacity: sums of rates that fill a link exactly may exceed it by rounding
SLACK = 1e-3  # of a capacity: a smaller change is not worth a message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    """Rates that an agent may use until the time `until`: (forward, back) for each of its paths; see `_Peer`."""

    sequence: int
    rates: tuple[tuple[float, float], ...]
    until: float


@dataclass(slots=True)
class _Peer:
    """What is known of an agent and its flow.

    Rates are pairs for each path: the sender's rate, and the far end's rate beyond its safe share. The far end's safe
    share is a part of the headroom and is left out of all sums; half of the headroom stays free for acknowledgements.
    """

    flow: FlowId
    label: str
    weight: float
    back: tuple[bool, ...]  # for each path: the flow crosses it from its last site to its first
    safe: tuple[float, ...]
    safe_back: tuple[float, ...]
    state: AgentState | None = None
    promises: list[_Promise] = field(default_factory=list)
    sequence: int = 0
    answer_due: bool = False
    target: tuple[tuple[float, float], ...] = ()
    refused: bool = False

    def held(self, now: float) -> tuple[tuple[float, float], ...]:
        """Return the most that the agent may be sending on each path, under any grant that it may have."""
        most = [(safe_bps, 0.0) for safe_bps in self.safe]
        for promise in self.promises:
            if promise.until > now:
                most = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(most, promise.rates, strict=True)]
        return tuple(most)


class Controller(Machine):
    """Grants rates to the flows it was made for.

    rejected: how many messages were malformed, or were sent for another peer's flow.
    """

    def __init__(self, topology: Topology, flows: Sequence[FlowId], rng: Rng, parameters: ControlledParameters) -> None:
        self._topology = topology
        self._parameters = parameters
        self._grace_s = parameters.grace_s + _longest_way_s(topology, parameters.site)
        self._epoch = rng.getrandbits(63) + 1  # 0 stands for no grant
        self._capacities = capacity_bps(topology, parameters.headroom)
        weights = parameters.weight_of
        self._peers: list[_Peer] = []
        for flow in flows:
            back = tuple(topology.paths[path].sites[0] != flow.source for path in flow.paths)
            self._peers.append(
                _Peer(
                    flow=flow,
                    label=str(flow),
                    weight=weights.get(flow.owner, 1.0),
                    back=back,
                    safe=tuple(
                        self._safe_bps(path, len(flows), back=against)
                        for path, against in zip(flow.paths, back, strict=True)
                    ),
                    safe_back=tuple(self._safe_back_bps(path, len(flows)) for path in flow.paths),
                )
            )
        self._began_at = 0.0
        self._predecessor = False  # grants of an earlier controller may be in force, or on their way
        self._quiet_until: float | None = None  # None: no message has arrived yet
        self._stale = False  # the targets must be computed again
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
                raise MalformedMessageError("type: the controller takes messages of agents only")
            self._check(peer, state)
        except MalformedMessageError as error:
            self.rejected += 1
            if not peer.refused:
                peer.refused = True
                self._events.append(Notice(kind="b4-rejected", detail=f"from {peer.label}: {error}"))
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
        """Return when the next promise expires, or when the quiet time after the start ends."""
        if self._quiet_until is not None and self._is_quiet():
            return self._quiet_until
        at = min((promise.until for peer in self._peers for promise in peer.promises), default=INFINITY)
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Remove promises that have expired: their capacity is free again."""
        self._may_grant(now)
        for peer in self._peers:
            before = len(peer.promises)
            peer.promises = [promise for promise in peer.promises if promise.until > now]
            if before and not peer.promises:
                self._stale = True  # the agent has ended, or does not need its rates

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        if self._quiet_until is None:
            self._began_at = now
            self._quiet_until = now + self._parameters.lease_s + self._grace_s

    def _is_quiet(self) -> bool:
        return self._quiet_until is not None and self._quiet_until < INFINITY

    def _may_grant(self, now: float) -> bool:
        """Whether every grant that may still be in force is known."""
        if self._quiet_until is None:
            return False
        if self._quiet_until <= now or all(peer.state is not None for peer in self._peers):
            # The last grants of an earlier controller need one delay to arrive, and their acknowledgements another.
            known_at = self._began_at + 2 * self._grace_s if self._predecessor else now
            self._quiet_until = INFINITY if known_at <= now else min(self._quiet_until, known_at)
        return self._quiet_until == INFINITY

    def _check(self, peer: _Peer, state: AgentState) -> None:
        if state.flow != peer.label:
            raise MalformedMessageError(f"flow: the peer is {peer.label!r}, not {state.flow!r}")
        if tuple(path.name for path in state.paths) != peer.flow.paths:
            raise MalformedMessageError("paths: they are not those of the flow")

    def _take(self, peer: _Peer, state: AgentState, now: float) -> None:
        before = peer.state
        if before is not None and before.instance == state.instance and state.sequence <= before.sequence:
            return  # an older message, or a copy
        peer.state = state
        if before is None or before.instance != state.instance:
            peer.target = ()  # a new process; the promises to the one before it stay, since it may still send
        rates = tuple(
            (path.forward_bps, max(0.0, path.back_bps - safe_back))
            for path, safe_back in zip(state.paths, peer.safe_back, strict=True)
        )
        if state.epoch == self._epoch:
            # The agent uses the grant that it names, and none of the earlier ones any more.
            peer.promises = [promise for promise in peer.promises if promise.sequence >= state.granted]
        elif state.epoch and state.lease_left_s:
            self._predecessor = True
            until = now + min(state.lease_left_s, self._parameters.lease_s) + self._grace_s
            peer.promises = [promise for promise in peer.promises if promise.sequence]
            peer.promises.append(_Promise(sequence=0, rates=rates, until=until))
        if state.reason != "ack":
            peer.answer_due = True
        if before is None or _wanted(before) != _wanted(state):
            self._stale = True
            detail = f"{state.reason} from {peer.label}: {state.demand_bytes} B to send"
            down = [path.name for path in state.paths if not path.up]
            self._events.append(Notice(kind="b4-heard", detail=f"{detail}; down: {', '.join(down) or 'none'}"))

    def _safe_bps(self, path: str, flows: int, *, back: bool) -> float:
        """Return a flow's safe share of a path. It is made as if all flows used the path, so that it never changes."""
        least_bps = min(self._capacities[edge] for edge in edges_of(self._topology, path, back=back))
        return least_bps * self._parameters.safe_share / flows

    def _safe_back_bps(self, path: str, flows: int) -> float:
        """Return the far end's safe share."""
        return self._topology.path_rate_bps(path) * self._parameters.headroom / 2 / flows

    # -- planning -----------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Compute the target of every agent."""
        wants: list[Want] = []
        floors: dict[str, float] = {}
        for number, peer in enumerate(self._peers):
            state = peer.state
            if state is None:  # the agent may be using its safe share
                up, backs = (False,) * len(peer.back), [(False, self._demand_bps(peer))]
            else:
                up = tuple(path.up for path in state.paths)
                backs = [(False, self._demand_bps(peer)), (True, INFINITY if state.back else None)]
            for far, wanted_bps in backs:
                wants.append(
                    Want(
                        key=(number, far),
                        paths=peer.flow.paths,
                        up=up,
                        back=tuple(against != far for against in peer.back),
                        weight=peer.weight,
                        demand_bps=wanted_bps,
                        lowest=far,
                    )
                )
            for name, safe_bps in zip(peer.flow.paths, peer.safe, strict=True):
                floors[name] = max(floors.get(name, 0.0), safe_bps)
        rates = share_out(
            self._topology,
            wants,
            headroom=self._parameters.headroom,
            floor_bps=floors,
            quantum=self._parameters.quantum,
            rounds=self._parameters.rounds,
            tunnels=self._parameters.tunnels,
        )
        for number, peer in enumerate(self._peers):
            if peer.state is not None:
                forward, back = rates[number, False], rates[number, True]
                peer.target = tuple(zip(forward, back, strict=True))

    # -- granting -----------------------------------------------------------------------------------------------------

    def _grant(self, number: int, peer: _Peer, now: float, out: list[Datagram]) -> None:
        """Send a grant of what can be given now, if it is a change or the agent waits for an answer."""
        latest = peer.promises[-1].rates if peer.promises else tuple((safe_bps, 0.0) for safe_bps in peer.safe)
        places = zip(peer.flow.paths, peer.back, peer.held(now), latest, peer.target, strict=True)
        rates = tuple(
            (
                self._next_bps(path, held[0], last[0], target[0], back=back, now=now),
                self._next_bps(path, held[1], last[1], target[1], back=not back, now=now),
            )
            for path, back, held, last, target in places
        )
        # An agent whose grant has expired gets no new one unasked: it asks when it needs one.
        if peer.answer_due or (rates != latest and peer.promises):
            peer.answer_due = False
            self._send(number, peer, rates, now, out)

    def _next_bps(
        self, path: str, held_bps: float, last_bps: float, target_bps: float, *, back: bool, now: float
    ) -> float:
        """Return the rate to grant now: the target, or as much of it as the rates that others may use leave free.

        It is the rate granted last where the difference is at most `SLACK`.
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
        """Return the rate at which all agents together may be sending across an edge, bit/s."""
        load = 0.0
        for peer in self._peers:
            for path, against, (forward, back) in zip(peer.flow.paths, peer.back, peer.held(now), strict=True):
                if edge in edges_of(self._topology, path, back=against):
                    load += forward
                if edge in edges_of(self._topology, path, back=not against):
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
                    peer.flow.paths, rates, peer.safe, peer.safe_back, strict=True
                )
            ),
        )
        out.append(Datagram(number, grant, wire_bytes(grant), now))

    def _demand_bps(self, peer: _Peer) -> float | None:
        """Return the rate that a burst needs, bit/s with headers and framing; None between bursts."""
        state = peer.state
        if state is None or not state.demand_bytes:
            return None
        if not state.deadline_s:
            return INFINITY
        mtu_bytes = min(self._topology.path_mtu_bytes(path) for path in peer.flow.paths)
        wire_bytes = mtu_bytes + max(self._overhead_bytes(path) for path in peer.flow.paths)
        return state.demand_bytes * 8 / state.deadline_s * wire_bytes / (mtu_bytes - DATA_OVERHEAD_BYTES)

    def _overhead_bytes(self, path: str) -> int:
        framing_bytes = max(link.framing_bytes for link in self._topology.path_links(path))
        return framing_bytes + self._topology.paths[path].overhead_bytes


def _longest_way_s(topology: Topology, site: str) -> float:
    """Return the longest propagation delay, seconds, from a site (the first if empty) to a site that it can reach."""
    here = site or topology.sites[0].name
    delays_s = [topology.least_delay_s(here, each.name) for each in topology.sites]
    return max(delay_s for delay_s in delays_s if delay_s < INFINITY)


def _wanted(state: AgentState) -> tuple[object, ...]:
    """Return the parts of a state on which a plan depends."""
    return bool(state.demand_bytes), state.deadline_s, state.back, tuple((path.name, path.up) for path in state.paths)


def make_controller(context: ServiceContext) -> Sequence[ServicePlacement]:
    """Place a controller, unless rates are fixed. Raises FieldError for a site that the topology does not have."""
    parameters = context.parameters
    if not isinstance(parameters, ControlledParameters):
        raise TypeError("the controller is made with ControlledParameters")
    if parameters.rate_bps is not None:
        return ()
    site = parameters.site or context.topology.sites[0].name
    if all(site != each.name for each in context.topology.sites):
        raise FieldError("site", f"{site!r} is not one of the topology")
    machine = Controller(context.topology, context.flows, context.rng, parameters)
    return (ServicePlacement(name="b4-controller", site=site, machine=machine),)
