"""How every command prints what people read: as wide as the terminal, in colour where there is one."""

from io import StringIO

from rich.console import Console, RenderableType

from bicoastal.experiments.terminal.console import say


def show(*what: RenderableType) -> None:
    """Print tables and texts on stdout, one after another, no line with blanks at its end. Raises as `say` does.

    Text counts as it stands, brackets included. Rich itself does not come near stdout, so that what goes wrong there is
    always `say`'s to tell.
    """
    screen = Console()
    text = StringIO()
    console = Console(
        file=text, width=screen.width, force_terminal=screen.is_terminal, highlight=False, markup=False, emoji=False
    )
    for each in what:
        console.print(each)
    say("\n".join(line.rstrip() for line in text.getvalue().splitlines()))
