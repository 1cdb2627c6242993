"""Backends by name: the built-in ones and those of third parties are found in the same way."""

from importlib.metadata import EntryPoint, entry_points

from bicoastal.emulation.base import Backend
from bicoastal.wan.checks import quoted

GROUP = "bicoastal.backends"


class UnknownBackendError(LookupError):
    """No backend has this name; the message says which there are."""


class BackendRegistry:
    """An immutable table of backends, read from the entry points of every installed package."""

    def __init__(self, entries: dict[str, EntryPoint]) -> None:
        self._entries = entries

    @classmethod
    def installed(cls) -> "BackendRegistry":
        """Return the backends of all installed packages; each is imported only when it is resolved."""
        return cls({entry.name: entry for entry in entry_points(group=GROUP)})

    def names(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        return tuple(sorted(self._entries))

    def resolve(self, name: str) -> type[Backend]:
        """Return the class of the backend called `name`. Raises UnknownBackendError in one sentence."""
        if name not in self._entries:
            raise UnknownBackendError(f"there is no backend {quoted(name)}; there are {', '.join(self.names())}")
        try:
            backend = self._entries[name].load()
        except (ImportError, AttributeError) as error:
            raise UnknownBackendError(f"backend {name!r} cannot be loaded: {error}") from error
        except (Exception, SystemExit) as error:  # a third party's module may run any code when it is imported
            raise UnknownBackendError(f"backend {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
        if not (isinstance(backend, type) and issubclass(backend, Backend)):
            raise UnknownBackendError(f"backend {name!r} is not a Backend")
        return backend
