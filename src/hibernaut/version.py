"""Which build of Hibernaut this is."""

from functools import cache


@cache
def build() -> str:
    """Return the version of the installed distribution, or "0+source" when it runs from bare sources."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # slow to import, seldom needed

    try:
        return version("hibernaut")
    except PackageNotFoundError:
        return "0+source"
