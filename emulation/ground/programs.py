"""Runs programs on the coasts: starts them together, forwards signals to them, and ends them together.

Their output is written line by line, with the program's name before each line. A program may have the terminal instead.
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
_LISTENING = {"0A", "07"}  # TCP_LISTEN, and the state of an unconnected UDP socket: include/net/tcp_states.h of Linux
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program at a site. name: written before each line. terminal: it uses our standard streams alone."""

    name: str
    site: str
    argv: tuple[str, ...]
    terminal: bool = False


class LabelledOutput:
    """Writes the programs' output, line by line with their names. A context manager, which waits for all output.

    width: of the longest name. write: called with one complete line at a time. An exception of `write` ends the
    programs, and is raised at the end of the block.
    """

    def __init__(self, write: Write, *, width: int) -> None:
        self._write = write
        self._width = width
        self._one_at_a_time = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._failed: Callable[[], None] = lambda: None
        self.failure: Exception | None = None

    def on_failure(self, act: Callable[[], None]) -> None:
        """Call `act`, from another thread, when a line cannot be written."""
        self._failed = act

    def carry(self, name: str, stream: Stream, source: IO[bytes]) -> None:
        """Write the lines of `source` until its end, and close it."""
        thread = threading.Thread(target=self._carry, args=(name, stream, source), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _carry(self, name: str, stream: Stream, source: IO[bytes]) -> None:
        label = f"{name:{self._width}} | ".encode()
        with source:
            while line := source.readline(_LONGEST_LINE):
                with self._one_at_a_time:
                    if self.failure is not None:
                        continue  # the programs are being ended and must not block on their output
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
    """The ends of programs that ended by themselves or by a forwarded signal, in their order."""

    statuses: list[int] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @property
    def exit_code(self) -> int:
        """The first exit status that is not 0; 128 + n for a program that signal n has ended, as in a shell."""
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

    until: "both" waits for all programs, "either" for any of them, and a program's name for that one. The programs that
    still run then are ended. They are also ended when one fails, when the output cannot be written, and when a process
    of `depends_on` ends. They get SIGTERM, and SIGKILL after `patience_s`; their exit status then does not count.
    first: the name of a program that starts before the others, which follow when it listens on a TCP or UDP port or has
    ended. Signals to this process are forwarded to every program. The first signal that asks for an end is a request,
    the second one kills the programs. A program with the terminal gets the keyboard's signals itself. Call this from
    the main thread. Raises RunFailedError when a process of `depends_on` has ended without such a signal.
    """
    leading = [program for program in programs if first in (None, program.name)]
    following = [program for program in programs if program not in leading]
    return _Run(coasts, leading, following, output, until=until, patience_s=patience_s).run(depends_on)


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

    def run(self, depends_on: Sequence[int]) -> int:
        broken = False
        with ExitStack() as stack:
            woken, wake = os.pipe()
            stack.callback(os.close, woken)
            stack.callback(os.close, wake)
            stack.enter_context(self._collected_signals(wake))
            self._output.on_failure(lambda: _tell(wake))
            stack.callback(self._output.on_failure, lambda: None)
            required = [os.pidfd_open(pid) for pid in depends_on]
            for descriptor in required:
                stack.callback(os.close, descriptor)
            stack.callback(self._kill)
            watched = self._watched
            for descriptor in (woken, *required):
                watched.register(descriptor, select.POLLIN)
            self._start(self._leading)
            while self._running or self._following:
                for descriptor, _ in watched.poll(self._time_left_ms()):
                    if descriptor == woken:
                        os.read(woken, 512)
                    elif descriptor in required:
                        watched.unregister(descriptor)
                        broken = True
                    else:
                        self._on_exit(descriptor)
                self._forward_signals()
                if broken or self._output.failure is not None or self._is_over():
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
    def _collected_signals(self, wake: int) -> Iterator[None]:
        """Collect signals; one that was ignored at the start stays ignored (`nohup`, a shell's `&`)."""

        def note(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            _tell(wake)

        before = {}
        for number in _FORWARDED:
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
            start_new_session=not mine,  # else Ctrl-C would reach it twice: from the terminal and from this process
        )
        descriptor = os.pidfd_open(process.pid)
        self._running[descriptor] = _Running(program, process)
        self._watched.register(descriptor, select.POLLIN)
        self._coasts.record(process.pid)
        if process.stdout is not None and process.stderr is not None:
            self._output.carry(program.name, "stdout", process.stdout)
            self._output.carry(program.name, "stderr", process.stderr)

    def _on_exit(self, descriptor: int) -> None:
        ended = self._running.pop(descriptor)
        status = ended.process.wait()
        self._watched.unregister(descriptor)
        os.close(descriptor)
        self._ends.names.add(ended.program.name)
        if not ended.asked_to_stop:
            self._ends.statuses.append(status)

    def _forward_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            for running in self._running.values():
                running.process.send_signal(number)
            if number in _ENDING:
                self._interruptions += 1
                self._following = ()
                self._limit_time(0.0 if self._interruptions > 1 else self._patience_s)

    def _is_over(self) -> bool:
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
            self._on_exit(descriptor)


def _listens(coasts: TwoCoasts, site: str) -> bool:
    """Return whether a socket on a coast accepts connections or datagrams: proc_net(5)."""
    tables = [f"/proc/self/net/{kind}" for kind in ("tcp", "udp", "tcp6", "udp6")]  # the latter where there is IPv6
    lines = coasts.namespaces.attempt(site, ["cat", *tables]).stdout.splitlines()
    return any(fields[3] in _LISTENING for fields in map(str.split, lines) if len(fields) > 3)


def _tell(wake: int) -> None:
    os.write(wake, b"!")
