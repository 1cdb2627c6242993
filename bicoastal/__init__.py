"""Wide-area inter-datacenter transport emulator for training that crosses a continent.

    import bicoastal

    scenario = bicoastal.load_scenario("coast-to-coast", changes={"links.loss": 1e-3})
    results = bicoastal.run(scenario, transports=["adaptive", "cubic"], seeds=[1, 2])
    print(results.table())
    figure = results.figure()

This module has what a script or a notebook needs. Other modules serve one purpose each:

- `bicoastal.network`. The network of a scenario as typed objects: what `bicoastal.build_scenario` takes.
- `bicoastal.runs`. Runs one by one: to plan them, to resume them, and to compare what came of them.
- `bicoastal.planning`. The parts of an extrapolation and of a sizing: stages, needed rates, tails and their evidence.
- `bicoastal.transport`. For authors of a transport: its specification, the endpoint, its events, and TCP to build on.
- `bicoastal.backend`. For authors of a backend: its base class, what it is given, and the record that it returns.
- `bicoastal.testing`. Conformance tests for transports and backends, and their reports.
- `bicoastal.validation`. Comparisons with published figures, and one scenario measured by several backends.
- `bicoastal.machine`. This machine: what it can emulate, how to clean it up, and any program on emulated links.
- `bicoastal.commandline`. For command lines: options, overrides, parsed quantities and printed texts.

`bicoastal.public` lists every public name, module by module.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # the same names for type checkers and editors; a test compares the two lists
    from bicoastal.emulation.base import UnsupportedError as UnsupportedError
    from bicoastal.emulation.records import FlowRecord as FlowRecord
    from bicoastal.emulation.records import FlowSample as FlowSample
    from bicoastal.emulation.records import FlowSummary as FlowSummary
    from bicoastal.emulation.records import IterationRecord as IterationRecord
    from bicoastal.emulation.records import LinkRecord as LinkRecord
    from bicoastal.emulation.records import NoticeRecord as NoticeRecord
    from bicoastal.emulation.records import QueueSample as QueueSample
    from bicoastal.experiments.extrapolation.all_transports import Sizing as Sizing
    from bicoastal.experiments.extrapolation.assumptions import Assumptions as Assumptions
    from bicoastal.experiments.figures.style import save_figure as save_figure
    from bicoastal.experiments.runs.store import RunRow as RunRow
    from bicoastal.experiments.runs.store import StoreError as StoreError
    from bicoastal.experiments.scenario.scenario import Scenario as Scenario
    from bicoastal.experiments.scenario.study import Study as Study
    from bicoastal.experiments.scenario.tables import ScenarioError as ScenarioError
    from bicoastal.interface.deployments import Extrapolation as Extrapolation
    from bicoastal.interface.deployments import exposed_figure as exposed_figure
    from bicoastal.interface.deployments import extrapolate as extrapolate
    from bicoastal.interface.deployments import load_deployment as load_deployment
    from bicoastal.interface.deployments import size as size
    from bicoastal.interface.deployments import stages_figure as stages_figure
    from bicoastal.interface.results import Results as Results
    from bicoastal.interface.runs import open_results as open_results
    from bicoastal.interface.runs import plan_study as plan_study
    from bicoastal.interface.runs import run as run
    from bicoastal.interface.runs import run_tasks as run_tasks
    from bicoastal.interface.scenarios import build_scenario as build_scenario
    from bicoastal.interface.scenarios import list_backends as list_backends
    from bicoastal.interface.scenarios import list_deployments as list_deployments
    from bicoastal.interface.scenarios import list_scenarios as list_scenarios
    from bicoastal.interface.scenarios import list_studies as list_studies
    from bicoastal.interface.scenarios import list_transports as list_transports
    from bicoastal.interface.scenarios import load_scenario as load_scenario
    from bicoastal.interface.scenarios import load_study as load_study
    from bicoastal.interface.table import ResultTable as ResultTable
    from bicoastal.wan.deployment import Deployment as Deployment

__all__, __getattr__, __dir__ = exported_by(__name__)
