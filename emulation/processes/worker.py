"""How a process of a run begins and ends: `python -m emulation.… FD`, with one end of a socket pair.

It takes its plan, does as it is ordered, tells what went wrong in one sentence, and ends when told to, with SIGTERM,
and when nobody is left at the other end of the socket.
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
    """What a process does once it has its plan."""

    def run(self) -> None:
        """Obey until told to finish. Raises ChannelClosedError when the coordinator is gone."""

    def close(self) -> None:
        """Give everything back."""


class Plan(Protocol):
    """What it is made from. processors: where to run, empty for anywhere."""

    @property
    def processors(self) -> tuple[int, ...]:
        """Where to run, empty for anywhere."""


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

    place: where a plan's worker is, for sentences. priority: of real time, where the machine allows it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, who then ends us
    signal.signal(signal.SIGTERM, _terminate)
    CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # nanoseconds; else waiting takes 50 µs longer than asked
    channel: Channel[Any, Any] = Channel(socket.socket(fileno=int(sys.argv[1])), sends=sends, receives=receives)
    try:
        plan = channel.receive()
        if not isinstance(plan, plan_type):
            raise ValueError("the first order is not a plan")
        if plan.processors:
            os.sched_setaffinity(0, plan.processors)
        with suppress(PermissionError):  # an ordinary user does without
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
        try:
            worker = make(plan, channel)
        except (UnsupportedError, UnknownTransportError, ValueError) as error:
            channel.send(Refused(reason=str(error)))
            return 1
        except OSError as error:
            channel.send(Refused(reason=f"the sockets of {place(plan)} cannot be made: {error.strerror or error}"))
            return 1
        except Exception as error:  # a third party's transport may raise anything; the coordinator is to know what
            channel.send(Broken(reason=_told(error), transport=False))
            return 1
        try:
            worker.run()
        except SpinningError as error:
            channel.send(Broken(reason=str(error), transport=False))  # the machine would go on spinning
            return 1
        except ChannelClosedError:
            raise
        except Exception as error:  # as above
            channel.send(Broken(reason=_told(error), transport=False))
            return 1
        finally:
            worker.close()
    except ChannelClosedError:
        return 1  # nobody is left to tell
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends by itself, and nothing may come between
    return 0


def _told(error: Exception) -> str:
    """Return what went wrong and where, without the traceback that the coordinator has no use for."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is the end
    raise SystemExit(128 + number)
