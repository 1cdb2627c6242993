"""The TOML files that come with the package, by name: scenarios, studies, deployments and references."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal

Kind = Literal["scenarios", "studies", "deployments", "references"]


def bundled_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of what is bundled, sorted."""
    folder = _folder(kind)
    if not folder.is_dir():
        return ()
    return tuple(sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")))


def bundled_data(kind: Kind, name: str) -> bytes:
    """Return the file called `name`, one of `bundled_names(kind)`."""
    return _folder(kind).joinpath(f"{name}.toml").read_bytes()


def _folder(kind: Kind) -> Traversable:
    return files("experiments").joinpath(kind)
