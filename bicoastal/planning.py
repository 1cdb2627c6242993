"""The parts of an extrapolation and of a sizing: stages, needed rates, tails and their evidence.

`bicoastal.extrapolate` and `bicoastal.size` return them.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.experiments.extrapolation.all_transports import SizingRow as SizingRow
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
    from bicoastal.interface.deployments import DEFAULT_DEPLOYMENT as DEFAULT_DEPLOYMENT
    from bicoastal.interface.deployments import DEFAULT_LOSS as DEFAULT_LOSS
    from bicoastal.interface.deployments import DEFAULT_SHARE as DEFAULT_SHARE

__all__, __getattr__, __dir__ = exported_by(__name__)
