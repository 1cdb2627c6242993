"""Output for people: as wide as the terminal, and in colour on a terminal."""

from io import StringIO

from rich.console import Console, RenderableType

from bicoastal.experiments.terminal.console import say


def show(*what: RenderableType) -> None:
    """Print tables and texts on stdout, one after another, without blanks at line ends. Raises the errors of `say`.

    Brackets in a text are no markup. Rich writes into a string, and `say` prints that: so `say` reports all errors.
    """
    screen = Console()
    text = StringIO()
    console = Console(
        file=text, width=screen.width, force_terminal=screen.is_terminal, highlight=False, markup=False, emoji=False
    )
    for each in what:
        console.print(each)
    say("\n".join(line.rstrip() for line in text.getvalue().splitlines()))
