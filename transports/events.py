"""Everything a machine can tell its application: frozen, complete when made."""

from dataclasses import dataclass

from bicoastal.wan.octets import Buffer as Buffer  # noqa: PLC0414 (what messages are given and delivered in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The handshake is over: `send_message` will now put data on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A whole message is here, in order and byte-exact; the only evidence of completion there is.

    `data` is any bytes-like object; it may share memory with what the sender offered.
    """

    message_id: int
    data: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The machine has given up and will never deliver again; `reason` is one sentence for a person."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the records should tell (a fallback, a changed rate): `kind` is a stable identifier."""

    kind: str
    detail: str = ""


Event = Connected | MessageReceived | Failed | Notice
