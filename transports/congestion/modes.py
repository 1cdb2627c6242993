"""The modes of `Adaptive`, and the table of all transitions between them."""

from enum import Enum
from typing import NamedTuple


class Mode(Enum):
    """What the controller takes the path's state to be."""

    STARTUP = "startup"  # no rate is known
    CRUISE = "cruise"  # the rate is known, and no other sender is seen
    COMPETE = "compete"  # another sender uses the queue
    SILENT = "silent"  # acknowledgements have stopped


class Event(Enum):
    """What can change the mode, or what the mode has to answer."""

    BURST = "a burst begins, and a rate is known"
    RATE_FOUND = "slow start has found the rate, and its window covers it"
    EARLY_LOSS = "packets are lost before a rate is known"
    CONGESTION = "a queue has overflowed"
    OVERLOAD = "so much of a round is lost that the rate must have been far too high"
    QUEUE_STANDS = "the queue was longer than this sender makes it for two rounds"
    QUEUE_DRAINED = "the queue is empty again, or the other senders leave room"
    PROBE_REFUTED = "a probe has found a rate that the queue shows to be too high"
    TIMEOUT = "the retransmission timer has expired"
    RESUMED = "an acknowledgement has arrived after a timeout"


class Action(Enum):
    """What the controller does on a transition."""

    OPEN = "send at the learned rate, and probe for more"
    LEAVE_STARTUP = "cruise at the rate that startup has found"
    CRUISE = "cruise at a given rate"
    RESUME = "cruise at half the learned rate, and probe for more at once"
    SHRINK = "reduce the window of slow start"
    COMPETE = "take CUBIC's window, beginning with the present one"
    COMPETE_REDUCED = "take CUBIC's window, and reduce it"
    REDUCE = "reduce CUBIC's window"
    RESTART = "slow start again with one segment, without what acknowledgements have shown"
    WAIT = "one segment until an acknowledgement arrives"


class Transition(NamedTuple):
    """One row of the table."""

    mode: Mode
    event: Event
    to: Mode
    action: Action


TRANSITIONS = (
    # from                   event                to            action
    Transition(Mode.STARTUP, Event.BURST,         Mode.CRUISE,  Action.OPEN),
    Transition(Mode.STARTUP, Event.RATE_FOUND,    Mode.CRUISE,  Action.LEAVE_STARTUP),
    Transition(Mode.STARTUP, Event.CONGESTION,    Mode.CRUISE,  Action.LEAVE_STARTUP),
    Transition(Mode.STARTUP, Event.EARLY_LOSS,    Mode.STARTUP, Action.SHRINK),
    Transition(Mode.STARTUP, Event.TIMEOUT,       Mode.STARTUP, Action.RESTART),
    Transition(Mode.CRUISE,  Event.BURST,         Mode.CRUISE,  Action.OPEN),
    Transition(Mode.CRUISE,  Event.PROBE_REFUTED, Mode.CRUISE,  Action.CRUISE),
    Transition(Mode.CRUISE,  Event.OVERLOAD,      Mode.CRUISE,  Action.CRUISE),
    Transition(Mode.CRUISE,  Event.QUEUE_STANDS,  Mode.COMPETE, Action.COMPETE),
    Transition(Mode.CRUISE,  Event.CONGESTION,    Mode.COMPETE, Action.COMPETE_REDUCED),
    Transition(Mode.CRUISE,  Event.TIMEOUT,       Mode.SILENT,  Action.WAIT),
    Transition(Mode.COMPETE, Event.BURST,         Mode.CRUISE,  Action.OPEN),
    Transition(Mode.COMPETE, Event.QUEUE_DRAINED, Mode.CRUISE,  Action.CRUISE),
    Transition(Mode.COMPETE, Event.CONGESTION,    Mode.COMPETE, Action.REDUCE),
    Transition(Mode.COMPETE, Event.TIMEOUT,       Mode.SILENT,  Action.WAIT),
    Transition(Mode.SILENT,  Event.BURST,         Mode.CRUISE,  Action.OPEN),
    Transition(Mode.SILENT,  Event.RESUMED,       Mode.CRUISE,  Action.RESUME),
    Transition(Mode.SILENT,  Event.OVERLOAD,      Mode.CRUISE,  Action.CRUISE),
    Transition(Mode.SILENT,  Event.CONGESTION,    Mode.SILENT,  Action.REDUCE),
    Transition(Mode.SILENT,  Event.TIMEOUT,       Mode.SILENT,  Action.WAIT),
)  # fmt: skip

_BY_MODE_AND_EVENT = {(row.mode, row.event): row for row in TRANSITIONS}


class ImpossibleTransitionError(RuntimeError):
    """The table has no row for this event in this mode: a fault of the controller."""


class ModeMachine:
    """The present mode. Only an event that has a row in the table can change it."""

    __slots__ = ("_mode",)

    def __init__(self) -> None:
        self._mode = Mode.STARTUP

    @property
    def mode(self) -> Mode:
        """Return the present mode."""
        return self._mode

    def take(self, event: Event) -> Action:
        """Enter the mode that an event leads to; return the action. Raises ImpossibleTransitionError."""
        row = _BY_MODE_AND_EVENT.get((self._mode, event))
        if row is None:
            raise ImpossibleTransitionError(f"{event.name} in mode {self._mode.name}")
        self._mode = row.to
        return row.action
