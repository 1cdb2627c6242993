"""Starts relays, tells them when iterations begin, and collects their reports."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.closing import Closing
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.ground.wiring import MIDDLE, relay_groups
from bicoastal.emulation.processes.channel import ChannelClosedError
from bicoastal.emulation.processes.wire_format import WireFormatError
from bicoastal.emulation.processes.worker_handle import WorkerProcess
from bicoastal.emulation.relay.frames import BurstRule
from bicoastal.emulation.relay.protocol import (
    ANSWERS,
    ORDERS,
    Answer,
    BeginIteration,
    Order,
    Ready,
    Refusal,
    RelayPath,
    RelayPlan,
    RelayReport,
    ReportRequest,
    Restart,
)

_TIME_LIMIT_S = 20.0


class RelayProcess(WorkerProcess[Order, Answer]):
    """One relay. Raises UnsupportedError when it cannot take the interfaces, RunFailedError when it does not start."""

    end_time_limit_s = _TIME_LIMIT_S

    def __init__(self, coasts: TwoCoasts, plan: RelayPlan) -> None:
        super().__init__(coasts, MIDDLE, "bicoastal.emulation.relay.program", orders=ORDERS, news=ANSWERS)
        try:
            self.send(plan)
        except BaseException:
            self.close()
            raise

    def await_readiness(self) -> None:
        """Return when the relay forwards frames."""
        match self._receive():
            case Ready():
                return
            case Refusal(reason=reason):
                raise UnsupportedError(reason)
            case _:
                raise RunFailedError("the relay reported before it was ready")

    def send(self, order: Order) -> None:
        """Send an order. Raises RunFailedError when the relay has ended."""
        try:
            self.channel.send(order)
        except ChannelClosedError as error:
            raise RunFailedError(f"the relay is gone: {error}") from error

    def receive_report(self) -> RelayReport:
        """Return its answer to a `ReportRequest`. Raises RunFailedError when there is none."""
        answer = self._receive()
        if isinstance(answer, RelayReport):
            return answer
        raise RunFailedError(answer.reason if isinstance(answer, Refusal) else "the relay started again by itself")

    def _receive(self) -> Answer:
        try:
            return self.channel.receive(_TIME_LIMIT_S)
        except TimeoutError:
            raise RunFailedError(f"the relay did not answer within {_TIME_LIMIT_S:g} s") from None
        except ChannelClosedError:
            raise RunFailedError("the relay has died") from None
        except WireFormatError as error:
            raise RunFailedError(f"the relay's answer cannot be decoded: {error}") from error


class Relays(Closing):
    """All relays between two coasts. A context manager; frames pass from its creation until it is closed.

    There is at most one relay for each processor that the coasts reserve for relays.
    bursts, sample_interval_s, calm, real_time: as in `RelayPlan`. epoch_s: when the run begins, on CLOCK_MONOTONIC.
    Raises UnsupportedError when they cannot take the interfaces, RunFailedError when one does not start.
    """

    def __init__(
        self,
        coasts: TwoCoasts,
        *,
        seed: int,
        epoch_s: float | None = None,
        bursts: Mapping[str, BurstRule] | None = None,
        sample_interval_s: float | None = None,
        calm: bool = False,
        real_time: bool = True,
    ) -> None:
        topology = coasts.wiring.topology
        processors = coasts.wiring.processors.relays
        epoch_s = time.monotonic() if epoch_s is None else epoch_s
        with ExitStack() as stack:
            self._relays: list[RelayProcess] = []
            for number, names in enumerate(relay_groups(topology, max(1, len(processors)))):
                plan = RelayPlan(
                    topology=topology,
                    paths=tuple(_relay_path(coasts, name) for name in names),
                    seed=seed,
                    epoch_s=epoch_s,
                    bursts={name: rule for name, rule in (bursts or {}).items() if name in names},
                    sample_interval_s=sample_interval_s,
                    calm=calm,
                    processor=processors[number] if processors else None,
                    real_time=real_time,
                )
                relay = RelayProcess(coasts, plan)
                stack.callback(relay.close)
                self._relays.append(relay)
            for relay in self._relays:
                relay.await_readiness()
            self._stack = stack.pop_all()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that were started for the relays."""
        return tuple(relay.pid for relay in self._relays)

    def restart(
        self,
        *,
        seed: int,
        epoch_s: float,
        bursts: Mapping[str, BurstRule] | None = None,
        sample_interval_s: float | None = None,
        calm: bool = False,
    ) -> None:
        """Begin again with fresh links, streams and counts (after a probe, before the run)."""
        order = Restart(
            seed=seed, epoch_s=epoch_s, bursts=dict(bursts or {}), sample_interval_s=sample_interval_s, calm=calm
        )
        self._each(lambda relay: relay.send(order))

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Announce an iteration of the first job, in seconds from the epoch; link events may refer to it."""
        order = BeginIteration(iteration=iteration, begins_s=begins_s)
        self._each(lambda relay: relay.send(order))

    def report(self, *, stop: bool = False) -> RelayReport:
        """Return what the relays did since they began; `stop` ends them. Raises RunFailedError when one has died."""
        self._each(lambda relay: relay.send(ReportRequest(stop=stop)))
        reports = [relay.receive_report() for relay in self._relays]
        if stop:
            self.close()
        return RelayReport.merged(reports)

    def _each(self, act: Callable[[RelayProcess], None]) -> None:
        for relay in self._relays:
            act(relay)

    def close(self) -> None:
        """End the relays."""
        self._stack.close()


def _relay_path(coasts: TwoCoasts, name: str) -> RelayPath:
    left, right = coasts.wiring.ports_of(name)
    return RelayPath(name=name, left=left.middle_device, right=right.middle_device, mtu_bytes=left.mtu_bytes)
