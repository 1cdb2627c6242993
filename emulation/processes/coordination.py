"""The messages between the coordinator of a real-time run and the processes of coasts and services.

The coordinator sends orders, and a coast answers with news::

    CoastPlan                                     Ready, or Refused
    Connect        begin the handshakes           Connected, one for each flow that the coast sends on
    Prepare        an iteration's gradients       Prepared
    Begin          offer them at an instant       Complete, when the coast has all that it waits for
    Verify         against the true sum           Verified
    Close          an iteration, complete or not  Closed, with what was counted
    SendBackground one message                    BackgroundArrived, from the far end
    Finish                                        Finished, and the process ends

and at any time Broken, when a transport gives up or delivers wrong data. Services have separate processes::

    ServicePlan                                   Ready, or Refused
    Connect                                       Noticed, at once, so that no notice is lost when it is killed
    Finish                                        Finished, and the process ends

Times are seconds from the run's epoch, an instant on CLOCK_MONOTONIC, which all processes of one kernel share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bicoastal.emulation.base import RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.processes.credentials import Credentials
from bicoastal.emulation.processes.wire_format import WireFormat
from bicoastal.emulation.realtime.lateness import Lateness
from bicoastal.emulation.records import FlowSample, NoticeRecord
from bicoastal.emulation.traffic.ledger import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEnd:
    """Where a path ends at a coast: its own address there, and the far coast's.

    device: the coast's interface. table: the routing table for sockets bound to `address`.
    """

    path: str
    address: str
    peer_address: str
    device: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """Where to reach the services of a transport: their sites, in their order, and a Unix socket.

    credentials: of the process that receives the address.
    """

    transport: str
    sites: tuple[str, ...]
    socket: str
    credentials: Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class CoastPlan:
    """The first order to a coast's process.

    token: 16 hexadecimal digits; packets without it are not the run's. secret: hexadecimal digits, from which keys are
    made; it is sent over this channel alone. first_port: of the ports that flows use. marks_bursts: whether datagrams
    carry their place in the burst (`frames.burst_to_tos`). processors: those to run on, empty for any.
    """

    spec: RunSpec
    site: str
    ends: tuple[PathEnd, ...]
    token: str
    secret: str = field(repr=False)
    first_port: int
    marks_bursts: bool = False
    processors: tuple[int, ...] = ()
    services: tuple[ServiceAddress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """The first order to the process of a transport's services: the socket to listen on, and its credentials.

    generation: how many times it was restarted. encapsulation_bytes: see `placement.place_services`.
    processors: as for `CoastPlan`.
    """

    spec: RunSpec
    address: ServiceAddress
    generation: int
    encapsulation_bytes: int
    processors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The run's time begins at `epoch_s`, seconds on CLOCK_MONOTONIC: begin the handshakes then."""

    epoch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Make an iteration's gradients and sum them inside the coast."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Offer the prepared messages at `begins_s`."""

    job: str
    iteration: int
    begins_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Compare every rank's result with the true sum."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """The iteration is over, complete or not: report what was counted."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackground:
    """Send the message of background traffic with this number, counted from 1, at `begins_s`."""

    name: str
    number: int
    begins_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over: report the remaining records and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Sockets are bound and transports are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The plan cannot be executed on this machine; the reason is one sentence."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A flow's sending end is connected."""

    flow: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The gradients are ready."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The coast has received every message of the iteration, the last one at `at_s`."""

    job: str
    iteration: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Whether every rank's result equals the true sum."""

    job: str
    iteration: int
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A flow's message of a trip was offered by this coast."""

    flow: str
    trip: int
    at_s: float
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A flow's message of a trip was delivered to this coast."""

    flow: str
    trip: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What this coast's ends did in an iteration.

    late_s: time from the ordered instant until it began. tallies: by flow, of the end at this coast. cpu_share: of one
    core, from the beginning until completion, or until the iteration was closed.
    """

    job: str
    iteration: int
    late_s: float
    cpu_share: float
    offered: tuple[Offered, ...]
    arrived: tuple[Arrived, ...]
    tallies: Mapping[str, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundArrived:
    """A flow's part of a message of background traffic has arrived, with all octets correct."""

    name: str
    flow: str
    number: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The run cannot continue; the reason is one sentence. transport: the transport failed, and not the process."""

    reason: str
    transport: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A service has something to record."""

    notice: NoticeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The remaining records: time series and notices of the ends at this coast, and how late its events were."""

    samples: tuple[FlowSample, ...]
    notices: tuple[NoticeRecord, ...]
    lateness: Lateness


Order = CoastPlan | Connect | Prepare | Begin | Verify | Close | SendBackground | Finish
News = Ready | Refused | Connected | Prepared | Complete | Verified | Closed | BackgroundArrived | Broken | Finished
ServiceOrder = ServicePlan | Connect | Finish
ServiceNews = Ready | Refused | Noticed | Broken | Finished

ORDERS: WireFormat[Order] = WireFormat(Order)
NEWS: WireFormat[News] = WireFormat(News)
SERVICE_ORDERS: WireFormat[ServiceOrder] = WireFormat(ServiceOrder)
SERVICE_NEWS: WireFormat[ServiceNews] = WireFormat(ServiceNews)


def require_ready(name: str, said: News | ServiceNews) -> None:
    """Check that a process's first news is `Ready`. name: of the process, for messages.

    Raises UnsupportedError when it cannot execute its plan, RunFailedError for anything else.
    """
    match said:
        case Ready():
            return
        case Refused(reason=reason):
            raise UnsupportedError(reason)
        case Broken(reason=reason):
            raise RunFailedError(f"{name} broke: {reason}")
        case other:
            raise RunFailedError(f"{name} sent {type(other).__name__} at the wrong time")
