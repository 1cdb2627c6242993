"""Wide-area inter-datacenter transport emulator for training that crosses a continent.

    import bicoastal

    scenario = bicoastal.load_scenario("coast-to-coast", changes={"links.loss": 1e-3})
    results = bicoastal.run(scenario, transports=["adaptive", "cubic"], seeds=[1, 2])
    print(results.table())
    figure = results.figure()

This module lists all that is public: `_HOMES` below, in groups, by who needs it. A name is imported when it is first
used, so that `import bicoastal` is quick and changes nothing. What is not in the list may change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    # Scenarios and studies
    "load_scenario": "interface.scenarios",
    "build_scenario": "interface.scenarios",
    "load_study": "interface.scenarios",
    "check_transports": "interface.scenarios",
    "list_scenarios": "interface.scenarios",
    "list_studies": "interface.scenarios",
    "list_transports": "interface.scenarios",
    "list_backends": "interface.scenarios",
    "list_deployments": "interface.scenarios",
    "Scenario": "experiments.scenario.scenario",
    "DEFAULT_SCENARIO": "experiments.scenario.scenario",
    "MAX_SEEDS": "experiments.scenario.scenario",
    "Study": "experiments.scenario.study",
    "JobPlan": "experiments.scenario.workload",
    "Override": "experiments.scenario.overrides",
    "option": "experiments.scenario.overrides",
    "parse_override": "experiments.scenario.overrides",
    "setting": "experiments.scenario.overrides",
    # Runs and their results
    "RunProgress": "interface.results",
    "run": "interface.results",
    "plan_runs": "interface.results",
    "plan_study": "interface.results",
    "run_tasks": "interface.results",
    "unfinished": "interface.results",
    "open_results": "interface.results",
    "Results": "interface.results",
    "ResultTable": "interface.table",
    "Task": "experiments.runs.runner",
    "Outcome": "experiments.runs.runner",
    "RunRow": "experiments.runs.store",
    "TABLES": "experiments.runs.store",
    "Comparison": "experiments.analysis.comparison",
    "TransportResult": "experiments.analysis.comparison",
    "percentile": "experiments.analysis.comparison",
    "format_milliseconds": "experiments.analysis.comparison",
    "meaning_of": "experiments.analysis.comparison",
    "comparison_document": "experiments.analysis.comparison",
    "Group": "experiments.analysis.groups",
    "rounded": "experiments.analysis.rounding",
    "save_figure": "experiments.figures.style",
    "written_whole": "experiments.runs.whole_files",
    "RunRecord": "emulation.records",
    "IterationRecord": "emulation.records",
    "FlowRecord": "emulation.records",
    "FlowSummary": "emulation.records",
    "FlowSample": "emulation.records",
    "LinkRecord": "emulation.records",
    "QueueSample": "emulation.records",
    "NoticeRecord": "emulation.records",
    # A whole deployment
    "load_deployment": "interface.deployments",
    "extrapolate": "interface.deployments",
    "size": "interface.deployments",
    "exposed_figure": "interface.deployments",
    "stages_figure": "interface.deployments",
    "Extrapolation": "interface.deployments",
    "DEFAULT_DEPLOYMENT": "interface.deployments",
    "DEFAULT_LOSS": "interface.deployments",
    "DEFAULT_SHARE": "interface.deployments",
    "Deployment": "wan.deployment",
    "Assumptions": "experiments.extrapolation.assumptions",
    "Stage": "experiments.extrapolation.stages",
    "WideArea": "experiments.extrapolation.wide_area",
    "AtScale": "experiments.extrapolation.at_scale",
    "Sizing": "experiments.extrapolation.all_transports",
    "SizingRow": "experiments.extrapolation.all_transports",
    "Need": "experiments.extrapolation.bandwidth_need",
    "step_share": "experiments.extrapolation.bandwidth_need",
    "SCOPES": "experiments.extrapolation.tails.slowest",
    "NO_TRANSPORT": "experiments.extrapolation.tails.models",
    "SAME_ALGORITHM": "experiments.extrapolation.tails.models",
    "WITHOUT_MODEL": "experiments.extrapolation.tails.models",
    "Fit": "experiments.extrapolation.fitting.loss_fit",
    "evidence": "experiments.extrapolation.fitting.evidence",
    # Is it true: published figures, and one scenario in several worlds
    "Check": "experiments.validation.checks",
    "check_published": "experiments.validation.checks",
    "measure_worlds": "experiments.validation.worlds",
    "ANALYTIC": "experiments.validation.worlds",
    "WorldCell": "experiments.validation.worlds",
    "WorldRow": "experiments.validation.worlds",
    "DEFAULT_WORLD_ITERATIONS": "experiments.validation.worlds",
    "DEFAULT_WORLD_SEEDS": "experiments.validation.worlds",
    "WORLD_TOLERANCE": "experiments.validation.worlds",
    # This machine, and any program on the links
    "survey": "emulation.probing.host",
    "HostFacts": "emulation.probing.host",
    "Ceiling": "emulation.probing.host",
    "machine_ceiling": "emulation.probing.ceiling",
    "MachineCeiling": "emulation.probing.ceiling",
    "clean": "emulation.ground.cleanup",
    "run_on_coasts": "interface.programs",
    # The network of a scenario, as typed objects
    "Topology": "wan.topology",
    "Site": "wan.topology",
    "LinkSpec": "wan.topology",
    "Path": "wan.topology",
    "LossSpec": "wan.loss",
    "NoLoss": "wan.loss",
    "Bernoulli": "wan.loss",
    "Periodic": "wan.loss",
    "GilbertElliott": "wan.loss",
    "TailOfBurst": "wan.loss",
    "Combined": "wan.loss",
    "Listed": "wan.recorded_loss",
    "Trace": "wan.recorded_loss",
    "Outage": "wan.schedule",
    "RateStep": "wan.schedule",
    "AllReduceSpec": "wan.allreduce",
    # For who writes a transport
    "TransportSpec": "transports.registry",
    "Registry": "transports.registry",
    "UnknownTransportError": "transports.registry",
    "Machine": "transports.base",
    "Endpoint": "transports.base",
    "EndpointContext": "transports.base",
    "PathView": "transports.base",
    "Datagram": "transports.base",
    "Encodable": "transports.base",
    "Sample": "transports.base",
    "Counters": "transports.base",
    "Pacer": "transports.base",
    "ServiceContext": "transports.base",
    "ServicePlacement": "transports.base",
    "Event": "transports.events",
    "Connected": "transports.events",
    "MessageReceived": "transports.events",
    "Failed": "transports.events",
    "Notice": "transports.events",
    "Buffer": "transports.events",
    "CongestionControl": "transports.congestion.base",
    "Ack": "transports.congestion.base",
    "TcpEndpoint": "transports.tcp.connection",
    "TcpParameters": "transports.tcp.parameters",
    "check_transport": "transports.testing",
    "ConformanceReport": "transports.testing",
    "ConformanceError": "transports.testing",
    "Violation": "transports.testing",
    # For who writes a backend
    "Backend": "emulation.base",
    "Capabilities": "emulation.base",
    "RunSpec": "emulation.base",
    "JobSpec": "emulation.base",
    "BackgroundSpec": "emulation.base",
    "TransportUse": "emulation.base",
    "BackendRegistry": "emulation.registry",
    "UnknownBackendError": "emulation.registry",
    "check_backend": "emulation.testing",
    "BackendConformanceReport": "emulation.testing",
    "BackendConformanceError": "emulation.testing",
    "BackendViolation": "emulation.testing",
    # Errors; the message of each is one sentence
    "ScenarioError": "experiments.scenario.tables",
    "StoreError": "experiments.runs.store",
    "UnsupportedError": "emulation.base",
    "RunFailedError": "emulation.base",
    # Quantities and texts
    "parse_rate": "wan.units",
    "parse_time": "wan.units",
    "parse_size": "wan.units",
    "parse_probability": "wan.units",
    "format_rate": "wan.units",
    "format_time": "wan.units",
    "format_size": "wan.units",
    "cut": "wan.checks",
    "shown": "experiments.scenario.tables",
}
"""Every public name, with the module of this package that has it."""

__all__ = list(_HOMES)

if TYPE_CHECKING:  # the same names for type checkers and editors; a test compares the two lists
    from bicoastal.emulation.base import Backend as Backend
    from bicoastal.emulation.base import BackgroundSpec as BackgroundSpec
    from bicoastal.emulation.base import Capabilities as Capabilities
    from bicoastal.emulation.base import JobSpec as JobSpec
    from bicoastal.emulation.base import RunFailedError as RunFailedError
    from bicoastal.emulation.base import RunSpec as RunSpec
    from bicoastal.emulation.base import TransportUse as TransportUse
    from bicoastal.emulation.base import UnsupportedError as UnsupportedError
    from bicoastal.emulation.ground.cleanup import clean as clean
    from bicoastal.emulation.probing.ceiling import MachineCeiling as MachineCeiling
    from bicoastal.emulation.probing.ceiling import machine_ceiling as machine_ceiling
    from bicoastal.emulation.probing.host import Ceiling as Ceiling
    from bicoastal.emulation.probing.host import HostFacts as HostFacts
    from bicoastal.emulation.probing.host import survey as survey
    from bicoastal.emulation.records import FlowRecord as FlowRecord
    from bicoastal.emulation.records import FlowSample as FlowSample
    from bicoastal.emulation.records import FlowSummary as FlowSummary
    from bicoastal.emulation.records import IterationRecord as IterationRecord
    from bicoastal.emulation.records import LinkRecord as LinkRecord
    from bicoastal.emulation.records import NoticeRecord as NoticeRecord
    from bicoastal.emulation.records import QueueSample as QueueSample
    from bicoastal.emulation.records import RunRecord as RunRecord
    from bicoastal.emulation.registry import BackendRegistry as BackendRegistry
    from bicoastal.emulation.registry import UnknownBackendError as UnknownBackendError
    from bicoastal.emulation.testing import BackendConformanceError as BackendConformanceError
    from bicoastal.emulation.testing import BackendConformanceReport as BackendConformanceReport
    from bicoastal.emulation.testing import BackendViolation as BackendViolation
    from bicoastal.emulation.testing import check_backend as check_backend
    from bicoastal.experiments.analysis.comparison import Comparison as Comparison
    from bicoastal.experiments.analysis.comparison import TransportResult as TransportResult
    from bicoastal.experiments.analysis.comparison import comparison_document as comparison_document
    from bicoastal.experiments.analysis.comparison import format_milliseconds as format_milliseconds
    from bicoastal.experiments.analysis.comparison import meaning_of as meaning_of
    from bicoastal.experiments.analysis.comparison import percentile as percentile
    from bicoastal.experiments.analysis.groups import Group as Group
    from bicoastal.experiments.analysis.rounding import rounded as rounded
    from bicoastal.experiments.extrapolation.all_transports import Sizing as Sizing
    from bicoastal.experiments.extrapolation.all_transports import SizingRow as SizingRow
    from bicoastal.experiments.extrapolation.assumptions import Assumptions as Assumptions
    from bicoastal.experiments.extrapolation.at_scale import AtScale as AtScale
    from bicoastal.experiments.extrapolation.bandwidth_need import Need as Need
    from bicoastal.experiments.extrapolation.bandwidth_need import step_share as step_share
    from bicoastal.experiments.extrapolation.fitting.evidence import evidence as evidence
    from bicoastal.experiments.extrapolation.fitting.loss_fit import Fit as Fit
    from bicoastal.experiments.extrapolation.stages import Stage as Stage
    from bicoastal.experiments.extrapolation.tails.models import NO_TRANSPORT as NO_TRANSPORT
    from bicoastal.experiments.extrapolation.tails.models import SAME_ALGORITHM as SAME_ALGORITHM
    from bicoastal.experiments.extrapolation.tails.models import WITHOUT_MODEL as WITHOUT_MODEL
    from bicoastal.experiments.extrapolation.tails.slowest import SCOPES as SCOPES
    from bicoastal.experiments.extrapolation.wide_area import WideArea as WideArea
    from bicoastal.experiments.figures.style import save_figure as save_figure
    from bicoastal.experiments.runs.runner import Outcome as Outcome
    from bicoastal.experiments.runs.runner import Task as Task
    from bicoastal.experiments.runs.store import TABLES as TABLES
    from bicoastal.experiments.runs.store import RunRow as RunRow
    from bicoastal.experiments.runs.store import StoreError as StoreError
    from bicoastal.experiments.runs.whole_files import written_whole as written_whole
    from bicoastal.experiments.scenario.overrides import Override as Override
    from bicoastal.experiments.scenario.overrides import option as option
    from bicoastal.experiments.scenario.overrides import parse_override as parse_override
    from bicoastal.experiments.scenario.overrides import setting as setting
    from bicoastal.experiments.scenario.scenario import DEFAULT_SCENARIO as DEFAULT_SCENARIO
    from bicoastal.experiments.scenario.scenario import MAX_SEEDS as MAX_SEEDS
    from bicoastal.experiments.scenario.scenario import Scenario as Scenario
    from bicoastal.experiments.scenario.study import Study as Study
    from bicoastal.experiments.scenario.tables import ScenarioError as ScenarioError
    from bicoastal.experiments.scenario.tables import shown as shown
    from bicoastal.experiments.scenario.workload import JobPlan as JobPlan
    from bicoastal.experiments.validation.checks import Check as Check
    from bicoastal.experiments.validation.checks import check_published as check_published
    from bicoastal.experiments.validation.worlds import ANALYTIC as ANALYTIC
    from bicoastal.experiments.validation.worlds import DEFAULT_WORLD_ITERATIONS as DEFAULT_WORLD_ITERATIONS
    from bicoastal.experiments.validation.worlds import DEFAULT_WORLD_SEEDS as DEFAULT_WORLD_SEEDS
    from bicoastal.experiments.validation.worlds import WORLD_TOLERANCE as WORLD_TOLERANCE
    from bicoastal.experiments.validation.worlds import WorldCell as WorldCell
    from bicoastal.experiments.validation.worlds import WorldRow as WorldRow
    from bicoastal.experiments.validation.worlds import measure_worlds as measure_worlds
    from bicoastal.interface.deployments import DEFAULT_DEPLOYMENT as DEFAULT_DEPLOYMENT
    from bicoastal.interface.deployments import DEFAULT_LOSS as DEFAULT_LOSS
    from bicoastal.interface.deployments import DEFAULT_SHARE as DEFAULT_SHARE
    from bicoastal.interface.deployments import Extrapolation as Extrapolation
    from bicoastal.interface.deployments import exposed_figure as exposed_figure
    from bicoastal.interface.deployments import extrapolate as extrapolate
    from bicoastal.interface.deployments import load_deployment as load_deployment
    from bicoastal.interface.deployments import size as size
    from bicoastal.interface.deployments import stages_figure as stages_figure
    from bicoastal.interface.programs import run_on_coasts as run_on_coasts
    from bicoastal.interface.results import Results as Results
    from bicoastal.interface.results import RunProgress as RunProgress
    from bicoastal.interface.results import open_results as open_results
    from bicoastal.interface.results import plan_runs as plan_runs
    from bicoastal.interface.results import plan_study as plan_study
    from bicoastal.interface.results import run as run
    from bicoastal.interface.results import run_tasks as run_tasks
    from bicoastal.interface.results import unfinished as unfinished
    from bicoastal.interface.scenarios import build_scenario as build_scenario
    from bicoastal.interface.scenarios import check_transports as check_transports
    from bicoastal.interface.scenarios import list_backends as list_backends
    from bicoastal.interface.scenarios import list_deployments as list_deployments
    from bicoastal.interface.scenarios import list_scenarios as list_scenarios
    from bicoastal.interface.scenarios import list_studies as list_studies
    from bicoastal.interface.scenarios import list_transports as list_transports
    from bicoastal.interface.scenarios import load_scenario as load_scenario
    from bicoastal.interface.scenarios import load_study as load_study
    from bicoastal.interface.table import ResultTable as ResultTable
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
    from bicoastal.transports.testing import ConformanceError as ConformanceError
    from bicoastal.transports.testing import ConformanceReport as ConformanceReport
    from bicoastal.transports.testing import Violation as Violation
    from bicoastal.transports.testing import check_transport as check_transport
    from bicoastal.wan.allreduce import AllReduceSpec as AllReduceSpec
    from bicoastal.wan.checks import cut as cut
    from bicoastal.wan.deployment import Deployment as Deployment
    from bicoastal.wan.loss import Bernoulli as Bernoulli
    from bicoastal.wan.loss import Combined as Combined
    from bicoastal.wan.loss import GilbertElliott as GilbertElliott
    from bicoastal.wan.loss import LossSpec as LossSpec
    from bicoastal.wan.loss import NoLoss as NoLoss
    from bicoastal.wan.loss import Periodic as Periodic
    from bicoastal.wan.loss import TailOfBurst as TailOfBurst
    from bicoastal.wan.recorded_loss import Listed as Listed
    from bicoastal.wan.recorded_loss import Trace as Trace
    from bicoastal.wan.schedule import Outage as Outage
    from bicoastal.wan.schedule import RateStep as RateStep
    from bicoastal.wan.topology import LinkSpec as LinkSpec
    from bicoastal.wan.topology import Path as Path
    from bicoastal.wan.topology import Site as Site
    from bicoastal.wan.topology import Topology as Topology
    from bicoastal.wan.units import format_rate as format_rate
    from bicoastal.wan.units import format_size as format_size
    from bicoastal.wan.units import format_time as format_time
    from bicoastal.wan.units import parse_probability as parse_probability
    from bicoastal.wan.units import parse_rate as parse_rate
    from bicoastal.wan.units import parse_size as parse_size
    from bicoastal.wan.units import parse_time as parse_time


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
