"""What the coordinator of a real-time run and the coasts' processes say to each other.

The coordinator gives orders, a coast tells what has come of them::

    CoastPlan                                     Ready, or Refused
    Connect        begin the handshakes           Connected, one for each flow that the coast sends on
    Prepare        an iteration's gradients       Prepared
    Begin          offer them at an instant       Complete, when the coast has all that it waits for
    Verify         against the true sum           Verified
    Close          an iteration, complete or not  Closed, with what was counted
    SendBackground one message                    BackgroundArrived, from the far end
    Finish                                        Finished, and the process ends

and at any time Broken, when a transport gives up or delivers what it should not. Services have a process of their own::

    ServicePlan                                   Ready, or Refused
    Connect                                       Noticed, at once, so that nothing is lost should it be killed
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
    """Where the services of a transport are to be had: the sites at which they stand, in their order, and a socket.

    credentials: of whoever is told the address.
    """

    transport: str
    sites: tuple[str, ...]
    socket: str
    credentials: Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class CoastPlan:
    """What a coast's process needs to know.

    token: 16 hexadecimal digits; what comes without it is a stranger's. secret: hexadecimal digits, from which keys are
    made; it is told over this channel alone. first_port: of the ports that flows use.
    marks_bursts: whether datagrams carry the place in their burst (`frames.burst_to_tos`). processors: where to run,
    empty for anywhere.
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
    """What the process that hosts a transport's services needs to know: where to listen, and with what credentials.

    generation: how many have stood in its place before. encapsulation_bytes: see `services.place_services`.
    processors: as for `CoastPlan`.
    """

    spec: RunSpec
    address: ServiceAddress
    generation: int
    encapsulation_bytes: int
    processors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Zero is at `epoch_s`, seconds on CLOCK_MONOTONIC: begin the handshakes then."""

    epoch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Make an iteration's gradients, and sum them up inside the coast."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Offer what has been prepared at `begins_s`."""

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
    """The iteration is over, complete or not: tell what was counted."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBackground:
    """Send the next message of other traffic, counted from 1, at `begins_s`."""

    name: str
    number: int
    begins_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over: tell the rest and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Everything is there: sockets are bound, transports made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The plan cannot be carried out here, in one sentence."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A flow's sending end is connected."""

    flow: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The gradients stand ready."""

    job: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The coast has received all that it waits for, the last of it at `at_s`."""

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

    late_s: by how much it began after its instant. tallies: by flow, of the end that is here. cpu_share: of one core,
    between beginning and completion, or until it was closed.
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
    """A flow's part of a message of other traffic is here, octet for octet."""

    name: str
    flow: str
    number: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The run cannot go on, in one sentence. transport: it is the transport's failure, not the process's."""

    reason: str
    transport: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something that the records are to tell has happened at a service."""

    notice: NoticeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The rest: time series and notices of the ends that are here, and how late the process was with what was due."""

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
    """Raise what a process's first word means unless it is ready; name: the process's, for sentences.

    UnsupportedError when it cannot carry out its plan, RunFailedError for anything else.
    """
    match said:
        case Ready():
            return
        case Refused(reason=reason):
            raise UnsupportedError(reason)
        case Broken(reason=reason):
            raise RunFailedError(f"{name} broke: {reason}")
        case other:
            raise RunFailedError(f"{name} said {type(other).__name__}, out of turn")
