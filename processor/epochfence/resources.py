"""The data that rides with the program: the Avro schemas and the description of each topic.

In a wheel they stand beside this module, in epochfence/schemas and epochfence/topics. In a checkout, and so in an
editable install, they stand at the top of the repository, where every language finds them. The working directory
is never looked at.
"""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_SCHEMA_SUFFIX = ".avsc"
_TOPIC_SUFFIX = ".yaml"


def schema_text(name: str) -> str:
    """The JSON text of a schema, by its file's name without the ending: `tool_call`.

    Raises KeyError, naming the schemas that there are, when there is none of that name.
    """
    if name not in schema_names():
        raise KeyError(f"no schema {name!r}; there are {', '.join(schema_names())}")
    return _folder("schemas").joinpath(name + _SCHEMA_SUFFIX).read_text("utf-8")


@cache
def schema_names() -> tuple[str, ...]:
    """The names that `schema_text` takes, sorted."""
    return _names("schemas", _SCHEMA_SUFFIX)


def topic_texts() -> dict[str, str]:
    """The YAML text of each topic's description, by its file's name without the ending, sorted."""
    folder = _folder("topics")
    return {name: folder.joinpath(name + _TOPIC_SUFFIX).read_text("utf-8") for name in _names("topics", _TOPIC_SUFFIX)}


def _names(folder: str, suffix: str) -> tuple[str, ...]:
    entries = (entry.name for entry in _folder(folder).iterdir())
    return tuple(sorted(name.removesuffix(suffix) for name in entries if name.endswith(suffix)))


def _folder(name: str) -> Traversable:
    packaged = files("epochfence").joinpath(name)
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2]
    # The marker tells this repository from whatever else may stand two folders above an installed package.
    if (checkout / "processor" / "epochfence").is_dir() and (checkout / name).is_dir():
        return checkout / name
    raise FileNotFoundError(f"epochfence was installed without its {name}/: install it again from a wheel")
