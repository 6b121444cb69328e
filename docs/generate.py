"""Writes the parts of docs/protocol.md that are made from the code: the table of the fold and the lists of words.

python -m docs.generate            rewrites the page
python -m docs.generate --check    says whether it would, and exits with 1 if so
"""

import re
import sys
from enum import StrEnum
from pathlib import Path

from epochfence.protocol.fold import ROWS, Row
from epochfence.protocol.vocabulary import Reason, Status, Verdict

PAGE = Path(__file__).with_name("protocol.md")


def table() -> str:
    """The table of the fold, from `ROWS`."""
    lines = ["| # | event | record | verdict | effect |", "|---|---|---|---|---|"]
    return "\n".join(lines + [f"| {' | '.join(cells(row))} |".replace("|  |", "| |") for row in ROWS])


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """The five cells of a row: its number, event, record, what it decides, and what that does."""
    words: list[str] = [] if row.verdict is None else [row.verdict]
    if row.reason is not Reason.NONE:
        words.append(row.reason)
    if row.event == "ill-formed":
        words.append(f"or {Reason.OVERSIZED}")  # the one pair of rows whose reason is the event's own
    effect = "; ".join(filter(None, (row.effect, row.orphan.value)))
    return str(row.number), row.event, row.record, " ".join(words), effect


def words(enum: type[StrEnum]) -> str:
    """The symbols of an enum in their order, but for the one that closes each of them."""
    return ", ".join(f"`{symbol}`" for symbol in enum if symbol.name != "UNRECOGNIZED") + "."


def generated() -> dict[str, str]:
    """What stands between each pair of markers."""
    return {"table": table(), "verdicts": words(Verdict), "statuses": words(Status), "reasons": words(Reason)}


def rewritten(page: str) -> str:
    """The page with everything between markers made anew. Raises ValueError where a pair of markers is missing."""
    for name, text in generated().items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        page, count = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}",
            lambda _, block=f"{begin}\n{text}\n{end}": block,  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(f"{PAGE.name} has {count} parts between the markers of {name}, not one")
    return page


def main() -> int:
    """Rewrite the page, or with --check only compare."""
    page = PAGE.read_text("utf-8")
    new = rewritten(page)
    if "--check" in sys.argv[1:]:
        if new != page:
            print(f"docs/{PAGE.name} is not what the code says: run python -m docs.generate", file=sys.stderr)
        return int(new != page)
    PAGE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
