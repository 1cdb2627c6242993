"""A relay as whoever runs an experiment sees it: start it, tell it when iterations begin, ask what it did."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from emulation.base import RunFailedError, UnsupportedError
from emulation.frames import BurstRule
from emulation.namespaces import TwoCoasts
from emulation.relay_protocol import BeginIteration, RelayPath, RelayPlan, RelayReport, Report, Restart
from emulation.wiring import MIDDLE

_TIME_LIMIT_S = 20.0


class RelayProcess:
    """The relay of all paths of two coasts. A context manager; frames pass from when it is made until it is closed.

    bursts, sample_interval_s, real_time: as in `RelayPlan`. epoch_s: when the run begins, on CLOCK_MONOTONIC.
    Raises UnsupportedError when it cannot take the interfaces, RunFailedError when it does not start.
    """

    def __init__(
        self,
        coasts: TwoCoasts,
        *,
        seed: int,
        epoch_s: float | None = None,
        bursts: Mapping[str, BurstRule] | None = None,
        sample_interval_s: float | None = None,
        real_time: bool = True,
    ) -> None:
        topology = coasts.wiring.topology
        paths = []
        for name in topology.paths:
            left, right = coasts.wiring.ports_of(name)
            paths.append(
                RelayPath(
                    name=name,
                    left=left.middle_device,
                    right=right.middle_device,
                    mtu_bytes=topology.path_mtu_bytes(name),
                )
            )
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                coasts.enter(MIDDLE, [sys.executable, "-m", "emulation.relay", str(theirs.fileno())]),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._control = Connection(ours.detach())
        try:
            coasts.record(self._process.pid)
            self._send(
                RelayPlan(
                    topology=topology,
                    paths=tuple(paths),
                    seed=seed,
                    epoch_s=time.monotonic() if epoch_s is None else epoch_s,
                    bursts=dict(bursts or {}),
                    sample_interval_s=sample_interval_s,
                    real_time=real_time,
                )
            )
            refusal = self._receive()
        except RunFailedError:
            self.close()
            raise
        if refusal is not None:
            self.close()
            raise UnsupportedError(str(refusal))

    def restart(
        self,
        *,
        seed: int,
        epoch_s: float,
        bursts: Mapping[str, BurstRule] | None = None,
        sample_interval_s: float | None = None,
    ) -> None:
        """Begin again: fresh links, streams and counts (after a probe, before the run)."""
        self._send(Restart(seed=seed, epoch_s=epoch_s, bursts=dict(bursts or {}), sample_interval_s=sample_interval_s))

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Announce an iteration of the first job, seconds from the epoch: what links do then is anchored to it."""
        self._send(BeginIteration(iteration=iteration, begins_s=begins_s))

    def report(self) -> RelayReport:
        """Return what the relay did since it began. Raises RunFailedError when it is gone."""
        return self._ask(Report())

    def stop(self) -> RelayReport:
        """Return the report, and end the relay."""
        report = self._ask(Report(stop=True))
        self.close()
        return report

    def _ask(self, order: Report) -> RelayReport:
        self._send(order)
        answer = self._receive()
        if not isinstance(answer, RelayReport):
            raise RunFailedError(str(answer))
        return answer

    def _send(self, order: object) -> None:
        try:
            self._control.send(order)
        except OSError as error:
            raise RunFailedError(f"the relay is gone: {error.strerror}") from error

    def _receive(self) -> object:
        if not self._control.poll(_TIME_LIMIT_S):
            raise RunFailedError(f"the relay did not answer within {_TIME_LIMIT_S:g} s")
        try:
            return self._control.recv()
        except (EOFError, ConnectionError):
            raise RunFailedError("the relay has died") from None

    def close(self) -> None:
        """End the relay, whatever it is doing."""
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(_TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
