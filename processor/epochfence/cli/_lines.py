"""What the listing verbs print: lines of columns that fit 100 cells, and JSON Lines. Coloured on a terminal only.

A rich Table would need all its rows at once; these come one by one, for as long as somebody follows them.
"""

import io
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from epochfence.clients.printable import printable, printable_json
from epochfence.protocol.vocabulary import Status

LINE_CELLS = 100
STATUS_STYLES = {
    Status.INFLIGHT: "cyan",
    Status.COMPENSATING: "yellow",
    Status.COMMITTED: "green",
    Status.CANCELLED: "dim",
    Status.ESCALATED: "bold red",
}
UNSETTLED_STYLE = "bold red"


class Cell(NamedTuple):
    """One column of a line. `text` is ours or was made printable; `width` 0: as long as it is."""

    text: str
    width: int = 0
    style: str = ""
    right: bool = False


class Lines:
    """Standard output, line by line."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that cannot show a character gets its escape, not an error.
            sys.stdout.reconfigure(errors="backslashreplace")
        # Our text is no markup: [red] in an id is an id.
        self._console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)

    def row(self, cells: Iterable[Cell]) -> None:
        """A line of columns, one space apart."""
        text = Text(" ").join(Text(_filled(cell), cell.style) for cell in cells)
        text.rstrip()
        self.text(text)

    def text(self, text: Text | str) -> None:
        """A line as it is."""
        if self._console.is_terminal:
            self._console.print(text)
        else:
            sys.stdout.write(f"{text}\n")

    def json(self, line: bytes) -> None:
        """A line of JSON, with its line feed. To a pipe go the bytes as they are."""
        if sys.stdout.isatty():
            sys.stdout.write(printable_json(line.decode()))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(line)

    def flush(self) -> None:
        """Show what was printed."""
        sys.stdout.flush()


def notify(line: str) -> None:
    """Tell a person what is waited for, without disturbing what is printed."""
    print(f"epochfence: {line}", file=sys.stderr, flush=True)


def cropped(text: str, width: int) -> str:
    """Somebody's text in so many cells, `…` where something is left out."""
    shown = printable(text)
    return shown if cell_len(shown) <= width else set_cell_size(shown, width - 1) + "…"


def size(body: bytes | None) -> str:
    """How long a body is. What is in it is printed in JSON only."""
    if body is None:
        return "none"
    return f"{len(body)} B" if len(body) < 10_000 else f"{len(body) / 1000:,.0f} kB"


def moment(timestamp_ms: int) -> str:
    """Milliseconds since 1970 as a date and time in UTC."""
    try:
        when = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a sender's own clock may say anything
        return f"{timestamp_ms} ms"
    return when.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def _filled(cell: Cell) -> str:
    missing = cell.width - cell_len(cell.text)
    if missing <= 0:
        return cell.text
    return " " * missing + cell.text if cell.right else cell.text + " " * missing
