"""For command lines: options, overrides, parsed quantities and printed texts.

The project's own commands use them. A script rarely needs them.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.experiments.analysis.comparison import format_milliseconds as format_milliseconds
    from bicoastal.experiments.analysis.comparison import meaning_of as meaning_of
    from bicoastal.experiments.analysis.rounding import rounded as rounded
    from bicoastal.experiments.runs.whole_files import written_whole as written_whole
    from bicoastal.experiments.scenario.overrides import Override as Override
    from bicoastal.experiments.scenario.overrides import option as option
    from bicoastal.experiments.scenario.overrides import parse_override as parse_override
    from bicoastal.experiments.scenario.overrides import setting as setting
    from bicoastal.experiments.scenario.scenario import DEFAULT_SCENARIO as DEFAULT_SCENARIO
    from bicoastal.experiments.scenario.scenario import MAX_SEEDS as MAX_SEEDS
    from bicoastal.experiments.scenario.tables import shown as shown
    from bicoastal.interface.scenarios import check_transports as check_transports
    from bicoastal.wan.checks import cut as cut
    from bicoastal.wan.units import format_rate as format_rate
    from bicoastal.wan.units import format_size as format_size
    from bicoastal.wan.units import format_time as format_time
    from bicoastal.wan.units import parse_probability as parse_probability
    from bicoastal.wan.units import parse_rate as parse_rate
    from bicoastal.wan.units import parse_size as parse_size
    from bicoastal.wan.units import parse_time as parse_time

__all__, __getattr__, __dir__ = exported_by(__name__)
