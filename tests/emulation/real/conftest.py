import os
from collections.abc import Iterator

import pytest

from helpers.process_table import all_gone, new_mark


@pytest.fixture(scope="module")
def mark() -> Iterator[str]:
    """Whatever a run here starts can be told by it; in the end nothing is left."""
    name, _, value = new_mark().partition("=")
    os.environ[name] = value
    yield f"{name}={value}"
    del os.environ[name]
    assert all_gone(f"{name}={value}")
