"""What `hibernaut.rap` offers, and what it costs to import."""

import subprocess
import sys

import pytest

import hibernaut.rap


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, hibernaut.rap; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    loaded = set(result.stdout.split())
    assert "hibernaut.rap" in loaded
    assert loaded & {"apsw", "asyncio", "httpx2", "msgspec", "starlette", "uvicorn", "hibernaut.rap.kit"} == set()


def test_every_public_name_can_be_had_and_no_other() -> None:
    assert [name for name in hibernaut.rap.__all__ if not hasattr(hibernaut.rap, name)] == []
    assert set(hibernaut.rap.__all__) <= set(dir(hibernaut.rap))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        hibernaut.rap.Nothing  # type: ignore[attr-defined]  # noqa: B018
