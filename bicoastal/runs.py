"""Runs one by one: to plan them, to resume them, and to compare what came of them.

`bicoastal.run` does all of this in one call. This module is for programs that choose the runs themselves.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.experiments.analysis.comparison import Comparison as Comparison
    from bicoastal.experiments.analysis.comparison import TransportResult as TransportResult
    from bicoastal.experiments.analysis.comparison import comparison_document as comparison_document
    from bicoastal.experiments.analysis.comparison import percentile as percentile
    from bicoastal.experiments.analysis.groups import Group as Group
    from bicoastal.experiments.runs.runner import Outcome as Outcome
    from bicoastal.experiments.runs.runner import Task as Task
    from bicoastal.experiments.runs.store import TABLES as TABLES
    from bicoastal.interface.runs import RunProgress as RunProgress
    from bicoastal.interface.runs import plan_runs as plan_runs
    from bicoastal.interface.runs import unfinished as unfinished

__all__, __getattr__, __dir__ = exported_by(__name__)
