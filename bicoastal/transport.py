"""For authors of a transport: its specification, the endpoint, its events, and TCP to build on.

`docs/adding-a-transport.md` shows a complete transport. `bicoastal.testing.check_transport` tests one.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.transports.base import Counters as Counters
    from bicoastal.transports.base import Datagram as Datagram
    from bicoastal.transports.base import Encodable as Encodable
    from bicoastal.transports.base import Endpoint as Endpoint
    from bicoastal.transports.base import EndpointContext as EndpointContext
    from bicoastal.transports.base import Machine as Machine
    from bicoastal.transports.base import Pacer as Pacer
    from bicoastal.transports.base import PathView as PathView
    from bicoastal.transports.base import Sample as Sample
    from bicoastal.transports.base import ServiceContext as ServiceContext
    from bicoastal.transports.base import ServicePlacement as ServicePlacement
    from bicoastal.transports.congestion.base import Ack as Ack
    from bicoastal.transports.congestion.base import CongestionControl as CongestionControl
    from bicoastal.transports.events import Buffer as Buffer
    from bicoastal.transports.events import Connected as Connected
    from bicoastal.transports.events import Event as Event
    from bicoastal.transports.events import Failed as Failed
    from bicoastal.transports.events import MessageReceived as MessageReceived
    from bicoastal.transports.events import Notice as Notice
    from bicoastal.transports.registry import Registry as Registry
    from bicoastal.transports.registry import TransportSpec as TransportSpec
    from bicoastal.transports.registry import UnknownTransportError as UnknownTransportError
    from bicoastal.transports.tcp.connection import TcpEndpoint as TcpEndpoint
    from bicoastal.transports.tcp.parameters import TcpParameters as TcpParameters
    from bicoastal.wan.flow_id import FlowId as FlowId

__all__, __getattr__, __dir__ = exported_by(__name__)
