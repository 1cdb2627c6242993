"""For authors of a backend: its base class, what it is given, and the record that it returns.

A backend raises `bicoastal.UnsupportedError` for a run that it cannot carry. `bicoastal.testing.check_backend`
tests one.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.emulation.base import Backend as Backend
    from bicoastal.emulation.base import BackgroundSpec as BackgroundSpec
    from bicoastal.emulation.base import Capabilities as Capabilities
    from bicoastal.emulation.base import JobSpec as JobSpec
    from bicoastal.emulation.base import RunFailedError as RunFailedError
    from bicoastal.emulation.base import RunSpec as RunSpec
    from bicoastal.emulation.base import TransportUse as TransportUse
    from bicoastal.emulation.records import RunRecord as RunRecord
    from bicoastal.emulation.registry import BackendRegistry as BackendRegistry
    from bicoastal.emulation.registry import UnknownBackendError as UnknownBackendError

__all__, __getattr__, __dir__ = exported_by(__name__)
