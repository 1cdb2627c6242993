"""Conformance tests for transports and backends, and their reports.

Use them in the tests of your own package: a failed check raises an error that lists each violation.
"""

from typing import TYPE_CHECKING

from bicoastal.public import exported_by

if TYPE_CHECKING:  # as in `bicoastal` itself
    from bicoastal.emulation.testing import BackendConformanceError as BackendConformanceError
    from bicoastal.emulation.testing import BackendConformanceReport as BackendConformanceReport
    from bicoastal.emulation.testing import BackendViolation as BackendViolation
    from bicoastal.emulation.testing import check_backend as check_backend
    from bicoastal.transports.testing import ConformanceError as ConformanceError
    from bicoastal.transports.testing import ConformanceReport as ConformanceReport
    from bicoastal.transports.testing import Violation as Violation
    from bicoastal.transports.testing import check_transport as check_transport

__all__, __getattr__, __dir__ = exported_by(__name__)
