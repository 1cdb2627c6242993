"""The network of a scenario as typed objects: what `bicoastal.build_scenario` takes.

A `Topology` has sites, links and paths. A link loses packets by a `LossSpec`; `Outage` and `RateStep` change it over
time. A `JobPlan` says which paths an all-reduce uses and what it sends.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.experiments.scenario.workload import JobPlan as JobPlan
    from bicoastal.wan.allreduce import AllReduceSpec as AllReduceSpec
    from bicoastal.wan.loss import Bernoulli as Bernoulli
    from bicoastal.wan.loss import Combined as Combined
    from bicoastal.wan.loss import GilbertElliott as GilbertElliott
    from bicoastal.wan.loss import LossSpec as LossSpec
    from bicoastal.wan.loss import NoLoss as NoLoss
    from bicoastal.wan.loss import Periodic as Periodic
    from bicoastal.wan.loss import TailOfBurst as TailOfBurst
    from bicoastal.wan.recorded_loss import Listed as Listed
    from bicoastal.wan.recorded_loss import Trace as Trace
    from bicoastal.wan.schedule import CapacityTrace as CapacityTrace
    from bicoastal.wan.schedule import Outage as Outage
    from bicoastal.wan.schedule import RateStep as RateStep
    from bicoastal.wan.topology import LinkSpec as LinkSpec
    from bicoastal.wan.topology import Path as Path
    from bicoastal.wan.topology import Site as Site
    from bicoastal.wan.topology import Topology as Topology

__all__, __getattr__, __dir__ = exported_by(__name__)
