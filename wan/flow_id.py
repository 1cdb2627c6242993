"""The identity of a flow: its owner, its two sites and its paths."""

from dataclasses import dataclass

from bicoastal.wan.checks import FieldError, check_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowId:
    """Identifies a flow. Its text is a label for people, logs and the names of random streams; no code parses it.

    owner: the job, or the background traffic, that the flow belongs to. source, destination: sites. paths: the names
    of the paths that the flow may use, in the order of the flow.
    Raises FieldError for an empty name, for equal sites, and for a flow without a path.
    """

    owner: str
    source: str
    destination: str
    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("owner", "source", "destination"):
            check_name(name, getattr(self, name))
        if self.source == self.destination:
            raise FieldError("destination", f"the flow starts at {self.source!r} too")
        if not self.paths:
            raise FieldError("paths", "a flow needs at least one")
        for path in self.paths:
            check_name("paths", path)

    def __str__(self) -> str:
        """Return the label, such as `job/west>east/plane0` or `job/west>east/plane0+plane1`."""
        return f"{self.owner}/{self.source}>{self.destination}/{'+'.join(self.paths)}"
