"""Transports that break in the process of their coast; others find them as `helpers.faulty_transports:NAME`."""

from bicoastal.transports.base import EndpointContext
from bicoastal.transports.events import Buffer
from bicoastal.transports.registry import TransportSpec
from helpers.example_transports import ArqEndpoint, ToyParameters


class _Raising(ArqEndpoint):
    """Raises when it is offered the second iteration."""

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        if message_id:
            raise ZeroDivisionError("one bit\nby none")
        super().send_message(message_id, data, now)


class _Leaving(ArqEndpoint):
    """Takes its process along."""

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        raise SystemExit(7)


class _Stuck(ArqEndpoint):
    """Never comes back from the second iteration."""

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        while message_id:
            pass
        super().send_message(message_id, data, now)


class _Unborn(ArqEndpoint):
    """Cannot be made."""

    def __init__(self, context: EndpointContext) -> None:
        raise TypeError("not today")


def _spec(name: str, endpoint: type[ArqEndpoint]) -> TransportSpec:
    return TransportSpec(
        name=name,
        kind="sans-io",
        paths="many",
        description=name,
        parameters=ToyParameters,
        make_endpoint=endpoint,
    )


RAISING = _spec("wild-raising", _Raising)
LEAVING = _spec("wild-leaving", _Leaving)
STUCK = _spec("wild-stuck", _Stuck)
UNBORN = _spec("wild-unborn", _Unborn)
