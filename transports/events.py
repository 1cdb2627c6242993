"""The events that a machine reports to its application: frozen dataclasses, complete when they are made."""

from dataclasses import dataclass

from bicoastal.wan.octets import Buffer as Buffer  # noqa: PLC0414 (what messages are given and delivered in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The handshake is complete: `send_message` can now put data on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A whole message has arrived, in order and byte-exact. Only this event shows that a message is complete.

    `data` is any bytes-like object; it may share memory with what the sender offered.
    """

    message_id: int
    data: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The machine has failed and delivers nothing more; `reason` is one sentence."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to be recorded (a fallback, a changed rate); `kind` is a stable identifier."""

    kind: str
    detail: str = ""


Event = Connected | MessageReceived | Failed | Notice
