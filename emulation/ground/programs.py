"""Any programs on the coasts, side by side: started together, fed with our signals, ended together.

Their output comes line by line, each with the name of its program before it, unless a program has the terminal.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import IO, Literal, Self

from bicoastal.emulation.base import RunFailedError
from bicoastal.emulation.ground.namespaces import TwoCoasts

Stream = Literal["stdout", "stderr"]
Write = Callable[[Stream, bytes], None]
PATIENCE_S = 10.0
_LONGEST_LINE = 1 << 16
_LOOK_AGAIN_MS = 30.0
_LISTENING = {"0A", "07"}  # TCP_LISTEN, and what an unconnected UDP socket is in: include/net/tcp_states.h of Linux
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to run at a site. name: goes before each line. terminal: it has our standard streams to itself."""

    name: str
    site: str
    argv: tuple[str, ...]
    terminal: bool = False


class LabelledOutput:
    """Carries programs' output on, line by line, named. A context manager, which ends when the streams have.

    width: of the longest name. write: takes lines, ended, one at a time; what it raises ends the programs, and is
    raised here at the end.
    """

    def __init__(self, write: Write, *, width: int) -> None:
        self._write = write
        self._width = width
        self._one_at_a_time = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._failed: Callable[[], None] = lambda: None
        self.failure: Exception | None = None

    def on_failure(self, act: Callable[[], None]) -> None:
        """Call `act`, from another thread, when lines cannot be written any more."""
        self._failed = act

    def carry(self, name: str, stream: Stream, source: IO[bytes]) -> None:
        """Carry on what comes from `source` until its end, and close it."""
        thread = threading.Thread(target=self._carry, args=(name, stream, source), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _carry(self, name: str, stream: Stream, source: IO[bytes]) -> None:
        label = f"{name:{self._width}} | ".encode()
        with source:
            while line := source.readline(_LONGEST_LINE):
                with self._one_at_a_time:
                    if self.failure is not None:
                        continue  # the programs are being ended; until they have, nothing may block them
                    try:
                        self._write(stream, label + line.removesuffix(b"\n") + b"\n")
                    except Exception as error:
                        self.failure = error  # raised by __exit__
                        self._failed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.join()
        if self.failure is not None and error is None:
            raise self.failure


@dataclass(slots=True)
class _Running:
    program: Program
    process: subprocess.Popen[bytes]
    asked_to_stop: bool = False


@dataclass(slots=True)
class _Ends:
    """How the programs ended that did so by themselves, or by a signal of ours, in their order."""

    statuses: list[int] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @property
    def exit_code(self) -> int:
        """The first that is not 0; of a program that died of signal n it is 128 + n, as a shell says it."""
        for status in self.statuses:
            if status:
                return status if status > 0 else 128 - status
        return 0


def run_programs(
    coasts: TwoCoasts,
    programs: Sequence[Program],
    output: LabelledOutput,
    *,
    until: str = "both",
    first: str | None = None,
    depends_on: Sequence[int] = (),
    patience_s: float = PATIENCE_S,
) -> int:
    """Run programs until they have ended; return the exit code of the first that failed, or 0.

    until: "both" for all of them, "either" for any, or a program's name: those that still run then are ended. They are
    too when one fails, when the output cannot be written, and when a process of `depends_on` ends. They get SIGTERM,
    and SIGKILL after `patience_s`. How they take that does not count.
    first: the name of a program that the others are started after, once it listens on a TCP or UDP port or has ended.
    Signals of ours go on to every program; one that asks to end is a request to all, and the second one ends them. A
    program that has the terminal gets the keyboard's, and we do not. To be called from the main thread.
    Raises RunFailedError when a process of `depends_on` has ended, and nobody had asked for an end.
    """
    leading = [program for program in programs if first in (None, program.name)]
    following = [program for program in programs if program not in leading]
    return _Run(coasts, leading, following, output, until=until, patience_s=patience_s).to_the_end(depends_on)


class _Run:
    def __init__(
        self,
        coasts: TwoCoasts,
        leading: Sequence[Program],
        following: Sequence[Program],
        output: LabelledOutput,
        *,
        until: str,
        patience_s: float,
    ) -> None:
        self._coasts = coasts
        self._leading = leading
        self._following = following
        self._output = output
        self._until = until
        self._patience_s = patience_s
        self._watched = select.poll()
        self._running: dict[int, _Running] = {}
        self._ends = _Ends()
        self._signals: list[int] = []
        self._interruptions = 0
        self._give_up_s: float | None = None

    def to_the_end(self, depends_on: Sequence[int]) -> int:
        broken = False
        with ExitStack() as stack:
            woken, wake = os.pipe()
            stack.callback(os.close, woken)
            stack.callback(os.close, wake)
            stack.enter_context(self._passing_signals_on(wake))
            self._output.on_failure(lambda: _tell(wake))
            stack.callback(self._output.on_failure, lambda: None)
            foundations = [os.pidfd_open(pid) for pid in depends_on]
            for descriptor in foundations:
                stack.callback(os.close, descriptor)
            stack.callback(self._kill)
            watched = self._watched
            for descriptor in (woken, *foundations):
                watched.register(descriptor, select.POLLIN)
            self._start(self._leading)
            while self._running or self._following:
                for descriptor, _ in watched.poll(self._time_left_ms()):
                    if descriptor == woken:
                        os.read(woken, 512)
                    elif descriptor in foundations:
                        watched.unregister(descriptor)
                        broken = True
                    else:
                        self._bury(descriptor)
                self._pass_on()
                if broken or self._output.failure is not None or self._enough():
                    self._stop()
                elif self._following and (not self._running or self._leaders_listen()):
                    self._start(self._following)
                    self._following = ()
                if self._give_up_s is not None and time.monotonic() >= self._give_up_s:
                    self._kill()
        if broken and not self._interruptions:
            raise RunFailedError("the relay between the coasts has died")
        return self._ends.exit_code

    @contextmanager
    def _passing_signals_on(self, wake: int) -> Iterator[None]:
        """Take note of signals; one that we were started to ignore stays ignored (`nohup`, a shell's `&`)."""

        def note(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            _tell(wake)

        before = {}
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _leaders_listen(self) -> bool:
        return all(_listens(self._coasts, program.site) for program in self._leading)

    def _start(self, programs: Sequence[Program]) -> None:
        for program in programs:
            self._start_one(program)

    def _start_one(self, program: Program) -> None:
        mine = program.terminal
        process = subprocess.Popen(
            self._coasts.enter(program.site, program.argv, before_terminal=mine),
            stdin=None if mine else subprocess.DEVNULL,
            stdout=None if mine else subprocess.PIPE,
            stderr=None if mine else subprocess.PIPE,
            start_new_session=not mine,  # else Ctrl-C would reach it twice: from the terminal, and from us
        )
        descriptor = os.pidfd_open(process.pid)
        self._running[descriptor] = _Running(program, process)
        self._watched.register(descriptor, select.POLLIN)
        self._coasts.record(process.pid)
        if process.stdout is not None and process.stderr is not None:
            self._output.carry(program.name, "stdout", process.stdout)
            self._output.carry(program.name, "stderr", process.stderr)

    def _bury(self, descriptor: int) -> None:
        ended = self._running.pop(descriptor)
        status = ended.process.wait()
        self._watched.unregister(descriptor)
        os.close(descriptor)
        self._ends.names.add(ended.program.name)
        if not ended.asked_to_stop:
            self._ends.statuses.append(status)

    def _pass_on(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            for running in self._running.values():
                running.process.send_signal(number)
            if number in _ENDING:
                self._interruptions += 1
                self._following = ()
                self._limit_time(0.0 if self._interruptions > 1 else self._patience_s)

    def _enough(self) -> bool:
        if self._ends.exit_code:
            return True
        if self._until == "both":
            return False
        return bool(self._ends.names) if self._until == "either" else self._until in self._ends.names

    def _stop(self) -> None:
        self._following = ()
        for running in self._running.values():
            if not running.asked_to_stop and not self._interruptions:
                running.asked_to_stop = True
                running.process.terminate()
        self._limit_time(self._patience_s)

    def _limit_time(self, left_s: float) -> None:
        until_s = time.monotonic() + left_s
        self._give_up_s = until_s if self._give_up_s is None else min(self._give_up_s, until_s)

    def _time_left_ms(self) -> float | None:
        if self._following:
            return _LOOK_AGAIN_MS
        return None if self._give_up_s is None else max(0.0, self._give_up_s - time.monotonic()) * 1e3 + 1.0

    def _kill(self) -> None:
        for descriptor in list(self._running):
            self._running[descriptor].process.kill()
            self._bury(descriptor)


def _listens(coasts: TwoCoasts, site: str) -> bool:
    """Say whether a socket on a coast waits for whoever comes: proc_net(5)."""
    tables = [f"/proc/self/net/{kind}" for kind in ("tcp", "udp", "tcp6", "udp6")]  # the latter where there is IPv6
    lines = coasts.namespaces.attempt(site, ["cat", *tables]).stdout.splitlines()
    return any(fields[3] in _LISTENING for fields in map(str.split, lines) if len(fields) > 3)


def _tell(wake: int) -> None:
    os.write(wake, b"!")
