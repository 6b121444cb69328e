"""Puts a mutant in the place of production code, in this process, and takes it back.

A mutant is an edit of a module's source. The edited source is compiled, and the code of every function of the live
module is replaced by the edited one's. So whoever imported a function, or holds it in a table, has the mutant; the
production code has no hook for it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """One thing wrong. `caught_by` names the detector that is to notice."""

    name: str
    module: str
    old: str
    new: str
    caught_by: str
    constants: tuple[str, ...] = ()
    """Values of the module that the edit changes too."""


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """The mutant stands where the production code stood."""
    live = import_module(mutant.module)
    path = Path(str(live.__file__))
    source = path.read_text("utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.name}: its text is {source.count(mutant.old)} times in {path.name}"
    edited = types.ModuleType(mutant.module)
    edited.__file__ = live.__file__
    exec(compile(source.replace(mutant.old, mutant.new), str(path), "exec"), edited.__dict__)
    theirs = dict(_functions(edited))
    kept = [(function, function.__code__) for name, function in _functions(live) if name in theirs]
    values = {name: getattr(live, name) for name in mutant.constants}
    try:
        for name, function in _functions(live):
            if name in theirs:
                function.__code__ = theirs[name].__code__
        for name in mutant.constants:
            setattr(live, name, getattr(edited, name))
        yield
    finally:
        for function, code in kept:
            function.__code__ = code
        for name, value in values.items():
            setattr(live, name, value)


def _functions(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    """Every function and method that is written in the module, by its qualified name."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = list(vars(value).values()) if isinstance(value, type) else [value]
        for member in members:
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            # What dataclasses make is not written in the file.
            if isinstance(function, types.FunctionType) and function.__code__.co_filename == module.__file__:
                yield function.__qualname__, function
