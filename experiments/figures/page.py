"""One HTML page of the results of a directory, with tables and figures in it, for any browser."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape

from matplotlib.figure import Figure

from bicoastal.experiments.analysis.comparison import TransportResult, format_milliseconds, meaning_of
from bicoastal.experiments.analysis.groups import MOST_NAMED, Group, distinct, enumerated, varied
from bicoastal.experiments.figures.curves import curve_figures
from bicoastal.experiments.figures.overview import overview_figure
from bicoastal.experiments.figures.series import series_figure
from bicoastal.experiments.figures.style import png_of
from bicoastal.experiments.runs.store import Store
from bicoastal.transports.registry import Registry, UnknownTransportError

MOST_DRAWN = 6  # groups with figures of their own; more groups are shown by curves and tables alone
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
.failed { color: #b00020; } .degraded { color: #9a6700; } .unsupported { color: #777; }
.notes { color: #555; font-size: .9rem; margin: .3rem 0; } .wide { overflow-x: auto; }
img { width: 100%; min-width: 48rem; max-width: 90rem; height: auto; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def to_page(store: Store, groups: Sequence[Group], registry: Registry) -> str:
    """Return the page: curves if something is varied, then a table for each group, and figures of a few groups.

    The page loads nothing and runs nothing. The same results give the same bytes. Raises StoreError.
    """
    title = ", ".join(dict.fromkeys(group.study or group.comparison.scenario for group in groups))
    parts = [f"<h1>{escape(title)}</h1>", _contents(groups)]
    parts += _curves(groups, registry)
    for number, group in enumerate(groups):
        parts += [f'<h2 id="group{number}">{escape(_heading(group))}</h2>', _table(group)]
        troubles = [result.trouble for result in group.comparison.transports if result.trouble]
        parts += [f'<p class="notes">{escape(trouble)}</p>' for trouble in troubles]
        if len(groups) <= MOST_DRAWN:
            parts += _image("overview", overview_figure(group.comparison, registry))
            parts += _image("series", series_figure(store, group.comparison, registry))
    first = groups[0].comparison
    names = dict.fromkeys(result.name for group in groups for result in group.comparison.transports)
    parts += ["<h2>Transports</h2>", *(_described(name, registry) for name in names)]
    parts += ["<h2>What the numbers mean</h2>", *(f'<p class="notes">{escape(x)}</p>' for x in meaning_of(first))]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _curves(groups: Sequence[Group], registry: Registry) -> Iterator[str]:
    """Give the curves of each series, under the conditions that distinguish it from the other series."""
    series = _series(groups)
    shared = [tuple(each for each in members[0].conditions if _everywhere(each, members)) for members in series]
    for members, differing in zip(series, distinct(shared), strict=True):
        figures = curve_figures(members, registry, labels=members[0].labels)
        if figures and len(series) > 1:
            yield f'<p class="notes">{escape(enumerated(differing[:MOST_NAMED]))}</p>'
        for name, figure in figures.items():
            yield from _image(name, figure)


def _everywhere(condition: str, groups: Sequence[Group]) -> bool:
    return all(condition in group.conditions for group in groups)


def _series(groups: Sequence[Group]) -> list[list[Group]]:
    """Return the groups of each series of curves: one scenario, world and set of keys, and each setting once."""
    found: dict[tuple[object, ...], list[dict[tuple[tuple[str, str], ...], Group]]] = {}
    for group in groups:
        comparison, settings = group.comparison, tuple(group.settings.items())
        kind = (comparison.scenario, comparison.backend, comparison.scale, group.source, *group.settings)
        alike = found.setdefault(kind, [])
        series = next((each for each in alike if settings not in each), None)
        if series is None:
            alike.append(series := {})
        series[settings] = group
    return [list(each.values()) for alike in found.values() for each in alike]


def _contents(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return ""
    items = "".join(f'<li><a href="#group{n}">{escape(_heading(group))}</a></li>' for n, group in enumerate(groups))
    labels = {key: label for group in groups for key, label in group.labels.items()}
    what = ", ".join(f"{labels.get(key, key)} ({len(values)} values)" for key, values in varied(groups).items())
    return f'<p class="notes">Varied: {escape(what)}</p><ul>{items}</ul>' if what else f"<ul>{items}</ul>"


def _heading(group: Group) -> str:
    comparison = group.comparison
    world = comparison.backend if comparison.scale == 1 else f"{comparison.backend}, divided by {comparison.scale:g}"
    return f"{comparison.scenario} in {world}" + (f": {group.name}" if group.name else "")


def _table(group: Group) -> str:
    headings = ("transport", "status", *group.comparison.transports[0].cells())
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    rows = "".join(_row(result) for result in group.comparison.transports)
    bound = format_milliseconds(group.comparison.bound_s)
    notes = "".join(f'<p class="notes">{escape(note)}</p>' for note in group.notes)
    return (
        f'{notes}<p class="notes">Completion of an iteration, ms; the bound is {bound}.</p>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(result: TransportResult) -> str:
    status = f'<td class="{result.status}">{result.status}</td>'
    figures = "".join(f"<td>{cell}</td>" for cell in result.cells().values())
    return f"<tr><td>{escape(result.name)}</td>{status}{figures}</tr>"


def _described(name: str, registry: Registry) -> str:
    try:
        description = registry.resolve(name).description
    except UnknownTransportError as error:
        description = str(error)
    return f'<p class="notes"><b>{escape(name)}</b>: {escape(description)}</p>'


def _image(name: str, figure: Figure | None) -> Iterator[str]:
    if figure is not None:
        data = b64encode(png_of(figure)).decode()
        yield f'<p class="wide"><img alt="{escape(name)}" src="data:image/png;base64,{data}"></p>'
