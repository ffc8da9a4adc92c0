"""The little project that the agent of the demo looks after, with tests that a build really runs.

The package `quillparse` and its advisory are made up. The fault is real all the same: in version 2.3.1 one of the
project's tests reads a file that it should not get at. Version 3.0.0 mends that and breaks another test; 2.4.2 breaks
nothing.
"""

from pathlib import Path

PACKAGE = "quillparse"

TASK = (
    "Advisory DEMO-2026-0007: quillparse before 2.4.2 lets a template read files outside its folder. "
    "Fixed in 2.4.2 and 3.0.0. We pin 2.3.1. Please move us to a safe version; the build has to pass."
)

_OPEN = """\
from pathlib import Path


def render(folder, name, fields):
    return Path(folder, name).read_text(encoding="utf-8").format(**fields)
"""

_SAFE = """\
from pathlib import Path


def render(folder, name, fields):
    page = Path(folder, name).resolve()
    if not page.is_relative_to(Path(folder).resolve()):
        raise ValueError(f"{name} is outside of the folder")
    return page.read_text(encoding="utf-8").format(**fields)
"""

_TIDY = _SAFE.replace("    return page", "    text = page") + '    return " ".join(text.split())\n'

_LABELS = """\
from pathlib import Path

import quillparse

TEMPLATES = Path(__file__).parent / "templates"


def label(template, **fields):
    return quillparse.render(TEMPLATES, template, fields)
"""

_TESTS = """\
import unittest

from labels import label


class Labels(unittest.TestCase):
    def test_name_is_filled_in(self):
        self.assertIn("Ada", label("label.txt", name="Ada", street="12 Mill Lane"))

    def test_address_keeps_its_lines(self):
        self.assertEqual(label("label.txt", name="Ada", street="12 Mill Lane"), "Ada\\n12 Mill Lane\\n")

    def test_template_stays_in_its_folder(self):
        with self.assertRaises(ValueError):
            label("../requirements.txt")
"""

_FILES = {
    "requirements.txt": f"{PACKAGE}==2.3.1\n",
    "labels.py": _LABELS,
    "test_labels.py": _TESTS,
    "templates/label.txt": "{name}\n{street}\n",
    f"packages/{PACKAGE}-2.3.1/{PACKAGE}.py": _OPEN,
    f"packages/{PACKAGE}-2.4.2/{PACKAGE}.py": _SAFE,
    f"packages/{PACKAGE}-3.0.0/{PACKAGE}.py": _TIDY,
}


def write_project(folder: Path) -> None:
    """Write the project into a folder of its own."""
    for name, text in _FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def read_pins(folder: Path) -> dict[str, str]:
    """Return the pinned version of each package."""
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").split()
    return dict(line.split("==", 1) for line in lines)


def write_pins(folder: Path, pins: dict[str, str]) -> None:
    """Pin packages to versions."""
    text = "".join(f"{package}=={version}\n" for package, version in pins.items())
    (folder / "requirements.txt").write_text(text, encoding="utf-8")
