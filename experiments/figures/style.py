"""The style of every figure: a figure class that keeps it, the look of each transport, and the writing of files."""

import re
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import is_color_like
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle

from bicoastal.experiments.runs.whole_files import written_whole
from bicoastal.transports.registry import Registry, UnknownTransportError

STYLE: dict[Any, Any] = {  # of every picture; matplotlib's stubs want its 300 keys as literals
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}
BOUND_COLOUR = "#444444"
_SPARE_COLOURS = (
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
)  # of Okabe and Ito's palette, which colour-blind readers can distinguish
_SPARE_MARKERS = ("D", "v", "P", "X")
LOG_FROM_RATIO = 4.0  # slowest over fastest; above this a linear axis hides the fast ones
_DOTS_PER_INCH = 130


class StyledFigure(Figure):
    """A figure that keeps this project's style when it is drawn, whatever style the program around it has set.

    It does not use pyplot: it opens no window and is kept in no list of figures. matplotlib makes the ticks of an axis
    only when it draws them, so the style is applied at that time too. A notebook shows the figure as a PNG image.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure in its own style."""
        with mpl.rc_context(STYLE):
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        """Return the figure as IPython shows it."""
        return png_of(self)


class Look(NamedTuple):
    """How a transport is drawn."""

    colour: str
    marker: str


_PLAIN = Look("#666666", "o")


def looks_of(names: Iterable[str], registry: Registry) -> dict[str, Look]:
    """Return each transport's colour and marker: those of its specification, or others if these are taken.

    A plain look replaces a colour or marker that matplotlib does not know, and that of a transport that is not
    installed any more.
    """
    looks: dict[str, Look] = {}
    for name in names:
        wanted = _wanted_look(name, registry)
        colours, markers = ({look[part] for look in looks.values()} for part in (0, 1))
        # a third party's transports may all have the default look
        own_colour = wanted.colour if is_color_like(wanted.colour) else _PLAIN.colour
        own_marker = wanted.marker if wanted.marker in MarkerStyle.markers else _PLAIN.marker
        colour = next((c for c in (own_colour, *_SPARE_COLOURS) if c not in colours), own_colour)
        marker = next((m for m in (own_marker, *_SPARE_MARKERS) if m not in markers), own_marker)
        looks[name] = Look(colour, marker)
    return looks


def _wanted_look(name: str, registry: Registry) -> Look:
    try:
        spec = registry.resolve(name)
    except UnknownTransportError:
        return _PLAIN
    return Look(spec.colour, spec.marker)


def png_of(figure: Figure) -> bytes:
    """Return a figure as a PNG image with neither a date nor a version in it: the same figure gives the same bytes."""
    image = BytesIO()
    _write(figure, image)
    return image.getvalue()


def save_figure(figure: Figure, path: Path | str) -> Path:
    """Write a figure as a PNG file, whole or not at all, and return its path.

    The file holds neither a date nor a version, so the same figure gives the same bytes. Raises StoreError, in one
    sentence, where the file cannot be written.
    """
    path = Path(path)
    with written_whole(path) as unfinished:
        _write(figure, unfinished)
    return path


def _write(figure: Figure, target: Path | BytesIO) -> None:
    FigureCanvasAgg(figure)
    figure.savefig(target, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})


def add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend beside the title, where it hides no data."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def short_probability(loss: float) -> str:
    """Return a probability as people write it: 1e-5, not 1e-05."""
    return re.sub(r"\.?0*e-0?", "e-", f"{loss:.2e}") if 0 < loss < 0.01 else f"{loss:g}"
