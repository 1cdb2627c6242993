"""Comparisons with published figures, and one scenario measured by several backends.

The commands `validate` and `worlds` print them.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.experiments.validation.checks import Check as Check
    from bicoastal.experiments.validation.checks import check_published as check_published
    from bicoastal.experiments.validation.worlds import ANALYTIC as ANALYTIC
    from bicoastal.experiments.validation.worlds import DEFAULT_WORLD_ITERATIONS as DEFAULT_WORLD_ITERATIONS
    from bicoastal.experiments.validation.worlds import DEFAULT_WORLD_SEEDS as DEFAULT_WORLD_SEEDS
    from bicoastal.experiments.validation.worlds import WORLD_TOLERANCE as WORLD_TOLERANCE
    from bicoastal.experiments.validation.worlds import WorldCell as WorldCell
    from bicoastal.experiments.validation.worlds import WorldRow as WorldRow
    from bicoastal.experiments.validation.worlds import measure_worlds as measure_worlds

__all__, __getattr__, __dir__ = exported_by(__name__)
