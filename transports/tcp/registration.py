"""The TCPs that bicoastal brings along, as the registry sees them."""

from dataclasses import dataclass

from bicoastal.transports.base import Endpoint, EndpointContext
from bicoastal.transports.congestion.adaptive import Adaptive
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.congestion.reno import Reno
from bicoastal.transports.registry import TransportSpec
from bicoastal.transports.tcp.connection import TcpEndpoint
from bicoastal.transports.tcp.parameters import TcpParameters
from bicoastal.wan.checks import FieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class CubicParameters(TcpParameters):
    """CUBIC's own, besides TCP's: fast convergence (RFC 9438 §4.7) and HyStart (RFC 9406's HyStart++, or Linux's).

    full_alpha: grow as fast as Reno once as wide as before a loss (RFC 9438 §4.3). ack_trains: Linux's HyStart in the
    place of HyStart++. Both defaults are what Linux does.
    """

    fast_convergence: bool = True
    hystart: bool = True
    ack_trains: bool = True
    full_alpha: bool = False


def _reno(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(TcpParameters, "reno")
    return TcpEndpoint(
        context,
        lambda mss_bytes: Reno(
            mss_bytes=mss_bytes,
            initial_window_segments=parameters.initial_window(mss_bytes),
            byte_count_limit=parameters.byte_count_limit,
            reduces=parameters.reduces,
        ),
        parameters,
    )


def _cubic(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(CubicParameters, "cubic")
    return TcpEndpoint(
        context,
        lambda mss_bytes: Cubic(
            mss_bytes=mss_bytes,
            initial_window_segments=parameters.initial_window(mss_bytes),
            byte_count_limit=parameters.byte_count_limit,
            fast_convergence=parameters.fast_convergence,
            hystart=parameters.hystart,
            ack_trains=parameters.ack_trains,
            full_alpha=parameters.full_alpha,
            reduces=parameters.reduces,
        ),
        parameters,
    )


RENO = TransportSpec(
    name="reno",
    kind="sans-io",
    paths="one",
    description="TCP NewReno (RFC 5681, 6582) with SACK, RACK-TLP and PRR",
    parameters=TcpParameters,
    make_endpoint=_reno,
    colour="#0072b2",
    marker="o",
)

CUBIC = TransportSpec(
    name="cubic",
    kind="sans-io",
    paths="one",
    description="TCP CUBIC (RFC 9438) with HyStart, SACK, RACK-TLP and PRR",
    parameters=CubicParameters,
    make_endpoint=_cubic,
    colour="#d55e00",
    marker="s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveParameters(TcpParameters):
    """The adaptive controller's own, besides TCP's. headroom: by how much its window exceeds the learned BDP.

    Raises ValueError naming the field.
    """

    headroom: float = 0.02

    def __post_init__(self) -> None:
        """Check the numbers."""
        TcpParameters.__post_init__(self)
        if not 0 <= self.headroom <= 1:
            raise FieldError("headroom", f"{self.headroom} is not between 0 and 1")


def _adaptive(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(AdaptiveParameters, "adaptive")
    return TcpEndpoint(
        context,
        lambda mss_bytes: Adaptive(
            mss_bytes=mss_bytes,
            initial_window_segments=parameters.initial_window(mss_bytes),
            headroom=parameters.headroom,
        ),
        parameters,
    )


ADAPTIVE = TransportSpec(
    name="adaptive",
    kind="sans-io",
    paths="one",
    description="TCP for periodic bursts: opens at the learned BDP, paced, and gives way only to congestion",
    parameters=AdaptiveParameters,
    make_endpoint=_adaptive,
    colour="#009e73",
    marker="^",
)
