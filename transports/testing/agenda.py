"""Virtual time for a test run: a queue of events, and a clock that moves from one event to the next."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from bicoastal.transports.testing.port import ContractError


class Agenda:
    """What is to happen, in the order of its time, and at one time in the order in which it was entered.

    now: where the clock stands, in seconds. time_limit_s: how long any goal may take.
    """

    def __init__(self, start_s: float, time_limit_s: float) -> None:
        self.now = start_s
        self._time_limit_s = time_limit_s
        self._heap: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._next = count().__next__

    def at(self, at_s: float, action: Callable[[Any, float], None], argument: Any) -> None:
        """Enter `action(argument, now)` for a time; one that has passed counts as now."""
        heappush(self._heap, (at_s, self._next(), action, argument))

    def advance(self, done: Callable[[], bool], goal: str) -> None:
        """Let things happen until `done()`. Raises ContractError where that does not come, or not in time."""
        limit_s = self.now + self._time_limit_s
        while not done():
            if not self._heap:
                raise ContractError(f"nothing was left to happen before {goal}")
            if self._heap[0][0] > limit_s:
                raise ContractError(f"{self._time_limit_s:g} s passed before {goal}")
            self._step()

    def rest(self, duration_s: float) -> None:
        """Advance the clock and run the events that are due."""
        until_s = self.now + duration_s
        while self._heap and self._heap[0][0] <= until_s:
            self._step()
        self.now = until_s

    def _step(self) -> None:
        at_s, _, action, argument = heappop(self._heap)
        self.now = max(self.now, at_s)
        action(argument, self.now)
