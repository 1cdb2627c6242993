"""Transports whose services do what they should not; other processes resolve them by `helpers.faulty_services:NAME`."""

from collections.abc import Sequence
from dataclasses import replace

from bicoastal.transports.base import Datagram, Machine, ServiceContext, ServicePlacement
from bicoastal.transports.events import Event, Failed
from bicoastal.transports.registry import TransportSpec
from helpers.example_transports import STEERED, Governor


class _Raising(Governor):
    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        raise ZeroDivisionError("nothing to share")


class _GivesUp(Governor):
    asked = False

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        self.asked = True

    def next_event(self) -> Event | None:
        asked, self.asked = self.asked, False
        return Failed(reason="it has lost the plan") if asked else None


def _with(name: str, machine: type[Governor], site: str | None = None) -> TransportSpec:
    def place(context: ServiceContext) -> Sequence[ServicePlacement]:
        made: Machine = machine(context.topology)
        return (ServicePlacement(name="governor", site=site or context.topology.sites[0].name, machine=made),)

    return replace(STEERED, name=f"helpers.faulty_services:{name}", make_services=place)


SOUND = _with("SOUND", Governor)
RAISING = _with("RAISING", _Raising)
GIVES_UP = _with("GIVES_UP", _GivesUp)
FAR_AWAY = _with("FAR_AWAY", Governor, site="moon")
