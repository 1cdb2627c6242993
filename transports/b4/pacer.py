"""A pacer for programs that carry the data themselves: the kernel's TCP at the rates of a controller."""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.b4.agent import CONTROLLER, Agent
from bicoastal.transports.base import Datagram, Pacer
from bicoastal.transports.events import Connected, Event
from bicoastal.wan.units import INFINITY


class AgentPacer(Pacer):
    """Runs the agent of a flow over one path. agent: None if the rate is fixed, at `rate_bps`.

    rejected: the number of datagrams that held no grant for this agent.
    """

    def __init__(self, agent: Agent | None, *, rate_bps: float) -> None:
        self._agent = agent
        self._rate_bps = rate_bps
        self._begun = False
        self._connected = False
        self._events: deque[Event] = deque()
        self.rejected = 0

    @property
    def rate_bps(self) -> float:
        """See `Pacer`."""
        return self._rate_bps if self._agent is None else self._agent.shares[0].forward_bps

    def announce(self, unsent_bytes: int, now: float) -> None:
        """See `Pacer`."""
        if self._agent is not None and (unsent_bytes or self._agent.demanding):
            self._agent.demand(unsent_bytes, now)

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Process a message of the controller."""
        agent = self._agent
        if agent is None or datagram.path_id != CONTROLLER or not agent.receive(datagram.payload, now):
            self.rejected += 1
            return
        self._pass_on(agent)

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        """Return the message of the agent that is due, if there is one."""
        agent = self._agent
        if not self._begun:
            self._begun = True
            if agent is None:
                self._connect()
            else:
                agent.begin(now)
        return () if agent is None else agent.messages(now)

    def get_timer(self) -> float | None:
        """Return when the agent's next timer expires; None if it has none."""
        at = INFINITY if self._agent is None else self._agent.timer()
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Handle the agent's expired timers: it repeats its message, or falls back to the safe rate."""
        if self._agent is not None:
            self._agent.on_timer(now)
            self._pass_on(self._agent)

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def _pass_on(self, agent: Agent) -> None:
        """Pass on the notices of the agent, among them each change of the rate."""
        self._events += agent.notices
        agent.notices.clear()
        if agent.ready:
            self._connect()

    def _connect(self) -> None:
        if not self._connected:
            self._connected = True
            self._events.append(Connected())
