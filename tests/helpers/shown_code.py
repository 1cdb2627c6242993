"""The Python code that the README and the pages of docs/ show, so that tests run it as it stands there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> list[Path]:
    """Return the documents: the README and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown_code(part: str) -> str:
    """Return the one block of Python in the documents that has `part` in it."""
    blocks = [
        block
        for page in pages()
        for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if part in block
    ]
    if len(blocks) != 1:
        raise ValueError(f"{len(blocks)} blocks of Python in the documents have {part!r} in them")
    return blocks[0]


def example_transport() -> str:
    """Return the module `scalable.py` of the documents."""
    return shown_code("SCALABLE = TransportSpec(")
