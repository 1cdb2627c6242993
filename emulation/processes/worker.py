"""The main function of a run's processes: `python -m bicoastal.emulation.… FD`, with one end of a socket pair.

A process receives its plan, executes orders, and reports an error in one sentence. It ends when it is ordered to, with
SIGTERM, and when the other end of the socket is closed.
"""

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.driver import SpinningError
from bicoastal.emulation.processes.channel import Channel, ChannelClosedError
from bicoastal.emulation.processes.coordination import Broken, Refused
from bicoastal.emulation.processes.wire_format import WireFormat
from bicoastal.transports.registry import UnknownTransportError

_PR_SET_TIMERSLACK = 29


class Worker(Protocol):
    """What a process runs when it has its plan."""

    def run(self) -> None:
        """Execute orders until the last one. Raises ChannelClosedError when the coordinator has ended."""

    def close(self) -> None:
        """Release every resource."""


class Plan(Protocol):
    """What a worker is made from. processors: those to run on, empty for any."""

    @property
    def processors(self) -> tuple[int, ...]:
        """The processors to run on, empty for any."""


PlanT = TypeVar("PlanT", bound=Plan)


def work(
    sends: WireFormat[Any],
    receives: WireFormat[Any],
    plan_type: type[PlanT],
    make: Callable[[PlanT, Channel[Any, Any]], Worker],
    *,
    place: Callable[[PlanT], str],
    priority: int,
) -> int:
    """Serve the coordinator at the other end of the socket; return the exit status.

    place: the place of a plan's worker, for messages. priority: in real time, where the machine allows it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the coordinator too, which then ends this process
    signal.signal(signal.SIGTERM, _terminate)
    CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # nanoseconds; the default makes every wait up to 50 µs longer
    channel: Channel[Any, Any] = Channel(socket.socket(fileno=int(sys.argv[1])), sends=sends, receives=receives)
    try:
        plan = channel.receive()
        if not isinstance(plan, plan_type):
            raise ValueError("the first order is not a plan")
        if plan.processors:
            os.sched_setaffinity(0, plan.processors)
        with suppress(PermissionError):  # an ordinary user does not get it
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
        try:
            worker = make(plan, channel)
        except (UnsupportedError, UnknownTransportError, ValueError) as error:
            channel.send(Refused(reason=str(error)))
            return 1
        except OSError as error:
            channel.send(Refused(reason=f"the sockets of {place(plan)} cannot be made: {error.strerror or error}"))
            return 1
        except Exception as error:  # a third party's transport may raise anything, which the coordinator reports
            channel.send(Broken(reason=_described(error), transport=False))
            return 1
        try:
            worker.run()
        except SpinningError as error:
            channel.send(Broken(reason=str(error), transport=False))  # the machine would not stop by itself
            return 1
        except ChannelClosedError:
            raise
        except Exception as error:  # as above
            channel.send(Broken(reason=_described(error), transport=False))
            return 1
        finally:
            worker.close()
    except ChannelClosedError:
        return 1  # there is no coordinator to report to
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends now, and a signal must not interrupt that
    return 0


def _described(error: Exception) -> str:
    """Return the error and its place in the code, without the traceback."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # ignore further ones: the process is ending
    raise SystemExit(128 + number)
