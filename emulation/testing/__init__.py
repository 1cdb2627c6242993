"""The conformance suite for backends, for ours and for third parties' alike.

    from bicoastal.emulation.testing import check_backend

    check_backend(MyBackend(Registry.installed())).raise_on_failure()

Each check runs one tiny spec and holds the record against what every world must promise.
"""

from bicoastal.emulation.testing.conformance import (
    BackendConformanceError,
    BackendConformanceReport,
    BackendViolation,
    check_backend,
)

__all__ = ["BackendConformanceError", "BackendConformanceReport", "BackendViolation", "check_backend"]
