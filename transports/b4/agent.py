"""The client's side of the control protocol: it asks for rates, and uses a grant until the grant expires.

An agent without answers keeps its rates until the grant expires. Then it uses its safe share, which the controller
keeps free for it. So no capacity is granted twice, whatever the controller does meanwhile.
"""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.b4.messages import (
    AgentState,
    Grant,
    MalformedMessageError,
    PathReport,
    Share,
    decode,
    wire_bytes,
)
from bicoastal.transports.base import Datagram, Encodable, Rng
from bicoastal.transports.events import Notice
from bicoastal.wan.units import INFINITY

CONTROLLER = -1  # the path to the first service
FIRST_RETRY_S, LONGEST_RETRY_S = 0.25, 4.0
REFRESH_SHARE = 1 / 3  # of the lease: two refreshes may be lost before it ends


class Agent:
    """The agent of a flow: it asks the controller for rates.

    path_names: in the order of the endpoint's paths. deadline_s: of a burst, counted from its announcement; None: as
    soon as possible. initial_bps: per path, until a controller has answered. patience_s: how long the connection waits
    for its first grant. idle_hold_s: how long after the last burst the agent still asks for rates.

    shares: the rates that hold now. changed: whether they are new to the endpoint. ready: whether there is a grant, or
    `patience_s` is over.
    """

    def __init__(
        self,
        *,
        flow: str,
        path_names: Sequence[str],
        deadline_s: float | None,
        initial_bps: float,
        patience_s: float,
        idle_hold_s: float,
        rng: Rng,
    ) -> None:
        self._flow = flow
        self._names = tuple(path_names)
        self._up = [True] * len(self._names)
        self._deadline_s = deadline_s
        self._patience_s = patience_s
        self._idle_hold_s = idle_hold_s
        self._instance = rng.getrandbits(64)
        self._sequence = 0
        self._asked = 0  # the last own message that needs an answer
        self._reason = ""  # why a message is to be sent; empty for none
        self._sent_at = 0.0
        self._retry_at = INFINITY
        self._retries = 0
        self._epoch = self._granted = 0
        self._retired: deque[int] = deque(maxlen=16)  # earlier epochs
        self._lease_s = 0.0
        self._expires_at = INFINITY
        self._refresh_at = INFINITY
        self._patience_at = INFINITY
        self._active_at = 0.0  # when there was last data to send or to receive
        self._received_at: float | None = None
        self._demand_bytes = 0
        self._fallen_back = False
        initial = Share(
            forward_bps=initial_bps,
            back_bps=initial_bps,
            safe_bps=initial_bps,
            safe_back_bps=initial_bps,
            overhead_bytes=0,
        )
        self.shares: tuple[Share, ...] = (initial,) * len(self._names)
        self.changed = False
        self.ready = False
        self.notices: deque[Notice] = deque()

    # -- calls of the endpoint ----------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start: the flow begins."""
        self._active_at = now
        self._patience_at = now + self._patience_s
        self._request("announce")

    @property
    def demanding(self) -> bool:
        """Whether a burst has been announced and is not over."""
        return self._demand_bytes > 0

    def demand(self, demand_bytes: int, now: float) -> None:
        """Note that a burst begins or grows and has `demand_bytes` to send; 0: the burst is over."""
        self._demand_bytes = demand_bytes
        self._active_at = now
        self._request("announce" if demand_bytes else "done")

    def path(self, path_id: int, *, up: bool, now: float) -> None:
        """Note that a path has failed, or works again."""
        self._up[path_id] = up
        self._active_at = now
        self._request("link")

    def receiving(self, now: float) -> None:
        """Note that the far end sends data."""
        fresh = not self._is_receiving(now)
        self._received_at = self._active_at = now
        if fresh:
            self._request("announce")

    def _is_receiving(self, now: float) -> bool:
        return self._received_at is not None and now - self._received_at <= max(self._lease_s, 1.0) * REFRESH_SHARE

    # -- messages of the controller -----------------------------------------------------------------------------------

    def receive(self, payload: bytes | Encodable, now: float) -> bool:
        """Process a message. Return whether it is a valid grant for this agent; an old grant changes nothing."""
        try:
            grant = decode(payload)
        except MalformedMessageError:
            return False
        if not isinstance(grant, Grant) or grant.instance != self._instance or len(grant.shares) != len(self._names):
            return False
        if grant.heard > self._sequence or not grant.lease_s:
            return False
        if grant.epoch == self._epoch and grant.sequence <= self._granted:
            return True  # an old grant, late or duplicated in the network
        if grant.epoch in self._retired:
            return True  # from a controller that was replaced by another
        waited_s = now - self._sent_at
        if grant.epoch != self._epoch:
            self._retired.append(self._epoch)
        self._epoch, self._granted = grant.epoch, grant.sequence
        self._lease_s = grant.lease_s
        self._expires_at = now + grant.lease_s
        self._refresh_at = now + grant.lease_s * REFRESH_SHARE
        self._patience_at = INFINITY
        if grant.heard >= self._asked:
            self._retry_at, self._retries = INFINITY, 0
        self.ready = True
        if self.shares != grant.shares or self._fallen_back:
            rates = ", ".join(
                f"{name} {share.forward_bps / 1e9:.6g}" for name, share in zip(self._names, grant.shares, strict=True)
            )
            detail = f"grant {grant.sequence}: {rates} Gbit/s, {waited_s:.6f} s after message {self._asked}"
            self.notices.append(Notice(kind="b4-rate", detail=detail))
            self.shares = grant.shares
            self.changed = True
        self._fallen_back = False
        if not self._reason:
            self._reason = "ack"
        return True

    # -- time ---------------------------------------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when the next action is due, or infinity."""
        return min(self._retry_at, self._refresh_at, self._expires_at, self._patience_at)

    def on_timer(self, now: float) -> None:
        """Handle the expired timers: repeat a message, renew the grant, or fall back to the safe share."""
        if self._expires_at <= now:
            self._expires_at = self._refresh_at = INFINITY
            released = now - self._active_at > self._idle_hold_s
            self._fall_back("the flow is idle" if released else "the grant has expired", released=released)
        if self._patience_at <= now:
            self._patience_at = INFINITY
            self.ready = True
            self._fall_back("the controller has not answered")
        if self._refresh_at <= now:
            self._refresh_at = INFINITY
            if now - self._active_at <= self._idle_hold_s:
                self._request("refresh")
        if self._retry_at <= now:
            self._retry_at = INFINITY
            if self._demand_bytes or now - self._active_at <= self._idle_hold_s:
                self._retries += 1
                self._request("announce" if self._demand_bytes else "refresh")

    def _fall_back(self, why: str, *, released: bool = False) -> None:
        if not self._fallen_back:
            self._fallen_back = True
            safe_bps = sum(share.safe_bps for share in self.shares)
            kind = "b4-released" if released else "b4-fallback"
            self.notices.append(Notice(kind=kind, detail=f"{why}: {safe_bps / 1e9:.6g} Gbit/s"))
        self.shares = tuple(
            Share(
                forward_bps=share.safe_bps,
                back_bps=share.safe_back_bps,
                safe_bps=share.safe_bps,
                safe_back_bps=share.safe_back_bps,
                overhead_bytes=share.overhead_bytes,
            )
            for share in self.shares
        )
        self.changed = True

    def _request(self, reason: str) -> None:
        self._reason = reason

    def messages(self, now: float) -> list[Datagram]:
        """Return the message that is due, if there is one, as a list."""
        reason = self._reason
        if not reason:
            return []
        self._reason = ""
        self._sequence += 1
        if reason != "ack":
            self._asked, self._sent_at = self._sequence, now
            self._retry_at = now + min(FIRST_RETRY_S * 2.0 ** min(self._retries, 8), LONGEST_RETRY_S)
        state = AgentState(
            flow=self._flow,
            instance=self._instance,
            sequence=self._sequence,
            reason=reason,
            demand_bytes=self._demand_bytes,
            deadline_s=self._deadline_s if self._demand_bytes else None,
            back=self._is_receiving(now),
            epoch=self._epoch,
            granted=self._granted,
            lease_left_s=max(0.0, self._expires_at - now) if self._expires_at < INFINITY else 0.0,
            paths=tuple(
                PathReport(name=name, up=up, forward_bps=share.forward_bps, back_bps=share.back_bps)
                for name, up, share in zip(self._names, self._up, self.shares, strict=True)
            ),
        )
        return [Datagram(CONTROLLER, state, wire_bytes(state), now)]
