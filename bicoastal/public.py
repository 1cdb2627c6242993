"""The list of all public names: for each module of the interface its names, and the module that defines each.

`bicoastal` itself has what a script or a notebook needs. The other modules serve one kind of reader each. A name is
imported when it is first used, so that `import bicoastal` is quick and changes nothing. What is not in this list may
change without notice.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

PUBLIC: Mapping[str, Mapping[str, str]] = {
    "bicoastal": {
        # Scenarios and studies
        "load_scenario": "interface.scenarios",
        "build_scenario": "interface.scenarios",
        "load_study": "interface.scenarios",
        "list_scenarios": "interface.scenarios",
        "list_studies": "interface.scenarios",
        "list_transports": "interface.scenarios",
        "list_backends": "interface.scenarios",
        "list_deployments": "interface.scenarios",
        "Scenario": "experiments.scenario.scenario",
        "Study": "experiments.scenario.study",
        # Runs and their results
        "run": "interface.runs",
        "plan_study": "interface.runs",
        "run_tasks": "interface.runs",
        "open_results": "interface.runs",
        "Results": "interface.results",
        "ResultTable": "interface.table",
        "RunRow": "experiments.runs.store",
        "IterationRecord": "emulation.records",
        "FlowRecord": "emulation.records",
        "FlowSummary": "emulation.records",
        "FlowSample": "emulation.records",
        "LinkRecord": "emulation.records",
        "QueueSample": "emulation.records",
        "NoticeRecord": "emulation.records",
        "save_figure": "experiments.figures.style",
        # A whole deployment
        "load_deployment": "interface.deployments",
        "extrapolate": "interface.deployments",
        "size": "interface.deployments",
        "exposed_figure": "interface.deployments",
        "stages_figure": "interface.deployments",
        "Deployment": "wan.deployment",
        "Assumptions": "experiments.extrapolation.assumptions",
        "Extrapolation": "interface.deployments",
        "Sizing": "experiments.extrapolation.all_transports",
        # Errors; the message of each is one sentence
        "ScenarioError": "experiments.scenario.tables",
        "StoreError": "experiments.runs.store",
        "UnsupportedError": "emulation.base",
    },
    # The network of a scenario as typed objects: what `bicoastal.build_scenario` takes.
    "bicoastal.network": {
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
        "CapacityTrace": "wan.schedule",
        "RateStep": "wan.schedule",
        "JobPlan": "experiments.scenario.workload",
        "AllReduceSpec": "wan.allreduce",
    },
    # Runs one by one: to plan them, to resume them, and to compare what came of them.
    "bicoastal.runs": {
        "plan_runs": "interface.runs",
        "unfinished": "interface.runs",
        "Task": "experiments.runs.runner",
        "Outcome": "experiments.runs.runner",
        "RunProgress": "interface.runs",
        "TABLES": "experiments.runs.store",
        "Comparison": "experiments.analysis.comparison",
        "TransportResult": "experiments.analysis.comparison",
        "Group": "experiments.analysis.groups",
        "percentile": "experiments.analysis.comparison",
        "comparison_document": "experiments.analysis.comparison",
    },
    # The parts of an extrapolation and of a sizing: stages, needed rates, tails and their evidence.
    "bicoastal.planning": {
        "DEFAULT_DEPLOYMENT": "interface.deployments",
        "DEFAULT_LOSS": "interface.deployments",
        "DEFAULT_SHARE": "interface.deployments",
        "Stage": "experiments.extrapolation.stages",
        "WideArea": "experiments.extrapolation.wide_area",
        "AtScale": "experiments.extrapolation.at_scale",
        "SizingRow": "experiments.extrapolation.all_transports",
        "Need": "experiments.extrapolation.bandwidth_need",
        "step_share": "experiments.extrapolation.bandwidth_need",
        "SCOPES": "experiments.extrapolation.tails.slowest",
        "NO_TRANSPORT": "experiments.extrapolation.tails.models",
        "SAME_ALGORITHM": "experiments.extrapolation.tails.models",
        "WITHOUT_MODEL": "experiments.extrapolation.tails.models",
        "Fit": "experiments.extrapolation.fitting.loss_fit",
        "evidence": "experiments.extrapolation.fitting.evidence",
    },
    # For authors of a transport: its specification, the endpoint, its events, and TCP to build on.
    "bicoastal.transport": {
        "TransportSpec": "transports.registry",
        "Registry": "transports.registry",
        "UnknownTransportError": "transports.registry",
        "Machine": "transports.base",
        "Endpoint": "transports.base",
        "EndpointContext": "transports.base",
        "FlowId": "wan.flow_id",
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
    },
    # For authors of a backend: its base class, what it is given, and the record that it returns.
    "bicoastal.backend": {
        "Backend": "emulation.base",
        "Capabilities": "emulation.base",
        "RunSpec": "emulation.base",
        "JobSpec": "emulation.base",
        "BackgroundSpec": "emulation.base",
        "TransportUse": "emulation.base",
        "RunRecord": "emulation.records",
        "RunFailedError": "emulation.base",
        "BackendRegistry": "emulation.registry",
        "UnknownBackendError": "emulation.registry",
    },
    # Conformance tests for transports and backends, and their reports.
    "bicoastal.testing": {
        "check_transport": "transports.testing",
        "ConformanceReport": "transports.testing",
        "ConformanceError": "transports.testing",
        "Violation": "transports.testing",
        "check_backend": "emulation.testing",
        "BackendConformanceReport": "emulation.testing",
        "BackendConformanceError": "emulation.testing",
        "BackendViolation": "emulation.testing",
    },
    # Comparisons with published figures, and one scenario measured by several backends.
    "bicoastal.validation": {
        "Check": "experiments.validation.checks",
        "check_published": "experiments.validation.checks",
        "measure_worlds": "experiments.validation.worlds",
        "ANALYTIC": "experiments.validation.worlds",
        "WorldCell": "experiments.validation.worlds",
        "WorldRow": "experiments.validation.worlds",
        "DEFAULT_WORLD_ITERATIONS": "experiments.validation.worlds",
        "DEFAULT_WORLD_SEEDS": "experiments.validation.worlds",
        "WORLD_TOLERANCE": "experiments.validation.worlds",
    },
    # This machine: what it can emulate, how to clean it up, and any program on emulated links.
    "bicoastal.machine": {
        "survey": "emulation.probing.host",
        "HostFacts": "emulation.probing.host",
        "Ceiling": "emulation.probing.host",
        "machine_ceiling": "emulation.probing.ceiling",
        "MachineCeiling": "emulation.probing.ceiling",
        "clean": "emulation.ground.cleanup",
        "run_on_coasts": "interface.programs",
    },
    # For command lines: options, overrides, parsed quantities and printed texts.
    "bicoastal.commandline": {
        "DEFAULT_SCENARIO": "experiments.scenario.scenario",
        "MAX_SEEDS": "experiments.scenario.scenario",
        "Override": "experiments.scenario.overrides",
        "option": "experiments.scenario.overrides",
        "parse_override": "experiments.scenario.overrides",
        "setting": "experiments.scenario.overrides",
        "check_transports": "interface.scenarios",
        "meaning_of": "experiments.analysis.comparison",
        "rounded": "experiments.analysis.rounding",
        "format_milliseconds": "experiments.analysis.comparison",
        "parse_rate": "wan.units",
        "parse_time": "wan.units",
        "parse_size": "wan.units",
        "parse_probability": "wan.units",
        "format_rate": "wan.units",
        "format_time": "wan.units",
        "format_size": "wan.units",
        "cut": "wan.checks",
        "shown": "experiments.scenario.tables",
        "written_whole": "experiments.runs.whole_files",
    },
}
"""By module: each public name, with the module of this package that defines it."""


def exported_by(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` (PEP 562) of a module of the interface.

    module: its full name, a key of `PUBLIC`. The module of a name is imported each time that the name is read; after
    the first time Python finds it in `sys.modules`.
    """
    homes = PUBLIC[module]

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(f"bicoastal.{homes[name]}"), name)

    return list(homes), load, lambda: sorted(homes)
