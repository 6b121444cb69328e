"""The wheel as a stranger gets it: built by way of the sdist, installed with nothing else, used from elsewhere."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import epochfence

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
SCHEMAS = {path.stem: path.read_text("utf-8") for path in (REPOSITORY / "schemas").glob("*.avsc")}
TOPICS = {path.stem: path.read_text("utf-8") for path in (REPOSITORY / "topics").glob("*.yaml")}

LOAD_DATA = """
import json
from epochfence import resources
from epochfence.engine.topics.cluster import load_topic_specs
print(json.dumps({
    "from": resources.__file__,
    "schemas": {name: resources.schema_text(name) for name in resources.schema_names()},
    "topics": resources.topic_texts(),
    "specs": list(load_topic_specs()),
}))
"""
IMPORT_ALL = """
import importlib, pkgutil, epochfence
names = [m.name for m in pkgutil.walk_packages(epochfence.__path__, "epochfence.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


class Installed:
    """A virtual environment that has epochfence, and a working directory that has nothing to do with it."""

    def __init__(self, environment: Path, elsewhere: Path) -> None:
        self.environment, self.elsewhere = environment, elsewhere
        elsewhere.mkdir()

    def run(self, *command: str) -> str:
        # PYTHONPATH and the like would let this checkout shine through.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EPOCHFENCE_"))}
        ended = subprocess.run(
            [self.environment / "bin" / command[0], *command[1:]],
            cwd=self.elsewhere,
            env=clean,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, so that both hold. The build's own packages are those of this environment: no network."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(REPOSITORY)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with what it says it needs and no extra: what is missing from its dependencies is missing here."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "environment", with_pip=True)
    made = Installed(place / "environment", place / "elsewhere")
    made.run("pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    return made


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An editable install whose dependencies are those of this environment: no network."""
    place = tmp_path_factory.mktemp("editable")
    venv.create(place / "environment", with_pip=True)
    made = Installed(place / "environment", place / "elsewhere")
    (site_packages,) = (place / "environment").glob("lib/python*/site-packages")
    # A plain path in a .pth: the .pth files in there, that of this checkout among them, are not followed.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--ignore-installed")
    made.run("pip", "install", *options, "--editable", str(REPOSITORY))
    return made


def test_the_only_top_level_name_is_epochfence(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"epochfence"}


def test_the_wheel_has_the_data_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.endswith(".avsc")} == {f"epochfence/schemas/{n}.avsc" for n in SCHEMAS}
    assert {name for name in names if name.endswith(".yaml")} == {f"epochfence/topics/{n}.yaml" for n in TOPICS}
    assert {"epochfence/py.typed", "epochfence/broker/pom.xml", "epochfence/broker/log4j2.properties"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "test" in name.split("/") or name.endswith(".pyc")]


def test_the_wheel_has_every_module_of_the_checkout(wheel: Path) -> None:
    package = REPOSITORY / "processor" / "epochfence"
    modules = {f"epochfence/{path.relative_to(package)}" for path in package.rglob("*.py")}
    assert modules <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("kind", ["installed", "editable"])
def test_schemas_and_topics_load_from_wherever_it_is_installed(kind: str, request: pytest.FixtureRequest) -> None:
    made: Installed = request.getfixturevalue(kind)
    loaded = json.loads(made.run("python", "-c", LOAD_DATA))
    assert loaded["schemas"] == SCHEMAS
    assert loaded["topics"] == TOPICS
    assert set(loaded["specs"]) == set(TOPICS)
    assert Path(loaded["from"]).is_relative_to(REPOSITORY if kind == "editable" else made.environment)


def test_an_editable_install_leaves_no_copy_that_could_grow_old(editable: Installed) -> None:
    assert not list(editable.environment.glob("lib/python*/site-packages/epochfence"))


def test_every_module_imports_with_no_extra_installed(installed: Installed) -> None:
    assert int(installed.run("python", "-c", IMPORT_ALL)) > 30


@pytest.mark.parametrize("kind", ["installed", "editable"])
def test_the_command_is_there(kind: str, request: pytest.FixtureRequest) -> None:
    made: Installed = request.getfixturevalue(kind)
    assert made.run("epochfence", "--version") == f"epochfence {epochfence.__version__}\n"
    assert made.run("python", "-m", "epochfence", "--version") == f"epochfence {epochfence.__version__}\n"
    assert "apply" in made.run("epochfence", "topics", "--help")


def test_the_installed_version_is_the_modules(installed: Installed) -> None:
    version = "from importlib.metadata import version; print(version('epochfence'))"
    assert installed.run("python", "-c", version).strip() == epochfence.__version__
