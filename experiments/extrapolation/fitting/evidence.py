"""The evidence for a fitted loss, in words: the links' counts, the completions, and the precision of the test."""

from bicoastal.experiments.extrapolation.fitting.loss_fit import FINE_GAP, Fit
from bicoastal.experiments.extrapolation.tails.window import Tcp


def evidence(fit: Fit, takes: str = "") -> str:
    """Return the sentence for a usable fit. takes: what follows from its loss and from the ends of the interval."""
    loss = f"{fit.loss:.2g} (95 %: {fit.loss_low:.2g} to {fit.loss_high:.2g}{takes})"
    counted, count = fit.measured.counted, len(fit.measured.completions_s)
    if counted is None:
        said = f"nothing counted its losses, and a loss of {loss} explains {count:,} messages best"
    elif counted.in_bursts:
        said = (
            f"{counted.said}, a share of {counted.loss:.2g}, came in bursts ({counted.said_of_bursts}); its model has "
            f"independent ones, of which {loss} explains {count:,} messages best: what a burst loses delays one message"
        )
    elif fit.source == "counted":
        said = f"{counted.said} are a loss of {loss}"
    else:
        said = f"{counted.said} are a share of {counted.loss:.2g}; {count:,} messages show a loss of {loss}"
    if fit.measured.scale != 1:
        said += f"; as lost at rates and payloads ÷{fit.measured.scale:g}, taken to be the same at full rate"
    return f"{said}; {_test(fit)}"


def _test(fit: Fit) -> str:
    what = "connections" if isinstance(fit.model, Tcp) else "messages"
    said = (
        f"model and measurement differ by {fit.gap:.2f}, and {fit.independent:,} {what} cannot tell less than "
        f"{fit.allowed_gap:.2f} from chance"
    )
    return said if fit.independent >= fit.enough else f"{said} ({fit.enough:,} could tell {FINE_GAP:g})"
