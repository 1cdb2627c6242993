"""The conformance suite for backends, for ours and for third parties' alike.

    from emulation.testing import check_backend

    check_backend(MyBackend(Registry.installed())).raise_on_failure()

Each check runs one tiny spec and holds the record against what every world must promise.
"""

from emulation.testing.conformance import BackendConformanceError, BackendReport, BackendViolation, check_backend

__all__ = ["BackendConformanceError", "BackendReport", "BackendViolation", "check_backend"]
