"""The conformance suite for backends, built-in ones and those of third parties.

    from bicoastal.emulation.testing import check_backend

    check_backend(MyBackend(Registry.installed())).raise_on_failure()

Each check runs a small spec and compares the record with the rules that every world must follow.
"""

from bicoastal.emulation.testing.conformance import (
    BackendConformanceError,
    BackendConformanceReport,
    BackendViolation,
    check_backend,
)

__all__ = ["BackendConformanceError", "BackendConformanceReport", "BackendViolation", "check_backend"]
