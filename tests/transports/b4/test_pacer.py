"""The pacer of kernel-b4 between a controller and a program: it announces, keeps to its rate, and falls back."""

from random import Random

import pytest

from bicoastal.transports.b4.controller import Controller
from bicoastal.transports.b4.parameters import ControlledParameters
from bicoastal.transports.b4.registration import INITIAL_BPS, KERNEL_B4
from bicoastal.transports.base import Datagram, EndpointContext, FlowId, Pacer, PathView
from bicoastal.transports.events import Connected, Event, Notice
from helpers.small_runs import plane, planes

FLOWS = tuple(FlowId(owner=job, source="west", destination="east", paths=("plane0",)) for job in ("job", "other"))
RATE_BPS = 100e6
PARAMETERS = ControlledParameters(lease_s=2.0, grace_s=0.5, patience_s=1.0, headroom=0.01, safe_share=0.1)


def pacer(flow: FlowId = FLOWS[0], parameters: ControlledParameters = PARAMETERS, *, role: str = "client") -> Pacer:
    assert KERNEL_B4.make_pacer is not None
    made = KERNEL_B4.make_pacer(
        EndpointContext(
            role=role,
            flow=flow,
            paths=(PathView(path_id=0, name="plane0", mtu_bytes=9000),),
            rng=Random(str(flow)),
            parameters=parameters,
        )
    )
    assert isinstance(made, Pacer)
    return made


def events(machine: Pacer) -> list[Event]:
    found = []
    while (event := machine.next_event()) is not None:
        found.append(event)
    return found


class Meeting:
    """Two pacers and their controller, all in one place."""

    def __init__(self) -> None:
        self.controller = Controller(planes(plane()), FLOWS, Random(1), PARAMETERS)
        self.pacers = [pacer(flow) for flow in FLOWS]

    def talk(self, now: float) -> None:
        """Carry messages until nobody has any left."""
        while True:
            said = [(peer, one) for peer, each in enumerate(self.pacers) for one in each.datagrams_to_send(now)]
            for peer, one in said:
                self.controller.receive_datagram(one._replace(path_id=peer), now)
            answers = self.controller.datagrams_to_send(now)
            for answer in answers:
                self.pacers[answer.path_id].receive_datagram(answer._replace(path_id=-1), now)
            if not said and not answers:
                return


def test_one_burst_gets_the_link_and_two_share_it_until_one_is_over() -> None:
    meeting = Meeting()
    first, second = meeting.pacers
    meeting.talk(0.0)
    assert {type(event) for event in events(first)} == {Connected, Notice}
    safe_bps = RATE_BPS * 0.1 / 2
    first.announce(10**7, 0.1)
    meeting.talk(0.1)
    assert first.rate_bps == pytest.approx(RATE_BPS * 0.99 - safe_bps, rel=0.06)
    second.announce(10**7, 0.2)
    meeting.talk(0.2)
    assert first.rate_bps == pytest.approx(second.rate_bps, rel=0.02)
    assert 0.95 * RATE_BPS < first.rate_bps + second.rate_bps <= RATE_BPS
    first.announce(0, 0.3)
    meeting.talk(0.3)
    assert second.rate_bps > 0.9 * RATE_BPS
    assert first.rate_bps + second.rate_bps <= RATE_BPS
    assert any(isinstance(event, Notice) and event.kind == "b4-rate" for event in events(second))


def test_without_the_controller_it_keeps_its_rate_until_that_expires_and_then_the_safe_share() -> None:
    meeting = Meeting()
    first = meeting.pacers[0]
    meeting.talk(0.0)
    first.announce(10**7, 0.1)
    meeting.talk(0.1)
    granted_bps = first.rate_bps
    events(first)
    now = 0.1
    while (at := first.get_timer()) is not None and at < 0.1 + PARAMETERS.lease_s + 0.01:
        assert at > now
        now = at
        before_bps = first.rate_bps
        first.handle_timer(now)
        first.datagrams_to_send(now)  # nobody hears it
        assert before_bps == granted_bps
    assert now == pytest.approx(0.1 + PARAMETERS.lease_s)
    assert first.rate_bps == pytest.approx(RATE_BPS * 0.1 / 2, rel=0.02)
    assert [event.kind for event in events(first) if isinstance(event, Notice)] == ["b4-fallback"]


def test_it_waits_for_a_first_grant_only_so_long() -> None:
    alone = pacer()
    assert len(alone.datagrams_to_send(0.0)) == 1
    assert alone.next_event() is None
    while not (happened := events(alone)):
        at = alone.get_timer()
        assert at is not None
        alone.handle_timer(at)
        alone.datagrams_to_send(at)
    assert at == pytest.approx(PARAMETERS.patience_s)
    assert Connected() in happened
    assert alone.rate_bps == INITIAL_BPS


@pytest.mark.parametrize(
    ("parameters", "role"), [(ControlledParameters(rate_bps=5e6), "client"), (PARAMETERS, "server")]
)
def test_a_fixed_rate_needs_no_controller_and_a_receiver_none_either(
    parameters: ControlledParameters, role: str
) -> None:
    alone = pacer(parameters=parameters, role=role)
    assert alone.datagrams_to_send(0.0) == ()
    assert events(alone) == [Connected()]
    alone.announce(10**6, 0.0)
    assert (alone.datagrams_to_send(1.0), alone.get_timer()) == ((), None)
    assert alone.rate_bps == (parameters.rate_bps or INITIAL_BPS)


def test_words_of_others_than_the_controller_change_nothing() -> None:
    meeting = Meeting()
    first, second = meeting.pacers
    meeting.talk(0.0)
    before_bps = first.rate_bps
    first.announce(10**7, 0.1)
    meeting.controller.receive_datagram(first.datagrams_to_send(0.1)[0]._replace(path_id=0), 0.1)
    grant = next(each for each in meeting.controller.datagrams_to_send(0.1) if each.path_id == 0)
    second.receive_datagram(grant._replace(path_id=-1), 0.1)  # it is the first one's
    first.receive_datagram(grant._replace(path_id=-2), 0.1)  # no such service
    first.receive_datagram(Datagram(-1, b"{}", 76, 0.1), 0.1)
    assert first.rate_bps == before_bps
    assert vars(first)["rejected"] == 2
    assert vars(second)["rejected"] == 1
