"""aioquic's private names are all listed, exist in the installed aioquic, and are used in one module alone."""

import ast
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from aioquic.quic.connection import QuicConnection
from aioquic.quic.recovery import QuicPacketRecovery
from aioquic.quic.stream import QuicStreamReceiver, QuicStreamSender

import bicoastal.transports
from bicoastal.transports.quic import aioquic_private
from bicoastal.transports.quic.aioquic_private import PRIVATE_NAMES, UNDOCUMENTED_MODULES
from bicoastal.transports.quic.credentials import make_configuration, make_credentials

DOCUMENTED = {
    "aioquic",
    "aioquic.tls",
    *(f"aioquic.quic.{name}" for name in ("configuration", "crypto", "events", "packet")),
}
PLACE = Path(aioquic_private.__file__)


def _objects() -> dict[str, object]:
    """Return one object of each class whose private names are used, as aioquic itself makes it."""
    credentials = make_credentials(Random(1))
    connection = QuicConnection(
        configuration=make_configuration(is_client=True, credentials=credentials, max_datagram_bytes=1200)
    )
    connection.connect("peer", now=0.0)
    recovery = QuicPacketRecovery(
        congestion_control_algorithm="reno",
        initial_rtt=0.1,
        max_datagram_size=1200,
        peer_completed_address_validation=True,
        send_probe=lambda: None,
    )
    return {
        "QuicConnection": connection,
        "tls.Context": connection.tls,
        "QuicPacketRecovery": recovery,
        "QuicStreamReceiver": QuicStreamReceiver(stream_id=0, readable=True),
        "QuicStreamSender": QuicStreamSender(stream_id=0, writable=True),
    }


def _aioquic_names() -> set[str]:
    return {name for thing in _objects().values() for name in dir(thing) if name[0] == "_" and name[1] != "_"}


def _uses(path: Path) -> list[tuple[int, str, bool]]:
    """Return (line, name, whether on self) of every private attribute, and every private method."""
    uses = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            uses.append((node.lineno, node.attr, isinstance(node.value, ast.Name) and node.value.id == "self"))
        elif isinstance(node, ast.FunctionDef):
            uses.append((node.lineno, node.name, True))
    return [use for use in uses if use[1][:1] == "_" and use[1][:2] != "__"]


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in PRIVATE_NAMES.items() for name in names])
def test_the_installed_aioquic_has_every_private_name(owner: str, name: str) -> None:
    reason = PRIVATE_NAMES[owner][name]
    assert hasattr(_objects()[owner], name), f"aioquic's {owner} has no {name} any more; it is used because: {reason}"


def test_the_installed_aioquic_has_every_undocumented_module() -> None:
    for name in UNDOCUMENTED_MODULES:
        import_module(name)


def test_every_private_name_in_the_one_module_is_listed_and_used() -> None:
    listed = {name for names in PRIVATE_NAMES.values() for name in names}
    source = PLACE.read_text(encoding="utf-8")
    code = source[: source.index("PRIVATE_NAMES = {")] + source[source.index("class _Unpaced") :]
    used = {
        word for word in ast.walk(ast.parse(code)) if isinstance(word, ast.Attribute | ast.FunctionDef | ast.Constant)
    }
    names = {getattr(node, "attr", getattr(node, "name", getattr(node, "value", None))) for node in used}
    private = {name for name in names if isinstance(name, str) and name in _aioquic_names()}
    assert private - listed == set(), "a private name of aioquic is used and not listed"
    assert listed - private == set(), "a name is listed and no longer used"
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    undocumented = {name for name in imported if name and name.startswith("aioquic")} - DOCUMENTED
    assert undocumented == {*UNDOCUMENTED_MODULES, "aioquic.quic"}


def test_no_other_module_reaches_into_aioquic() -> None:
    root, known = Path(next(iter(bicoastal.transports.__path__))), _aioquic_names()
    exported = set(aioquic_private.__all__)
    seen = 0
    for path in sorted(root.rglob("*.py")):
        if path.resolve() == PLACE.resolve():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("aioquic") for alias in node.names), f"{path}: {node.lineno}"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aioquic"):
                seen += 1
                assert node.module in DOCUMENTED, f"{path}:{node.lineno}: {node.module} is not documented"
                assert not any(alias.name.startswith("_") for alias in node.names), f"{path}:{node.lineno}"
        if path.parent.name != "quic":
            continue
        derived = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id in exported for b in node.bases)
        ]
        for line, name, on_self in _uses(path):
            inside = any(node.lineno <= line <= (node.end_lineno or line) for node in derived)
            assert name not in known or (on_self and not inside), f"{path}:{line}: {name} is private to aioquic"
    assert seen  # the scan has looked at the right place
