"""Each published figure beside ours, and whether ours is within the tolerance."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicoastal.experiments.validation.published import FIGURES, Computed
from bicoastal.experiments.validation.references import Figure, Reference, load_references

Verdict = Literal["ok", "off", "computed", "quoted, not computed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One published figure beside ours."""

    reference: Reference
    figure: Figure
    computed: Computed

    @property
    def relative_error(self) -> float | None:
        """Ours over the published one, minus one; None where there is no such ratio."""
        if self.computed.value is None or self.figure.value == 0:
            return None
        return self.computed.value / self.figure.value - 1

    @property
    def verdict(self) -> Verdict:
        """Whether ours is within the tolerance; a figure that is only quoted is not judged."""
        if self.figure.tolerance is None:
            return "quoted, not computed" if self.computed.value is None else "computed"
        error = self.relative_error
        return "ok" if error is not None and abs(error) <= self.figure.tolerance else "off"

    @property
    def note(self) -> str:
        """What a reader should know of ours, or why there is none."""
        known = self.computed.note or self.computed.value is not None
        return self.computed.note if known else "no formula was found that gives it"


def check_published(
    references: Iterable[Reference] | None = None, computations: Mapping[str, Any] = FIGURES
) -> list[Check]:
    """Return each figure of each reference beside what the computation of its name gives, if there is one.

    references: the bundled ones by default.
    """
    return [
        Check(
            reference=reference,
            figure=figure,
            computed=computations[figure.name](reference.inputs)
            if figure.name in computations
            else Computed(value=None),
        )
        for reference in (load_references() if references is None else references)
        for figure in reference.figures
    ]
