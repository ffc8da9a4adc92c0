"""Tools on servers of their own, over the Reactive Agent Protocol."""

import typing

if typing.TYPE_CHECKING:
    from hibernaut.rap.kit.server import ToolServer

__all__ = ["ToolServer"]

_HOMES = {"ToolServer": "hibernaut.rap.kit.server"}
"""Where each public name is; it is imported when it is first used, so that a part can be had without the rest."""

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib  # noqa: PLC0415  # a name of the package would be public

        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
