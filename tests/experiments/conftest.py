import pytest

from bicoastal.emulation.registry import BackendRegistry
from bicoastal.transports.registry import Registry
from helpers.fake_backends import BACKENDS, TRANSPORTS


@pytest.fixture
def plain_world(monkeypatch, tmp_path):
    """Let commands find the worlds and transports of the tests, and write below a directory of their own."""
    monkeypatch.setattr(BackendRegistry, "installed", lambda: BACKENDS)
    monkeypatch.setattr(Registry, "installed", lambda: TRANSPORTS)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
