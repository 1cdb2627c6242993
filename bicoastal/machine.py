"""This machine: what it can emulate, how to clean it up, and any program on emulated links.

The commands `doctor`, `clean` and `run` use them.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.emulation.ground.cleanup import clean as clean
    from bicoastal.emulation.probing.ceiling import MachineCeiling as MachineCeiling
    from bicoastal.emulation.probing.ceiling import machine_ceiling as machine_ceiling
    from bicoastal.emulation.probing.host import Ceiling as Ceiling
    from bicoastal.emulation.probing.host import HostFacts as HostFacts
    from bicoastal.emulation.probing.host import survey as survey
    from bicoastal.interface.programs import run_on_coasts as run_on_coasts

__all__, __getattr__, __dir__ = exported_by(__name__)
