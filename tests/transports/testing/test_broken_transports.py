"""The conformance suite catches what breaks the contract, endpoint or service, and says which promise it was."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from bicoastal.transports.base import Datagram, EndpointContext, ServiceContext, ServicePlacement
from bicoastal.transports.testing import ConformanceError, check_transport
from helpers.broken_transports import BROKEN
from helpers.example_frames import Frame
from helpers.example_transports import STEERED, STRIPER, ArqEndpoint, Governor, SteeredEndpoint


@pytest.mark.parametrize(("endpoint", "sentence"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_transport_is_caught(endpoint: Callable[[EndpointContext], ArqEndpoint], sentence: str) -> None:
    broken = replace(STRIPER, make_endpoint=endpoint)
    report = check_transport(broken, rng_factory=Random, schedules=100, stop_after=1)
    assert not report.ok
    with pytest.raises(ConformanceError, match=sentence):
        report.raise_on_failure()
    again = check_transport(broken, rng_factory=Random, only=report.violations[0].schedule)
    assert not again.ok  # what the report names can be run again alone


class CredulousGovernor(Governor):
    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        if not isinstance(datagram.payload, Frame):
            raise ValueError("payload: not a frame")
        super().receive_datagram(datagram, now)


class RestlessGovernor(Governor):
    def get_timer(self) -> float | None:
        return 0.0

    def handle_timer(self, now: float) -> None:
        """Forget to do anything about it."""


class ServerThatAsks(SteeredEndpoint):
    """Asks the service from an end that has no way to it."""

    def on_hello(self, frame: Frame) -> None:
        super().on_hello(frame)
        self.may_greet(0.0)


def governed_by(governor: type[Governor]) -> Callable[[ServiceContext], Sequence[ServicePlacement]]:
    return lambda context: [ServicePlacement(name="governor", site="west", machine=governor(context.topology))]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"make_services": governed_by(CredulousGovernor)}, r"service governor: receive_datagram raised ValueError"),
        ({"make_services": governed_by(RestlessGovernor)}, r"service governor spins"),
        ({"make_endpoint": ServerThatAsks}, r"server sent a datagram on path -1, which it does not have"),
        ({"make_services": lambda _context: ()}, r"client sent a datagram on path -1, which it does not have"),
    ],
)
def test_broken_services_are_caught(changes: dict[str, Callable[..., object]], sentence: str) -> None:
    report = check_transport(replace(STEERED, **changes), rng_factory=Random, schedules=5)  # type: ignore[arg-type]
    assert not report.ok
    with pytest.raises(ConformanceError, match=sentence):
        report.raise_on_failure()
