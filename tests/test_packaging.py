"""What is promised about the package as a whole: its names, its weight, its version, its files, its pins."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import hibernaut

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hibernaut"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEAVY = {
    "aiobotocore",
    "anthropic",
    "boto3",
    "botocore",
    "click",
    "google",
    "httpx",
    "jsonschema_rs",
    "mcp",
    "openai",
    "opentelemetry",
    "pydantic",
    "textual",
}
SDKS = {"aiobotocore", "anthropic", "boto3", "google.genai", "openai"}
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / name).read_text(encoding="utf-8")))


def test_the_public_names_are_listed_in_alphabetical_order() -> None:
    assert list(hibernaut.__all__) == sorted(hibernaut.__all__)


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in hibernaut.__all__ if not hasattr(hibernaut, name)] == []


def test_no_name_is_public_that_is_not_listed() -> None:
    reachable = {
        name
        for name, value in vars(hibernaut).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert reachable - set(hibernaut.__all__) == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, hibernaut; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    loaded = set(result.stdout.split())
    assert "hibernaut" in loaded
    assert loaded & (HEAVY | {"hibernaut.cli", "hibernaut.testing"}) == set()


def test_no_module_of_the_package_loads_the_sdk_of_a_provider() -> None:
    program = (
        "import importlib, pkgutil, sys, hibernaut\n"
        "for found in pkgutil.walk_packages(hibernaut.__path__, 'hibernaut.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    loaded = set(result.stdout.split())
    assert "hibernaut.models.google.provider" in loaded
    assert loaded & SDKS == set()


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert hibernaut.__version__ == metadata.version("hibernaut") == PROJECT["version"]


def test_the_version_is_written_in_one_place() -> None:
    literal = f'"{PROJECT["version"]}"'
    repeats = [path for path in SOURCE.rglob("*.py") if literal in path.read_text(encoding="utf-8")]
    assert repeats == []


def test_the_wheel_holds_every_file_of_the_package_and_the_license(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())

    about = f"hibernaut-{PROJECT['version']}.dist-info"
    files = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if path.is_file()}
    assert {name for name in held if not name.startswith(about)} == {
        name for name in files if "__pycache__" not in name
    }
    assert "hibernaut/py.typed" in held
    assert f"{about}/licenses/LICENSE" in held


def test_everything_that_is_needed_to_run_is_pinned() -> None:
    needed = {re.split(r"[><=;\[ ]", line)[0] for line in PROJECT["dependencies"]}
    assert needed | {"hatchling"} <= set(pins("run.txt"))


def test_the_tests_run_on_the_versions_that_users_of_run_txt_get() -> None:
    assert pins("run.txt").items() <= pins("dev.txt").items()


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_a_requirement_file_names_hashes_and_no_place_to_fetch_from(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    unhashed = [block for block in re.split(r"\n(?=\S)", text) if PIN.match(block) and "--hash=sha256:" not in block]
    assert unhashed == []
