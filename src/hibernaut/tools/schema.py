"""A function's signature and docstring as the JSON Schema that a model reads, and a call's arguments as its keywords.

msgspec writes the schema and converts the values, so the two cannot disagree. Pydantic models are taken as they come,
by their methods; nothing here imports pydantic.
"""

import copy
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from hibernaut.errors import ToolDefinitionError
from hibernaut.tools.arguments import JSON, ArgumentsRefused, canonical, is_marked, restore_arguments

T = TypeVar("T")

Schema: TypeAlias = dict[str, JSON]
"""A JSON Schema (2020-12) as Python has it."""

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
# What providers take as the name of a property.
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_TAKEN: Final = (
    "str, int, float, bool, list, dict, tuple, set, Optional, Union, Literal, Enum, datetime, date, UUID, Decimal, "
    "bytes, dataclasses, TypedDict, NamedTuple, msgspec.Struct or pydantic models"
)

# Where a schema holds data, in which a key such as "enum" means nothing.
_DATA: Final = frozenset({"const", "default", "description", "examples"})
_NAMED_SCHEMAS: Final = frozenset({"$defs", "patternProperties", "properties"})
_DEFINITION: Final = "#/$defs/"
_UNIONS: Final = (typing.Union, UnionType)

# Above it, not every float that is whole is the number that was written.
_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """What a function tells about itself as a tool. Made by `signature_of`."""

    name: str
    description: str
    """The short and the long description of the docstring, without its sections."""
    schema: Schema
    """The JSON Schema of the arguments: an object that takes nothing else, with no `$ref` at its root."""
    context_parameter: str | None
    """The parameter that wants the call's context. It is not in the schema, and `decode` does not return it."""
    parameters: str = field(init=False, repr=False)
    """`schema` as JSON text, the same for the same function in every process."""
    _fields: Mapping[str, str] = field(repr=False)
    _struct: type[msgspec.Struct] = field(repr=False)
    _read: Callable[[str], msgspec.Struct] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", msgspec.json.encode(self.schema).decode())
        object.__setattr__(self, "_read", msgspec.json.Decoder(self._struct, dec_hook=_model_value).decode)

    def decode(self, arguments: dict[str, JSON] | str, written: str = "") -> dict[str, Any]:
        """Return what to call the function with.

        Args:
            arguments: what `parse_arguments` returned, or the JSON text that `canonical` made of it. The NULs that
                cleaning took are given back to the function.
            written: that text beside the arguments, where it is at hand.

        Returns:
            Converted values by parameter name. Parameters that the call left out are left out here too, so that the
            function's own defaults apply.

        Raises:
            ArgumentsRefused: the arguments do not fit the signature; the message says which, and why.
        """
        made = self._made(arguments, arguments if isinstance(arguments, str) else written or canonical(arguments))
        keywords = {}
        for attribute, name in self._fields.items():
            value = getattr(made, attribute)
            if value is not msgspec.UNSET:
                keywords[name] = value
        return keywords

    def _made(self, arguments: dict[str, JSON] | str, written: str) -> msgspec.Struct:
        if not is_marked(written):  # then there is nothing to restore, and the text can be read at once
            try:
                return self._read(written)
            except msgspec.DecodeError:
                pass  # the slower way says why, or makes it fit
        values = restore_arguments(_object_of(arguments) if isinstance(arguments, str) else arguments, written)
        try:
            return converted(values, self._struct)
        except msgspec.ValidationError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: msgspec.ValidationError) -> ArgumentsRefused:
        hint = ""
        if "unknown field" in str(error):
            hint = f"; the tool takes: {', '.join(self._fields.values()) or 'no arguments'}"
        return ArgumentsRefused(f"The arguments do not fit: {error}{hint}")


def signature_of(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    context_type: type | None = None,
    local_names: Mapping[str, object] | None = None,
) -> ToolSignature:
    """Read a function's signature and docstring.

    Args:
        function: anything callable whose parameters are annotated; keywords that a `functools.partial` binds are not
            the model's to give and are left out.
        name: the tool's name, when it is not the function's.
        context_type: the class of the parameter that takes the call's context.
        local_names: names that annotations written as text may use beside the function's globals: what is defined in
            the function around it.

    Raises:
        ToolDefinitionError: the function cannot be a tool; the message says which parameter it is and what to do.
    """
    where = _where(function)
    tool_name = _checked_name(name or str(getattr(_innermost(function), "__name__", "")), where)
    description, texts = _docstring(function)
    reader = _Reader(function, where, context_type, dict(local_names or {}))
    parameters: list[inspect.Parameter] = []
    hints: list[Any] = []
    context = ""
    for parameter in reader.parameters():
        hint, text = reader.hint(parameter)
        if hint is _CONTEXT and context:
            raise ToolDefinitionError(f"{where} has two parameters for its context, {context} and {parameter.name}")
        if hint is _CONTEXT:
            context = parameter.name
            continue
        parameters.append(parameter)
        hints.append(hint)
        if text:
            texts[parameter.name] = text
    schemas, definitions = _schemas(hints, [f"parameter {parameter.name!r} of {where}" for parameter in parameters])
    required: list[JSON] = []
    for parameter, schema in zip(parameters, schemas, strict=True):
        if texts.get(parameter.name):
            schema.setdefault("description", texts[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        else:
            _put_default(schema, parameter.default)
    properties: dict[str, JSON] = {
        parameter.name: schema for parameter, schema in zip(parameters, schemas, strict=True)
    }
    root: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if definitions:
        root["$defs"] = definitions
    fields = {f"a{index}": parameter.name for index, parameter in enumerate(parameters)}
    struct = msgspec.defstruct(
        "Arguments",
        [
            (attribute, hint) if name in required else (attribute, hint, msgspec.UNSET)
            for (attribute, name), hint in zip(fields.items(), hints, strict=True)
        ],
        kw_only=True,
        forbid_unknown_fields=True,
        # Fields have names of their own, so that a parameter may have any.
        rename=fields,
    )
    return ToolSignature(tool_name, description, root, context or None, fields, struct)


def converted(values: JSON, kind: type[T]) -> T:
    """Make a value of a type that has a schema of what came as JSON.

    Raises:
        msgspec.ValidationError: it does not fit. What the code of a pydantic model raises comes as it is.
    """
    try:
        return msgspec.convert(values, kind, dec_hook=_model_value, str_keys=True)
    except msgspec.ValidationError as error:
        # Some providers write every number with a decimal point; 5.0 is an integer to JSON Schema, not to msgspec.
        try:
            return msgspec.convert(_whole_numbers(values), kind, dec_hook=_model_value, str_keys=True)
        except msgspec.ValidationError:
            raise error from None


def schema_of(hint: Any, where: str) -> Schema:
    """Return the JSON Schema of a type. `where` is what it is, for refusals.

    Raises:
        ToolDefinitionError: JSON cannot write it.
    """
    (schema,), definitions = _schemas([hint], [where])
    return {**schema, "$defs": definitions} if definitions else schema


class _Context:
    """Stands for the annotation of the context parameter."""


_CONTEXT: Final = _Context


class _Reader:
    """Finds out what a function's parameters are annotated with."""

    def __init__(
        self, function: Callable[..., Any], where: str, context_type: type | None, local_names: dict[str, object]
    ) -> None:
        self._function = function
        self._where = where
        self._context_type = context_type
        self._local_names = local_names
        inner = _innermost(function)
        inner = inspect.unwrap(inner if inspect.isroutine(inner) else type(inner).__call__)
        self._global_names = dict(vars(sys.modules.get(getattr(inner, "__module__", None) or "", SimpleNamespace())))
        self._global_names |= getattr(inner, "__globals__", {})

    def parameters(self) -> Iterable[inspect.Parameter]:
        try:
            signature = inspect.signature(self._function)
        except (ValueError, TypeError, NameError) as error:
            raise ToolDefinitionError(f"the signature of {self._where} cannot be read: {error}") from None
        bound = self._function.keywords if isinstance(self._function, functools.partial) else {}
        for parameter in signature.parameters.values():
            if parameter.name not in bound:
                self._check(parameter)
                yield parameter

    def _check(self, parameter: inspect.Parameter) -> None:
        what = f"parameter {parameter.name!r} of {self._where}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise ToolDefinitionError(
                f"{what} is {stars}{parameter.name}, which has no schema: name each parameter, or take one list or dict"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(f"{what} is positional-only, but tools are called by keyword: remove the `/`")
        if parameter.annotation is parameter.empty:
            raise ToolDefinitionError(f"{what} has no annotation: say its type, for example `{parameter.name}: str`")
        if _is_reserved(parameter.name):
            raise ToolDefinitionError(f"{what} has a name that is the runtime's own: rename it")
        if not _PARAMETER_NAME.fullmatch(parameter.name):
            raise ToolDefinitionError(f"{what} cannot be named so: providers take letters, digits, _ and -, up to 64")

    def hint(self, parameter: inspect.Parameter) -> tuple[Any, str]:
        """Return the type of a parameter (or `_CONTEXT`), and what an `Annotated` says about it."""
        written = parameter.annotation
        if isinstance(written, str) and self._names_context(written):
            return _CONTEXT, ""
        what = f"parameter {parameter.name!r} of {self._where}"
        try:
            hint = typing.get_type_hints(
                SimpleNamespace(__annotations__={"it": written}),
                self._global_names,
                self._local_names,
                include_extras=True,
            )["it"]
        except NameError as error:
            raise ToolDefinitionError(
                f"the annotation of {what} cannot be resolved ({error}): define {error.name} at module level, outside "
                "`if TYPE_CHECKING:`"
            ) from None
        except Exception as error:
            raise ToolDefinitionError(f"the annotation of {what} cannot be resolved: {error}") from error
        if self._is_context(hint):
            return _CONTEXT, ""
        text = _annotated_text(hint, what)
        # `x: str = None` is widely written and means Optional.
        if parameter.default is None and not _takes_none(hint):
            hint = hint | None
        return hint, text

    def _names_context(self, written: str) -> bool:
        """Tell whether an annotation is the context's by name: it may be imported for type checkers only."""
        return self._context_type is not None and written.strip("\"' ").split(".")[-1] == self._context_type.__name__

    def _is_context(self, hint: Any) -> bool:
        if self._context_type is None:
            return False
        plain = _without_none(hint)
        kind = get_origin(plain) or plain
        return isinstance(kind, type) and issubclass(kind, self._context_type)


def _checked_name(name: str, where: str) -> str:
    if _is_reserved(name):
        raise ToolDefinitionError(f"the name {name!r} of {where} is the runtime's own: give the tool another one")
    if not _TOOL_NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"{where} cannot be called {name!r} as a tool: take letters, digits, _ and -, up to 128 of them"
        )
    return name


def _is_reserved(name: str) -> bool:
    return name.endswith("__injected") or name.startswith("__harness_")


def _where(function: Callable[..., Any]) -> str:
    inner = _innermost(function)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{getattr(inner, '__module__', None) or '?'}.{name}"


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function and those of its parameters."""
    # Imported here: 30 ms that only a program with function tools pays.
    import docstring_parser  # noqa: PLC0415

    text = inspect.getdoc(_innermost(function)) or ""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text.strip(), {}
    between = "\n\n" if parsed.blank_after_short_description else "\n"
    description = between.join(part for part in (parsed.short_description, parsed.long_description) if part)
    return description, {param.arg_name: (param.description or "").strip() for param in parsed.params}


def _annotated_text(hint: Any, what: str) -> str:
    """Return the description that `Annotated` gives as plain text or as an object that has one."""
    text = ""
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, msgspec.Meta):
            continue
        constraints = [note, *(getattr(note, "metadata", None) or ())]
        if any(type(each).__module__ == "annotated_types" for each in constraints):
            raise ToolDefinitionError(f"{what} has constraints that nothing checks: write them as msgspec.Meta(...)")
        said = note if isinstance(note, str) else getattr(note, "description", None)
        text = said if isinstance(said, str) else text
    return text


def _without_none(hint: Any) -> Any:
    """Return what is inside `Annotated` and `Optional`."""
    if get_origin(hint) is Annotated:
        return _without_none(get_args(hint)[0])
    if get_origin(hint) in _UNIONS:
        rest = [arg for arg in get_args(hint) if arg is not NoneType]
        return _without_none(rest[0]) if len(rest) == 1 else hint
    return hint


def _takes_none(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _takes_none(get_args(hint)[0])
    return hint in (Any, None, NoneType) or any(arg in (None, NoneType) for arg in get_args(hint))


def _schemas(hints: list[Any], places: list[str]) -> tuple[list[Schema], dict[str, JSON]]:
    """Return the schema of each type, and the definitions that they share."""
    models: dict[str, JSON] = {}
    for hint, place in zip(hints, places, strict=True):
        try:
            # The decoder refuses what the schema would let pass, such as keys that no JSON object can have.
            msgspec.json.Decoder(hint)
            msgspec.json.schema_components([hint], schema_hook=functools.partial(_model_schema, {}))
        except Exception as error:
            reason = str(error).strip().splitlines()[-1]
            raise ToolDefinitionError(
                f"{place} has a type that a tool cannot take: {reason}. Take {_TAKEN}, and make the rest of it inside"
            ) from error
    # All at once, so that two classes of one name get two definitions.
    try:
        found, definitions = msgspec.json.schema_components(hints, schema_hook=functools.partial(_model_schema, models))
    except KeyError as error:  # msgspec before 0.23
        raise ToolDefinitionError(
            f"{places[0]} and others take two classes of one name, {error}: rename one"
        ) from error
    everywhere: dict[_Values, list[JSON]] = {}
    for hint, schema in zip(hints, found, strict=True):
        here: dict[_Values, list[JSON]] = {}
        _collect_orders(hint, here, set())
        _put_in_order(schema, here)
        everywhere = here | everywhere
    for schema in definitions.values():
        _put_in_order(schema, everywhere)
    return list(found), dict(sorted({**models, **definitions}.items()))


def _put_default(schema: Schema, default: object) -> None:
    """Write a default into a schema, where JSON can write it."""
    try:
        plain = msgspec.to_builtins(default, str_keys=True, order="deterministic", enc_hook=_model_plain)
        written = msgspec.json.decode(msgspec.json.encode(plain))
    except (TypeError, ValueError, msgspec.MsgspecError):
        return
    # An infinite number would be written as null.
    if written == plain or not isinstance(plain, float):
        schema["default"] = written


_Values: TypeAlias = frozenset[tuple[type, object]]


def _values(values: Iterable[object]) -> _Values:
    return frozenset((type(value), value) for value in values)


def _collect_orders(hint: Any, found: dict[_Values, list[JSON]], seen: set[object]) -> None:
    """Collect in which order the literals and enums of a type are written; msgspec sorts them."""
    origin = get_origin(hint)
    if origin is Literal:
        found.setdefault(_values(get_args(hint)), list(get_args(hint)))
        return
    for argument in get_args(hint):
        _collect_orders(argument, found, seen)
    kind = origin or hint
    if not isinstance(kind, type) or kind in seen:
        return
    seen.add(kind)
    if issubclass(kind, Enum):
        values = [member.value for member in kind]
        found.setdefault(_values(values), values)
    elif "__annotations__" in vars(kind) and not _is_model(kind):
        for inner in typing.get_type_hints(kind, include_extras=True).values():
            _collect_orders(inner, found, seen)


def _put_in_order(schema: Schema, orders: Mapping[_Values, list[JSON]]) -> None:
    for node in nodes(schema):
        values = node.get("enum")
        if isinstance(values, list) and all(isinstance(value, str | int | None) for value in values):
            node["enum"] = orders.get(_values(values), values)
            # Some providers want the type spelled out.
            if all(isinstance(value, str) for value in values):
                node.setdefault("type", "string")
            elif all(type(value) is int for value in values):
                node.setdefault("type", "integer")


def nodes(schema: JSON) -> Iterator[Schema]:
    """Walk through a schema and what is inside it, but not through the data that it holds."""
    if isinstance(schema, list):
        for each in schema:
            yield from nodes(each)
    elif isinstance(schema, dict):
        yield schema
        for keyword, value in schema.items():
            if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
                for each in value.values():
                    yield from nodes(each)
            elif keyword not in _DATA:
                yield from nodes(value)


def _whole_numbers(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(child) for child in value]
    return value


_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def _object_of(text: str) -> dict[str, JSON]:
    try:
        return _decode_object(text)
    except msgspec.DecodeError as error:
        raise ArgumentsRefused(f"The arguments are not a JSON object: {error}") from None


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _model_schema(definitions: dict[str, JSON], kind: type) -> Schema:
    """Return the schema of a pydantic model; what it defines goes into `definitions`, under the model's name."""
    if not _is_model(kind):
        raise NotImplementedError
    schema: Schema = cast("Any", kind).model_json_schema()
    own = cast("Schema", schema.pop("$defs", {}))
    prefix = _definition_name(kind.__name__)
    renamed: Schema = {f"{prefix}.{name}": _with_prefix(value, prefix) for name, value in own.items()}
    if any(definitions.get(name, value) != value for name, value in renamed.items()):
        prefix = _definition_name(f"{kind.__module__}.{kind.__qualname__}")
        renamed = {f"{prefix}.{name}": _with_prefix(value, prefix) for name, value in own.items()}
    definitions.update(renamed)
    return cast("Schema", _with_prefix(schema, prefix))


def _definition_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _with_prefix(schema: JSON, prefix: str) -> JSON:
    copied = copy.deepcopy(schema)
    for node in nodes(copied):
        for keyword, value in node.items():
            if isinstance(value, str) and value.startswith(_DEFINITION) and keyword not in _DATA:
                node[keyword] = f"{_DEFINITION}{prefix}.{value.removeprefix(_DEFINITION)}"
    return copied


def _model_value(kind: type, value: Any) -> Any:
    """Make a pydantic model of what came as JSON; other classes never get here, `signature_of` refuses them."""
    model: Any = kind
    if hasattr(model, "model_validate_json"):
        # A strict model takes dates and the like from JSON only when it knows that it is JSON.
        return model.model_validate_json(msgspec.json.encode(value))
    return model.model_validate(value)


def _model_plain(value: Any) -> Any:
    if not hasattr(value, "model_dump"):
        raise TypeError
    return value.model_dump(mode="json")
