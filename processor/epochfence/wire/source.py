"""Python source that is put together line by line and kept, so that a person and a traceback can read it."""

import builtins
import linecache
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast


class SourceBuilder:
    """Lines at the right depth, and the objects that they refer to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {}
        self._depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self._depth + text if text else "")

    def listed(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(f"{text},")

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """The lines inside stand one level deeper, under `opening`."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def bind(self, name: str, value: object) -> str:
        """Gives `value` a name that the source can use: `name`, or `name` with a number if that is another's."""
        candidate, number = name, 1
        while self.globals.get(candidate, getattr(builtins, candidate, value)) is not value:
            number += 1
            candidate = f"{name}_{number}"
        self.globals[candidate] = value
        return candidate

    def build(self, function: str, title: str) -> Callable[..., Any]:
        """Runs the source and returns its `function`, with the text in the attribute `source`.

        `title` stands in tracebacks where a file's name would; linecache makes them show the lines too.
        """
        source = "\n".join(self.lines) + "\n"
        filename = f"<{title}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.globals)  # shapes.py has checked every name in it
        built = self.globals[function]
        built.source = source
        return cast(Callable[..., Any], built)
