"""A tool's JSON Schema, held against the arguments of a call. The only module that knows the validating library.

Schemas come from remote tool servers too, so a schema is taken as hostile: nothing is fetched for it, its regular
expressions run in bounded time, and a schema whose references multiply is refused before it can run at all. Only the
yes or no is the library's: its list of errors takes exponential time on nested unions, where ours follows the
alternative that was most likely meant, which is also what a model needs to read.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote, unquote

import msgspec

from hibernaut.errors import ToolDefinitionError
from hibernaut.messages.text import shorten
from hibernaut.tools.arguments import JSON

if TYPE_CHECKING:
    import jsonschema_rs

MOST_PROBLEMS: Final = 10
"""Problems that are told of one call: a model mends those first and tries again."""

LONGEST_PROBLEM: Final = 400
"""Characters of one problem, roughly; the value that is wrong may be a megabyte."""

LARGEST_SCHEMA: Final = 262_144
"""Bytes of one schema as JSON."""

MOST_WORK: Final = 100_000
"""Subschemas that one value may have to be held against, when all references are followed."""

MOST_RECURSIVE_WORK: Final = 2_000
"""The same for a schema that contains itself, for which the library's work is about the square of it."""

# What a regular expression may take: steps back for one that looks around, bytes for a compiled one.
_MOST_BACKTRACKS: Final = 10_000
_LARGEST_REGEX: Final = 1_048_576

_CACHED_SCHEMAS: Final = 1_024
_CACHED_PARTS: Final = 256
_MOST_STEPS: Final = 500
_DEEPEST_STEP: Final = 100
_ADDRESS: Final = "urn:hibernaut:schema"

Schema: TypeAlias = dict[str, JSON]

# Where a schema has subschemas: for the same value (one, a list, a map), and for what is inside it.
_HERE: Final = ("not", "if", "then", "else")
_HERE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_HERE_MAPS: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_INSIDE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_INSIDE_LISTS: Final = ("items", "prefixItems")
_INSIDE_MAPS: Final = ("properties", "patternProperties")
_DEFINITIONS: Final = ("$defs", "definitions")

# What can be said of a value without looking at any subschema.
_PLAIN: Final = frozenset(
    {
        "const",
        "dependentRequired",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
        "uniqueItems",
    }
)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int, float),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def compile_schema(schema: Mapping[str, Any]) -> "Validator":
    """Make a schema ready for use. The same schema, by content, gives the same validator.

    Formats are notes to the model and not checked, as JSON Schema has it.

    Raises:
        ToolDefinitionError: it is not a valid schema, refers to anything outside itself, or would take too long.
    """
    try:
        written = msgspec.json.encode(schema, order="deterministic")
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(f"the schema is not JSON: {error}") from None
    if len(written) > LARGEST_SCHEMA:
        raise ToolDefinitionError(f"the schema has {len(written):,} bytes; at most {LARGEST_SCHEMA:,} are taken")
    return _compiled(written)


@functools.lru_cache(maxsize=_CACHED_SCHEMAS)
def _compiled(written: bytes) -> "Validator":
    return Validator(_Document(msgspec.json.decode(written, type=dict[str, Any])))


class Validator:
    """A compiled schema. Made by `compile_schema`; may be used from any thread."""

    __slots__ = ("_document", "_parts", "_registry", "_whole")

    def __init__(self, document: "_Document") -> None:
        """Compile a schema that has been looked through.

        Raises:
            ToolDefinitionError: it is not a valid schema.
        """
        library = _library()
        self._document = document
        self._parts: dict[str, jsonschema_rs.Validator] = {}
        try:
            self._whole = self._compile(document.root)
            self._registry = library.Registry([(_ADDRESS, document.root)], retriever=_refuse)
        except library.ValidationError as error:
            place = "/".join(str(step) for step in ("#", *error.instance_path))
            raise ToolDefinitionError(f"the schema is not valid at {place}: {_abridged(error.message)}") from None
        except (ValueError, library.ReferencingError) as error:
            raise ToolDefinitionError(f"the schema is not valid: {_abridged(str(error))}") from None

    def problems(self, arguments: JSON) -> list[str]:
        """Say what is wrong with the arguments of a call, for the model that made it.

        Returns:
            Nothing when they fit; else up to `MOST_PROBLEMS` sentences such as ``at $.edits[0].line: "x" is not of
            type "integer"``.
        """
        if self._whole.is_valid(arguments):
            return []
        return _Explanation(self, self._document).of(arguments)

    def fits(self, pointer: str, value: JSON) -> bool:
        """Hold a value against a part of the schema, named by its JSON pointer (``#/properties/a``)."""
        part = self._parts.get(pointer)
        if part is None:
            if len(self._parts) >= _CACHED_PARTS:
                self._parts.clear()
            reference: Schema = {"$ref": _ADDRESS + pointer}
            part = self._parts[pointer] = self._compile(reference, registry=self._registry)
        return part.is_valid(value)

    def matches(self, pattern: str, name: str) -> bool:
        """Tell whether a property's name matches a pattern, with the library's bounds on regular expressions."""
        return not self._compile({"patternProperties": {pattern: {"not": {}}}}).is_valid({name: None})

    def plain_errors(self, schema: Schema, value: JSON) -> Iterator["jsonschema_rs.ValidationError"]:
        """Return what the library says of a schema without subschemas."""
        return self._compile(schema).iter_errors(value)

    def _compile(self, schema: Schema, **options: Any) -> "jsonschema_rs.Validator":
        library = _library()
        draft: Schema = {"$schema": self._document.root["$schema"]} if "$schema" in self._document.root else {}
        compiled: jsonschema_rs.Validator = library.validator_for(
            draft | schema,
            validate_formats=False,
            retriever=_refuse,
            pattern_options=library.FancyRegexOptions(
                backtrack_limit=_MOST_BACKTRACKS, size_limit=_LARGEST_REGEX, dfa_size_limit=_LARGEST_REGEX
            ),
            **options,
        )
        return compiled


def _library() -> Any:
    # Imported here: 15 MB of machine code that `import hibernaut` does not need.
    import jsonschema_rs  # noqa: PLC0415

    return jsonschema_rs


def _refuse(address: str) -> JSON:
    raise ValueError(f"nothing is fetched for a schema, and {address} is outside it")


class _Document:
    """A schema that refers to nothing outside itself and can be held against a value in bounded time."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._anchors: dict[str, str] = {}
        self._localise()
        nodes = _postorder([root], self._everything)
        self._refuse_loops(nodes)
        self._refuse_growth()

    def target(self, reference: str) -> tuple[str, JSON]:
        """Return the pointer and the schema that a reference means.

        Raises:
            ToolDefinitionError: it means nothing, or something outside.
        """
        if not reference.startswith("#"):
            raise ToolDefinitionError(
                f"the schema refers to {_abridged(reference)}, and nothing is fetched for a schema: "
                "put the part into its $defs"
            )
        pointer = self._anchors.get(reference, reference)
        node: JSON = self.root
        for step in unquote(pointer).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            else:
                raise ToolDefinitionError(f"the schema refers to {_abridged(reference)}, which it does not have")
        if pointer != "#" and not pointer.startswith("#/"):
            raise ToolDefinitionError(f"the schema refers to {_abridged(reference)}, which it does not have")
        return pointer, node

    def _localise(self) -> None:
        """Drop the schema's own address, and find its anchors; a part with an address of its own is refused."""
        own = self.root.pop("$id", None) or self.root.pop("id", None)
        address = "id" if "draft-04" in str(self.root.get("$schema")) else "$id"
        for pointer, node in _walk("#", self.root):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(keyword), str):
                    self._anchors.setdefault(f"#{node[keyword]}", pointer)
            if isinstance(node.get(address), str):
                raise ToolDefinitionError(
                    f"the schema has an {address} of its own at {pointer}, which is not supported"
                )
            reference = node.get("$ref")
            if isinstance(own, str) and isinstance(reference, str) and reference.partition("#")[0] == own.rstrip("#"):
                node["$ref"] = "#" + reference.partition("#")[2]

    def _here(self, node: Schema) -> Iterator[JSON]:
        """Yield the subschemas that the same value is held against."""
        for keyword in _REFERENCES:
            reference = node.get(keyword)
            if isinstance(reference, str):
                yield self.target(reference)[1]
        yield from _children(node, _HERE, _HERE_LISTS, _HERE_MAPS)

    def _everything(self, node: Schema) -> Iterator[JSON]:
        yield from self._here(node)
        yield from _children(node, _INSIDE, _INSIDE_LISTS, _INSIDE_MAPS)

    def _refuse_loops(self, nodes: list[Schema]) -> None:
        finished: set[int] = set()
        for node in _postorder(nodes, self._here):
            if any(id(child) not in finished for child in self._here(node) if isinstance(child, dict)):
                raise ToolDefinitionError("the schema refers to itself for one and the same value, without end")
            finished.add(id(node))

    def _refuse_growth(self) -> None:
        """Count for each subschema how many a value may be held against because of it."""
        work: dict[int, int] = {}
        recursive = False
        total = 0
        for node in _postorder([self.root], self._everything):
            recursive = recursive or any(
                isinstance(child, dict) and id(child) not in work for child in self._everything(node)
            )
            # Of the named properties, and of the places in a list, only one holds for any one value.
            exclusive = _children(node, (), _INSIDE_LISTS, ("properties",))
            others = _children(node, _INSIDE, (), ("patternProperties",))
            total = 1 + sum(work.get(id(child), 1) for child in (*self._here(node), *others))
            total += max((work.get(id(child), 1) for child in exclusive), default=0)
            work[id(node)] = total
        bound = MOST_RECURSIVE_WORK if recursive else MOST_WORK
        if max(work.values()) > bound:
            raise ToolDefinitionError(
                f"the schema's references multiply: one value would be held against {max(work.values()):,} subschemas, "
                f"and {bound:,} are the most"
            )


def _children(node: Schema, single: Iterable[str], lists: Iterable[str], maps: Iterable[str]) -> Iterator[JSON]:
    for keyword in single:
        value = node.get(keyword)
        if isinstance(value, dict):
            yield value
    for keyword in lists:
        value = node.get(keyword)
        if isinstance(value, list):
            yield from value
    for keyword in maps:
        value = node.get(keyword)
        if isinstance(value, dict):
            yield from (child for child in value.values() if isinstance(child, dict))


def _postorder(roots: Iterable[Schema], children: Callable[[Schema], Iterator[JSON]]) -> list[Schema]:
    """List what can be reached, children first as far as there are no circles. Schemas may be deep: no recursion."""
    order: list[Schema] = []
    seen: set[int] = set()
    for root in roots:
        if id(root) in seen:
            continue
        seen.add(id(root))
        stack = [(root, children(root))]
        while stack:
            node, rest = stack[-1]
            child = next((child for child in rest if isinstance(child, dict) and id(child) not in seen), None)
            if isinstance(child, dict):
                seen.add(id(child))
                stack.append((child, children(child)))
            else:
                order.append(node)
                stack.pop()
    return order


def _walk(pointer: str, root: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield every subschema with its pointer, references not followed."""
    stack: list[tuple[str, JSON]] = [(pointer, root)]
    while stack:
        at, node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield at, node
        stack.extend((f"{at}/{keyword}", node.get(keyword)) for keyword in (*_HERE, *_INSIDE))
        for keyword in (*_HERE_LISTS, *_INSIDE_LISTS):
            value = node.get(keyword)
            if isinstance(value, list):
                stack.extend((f"{at}/{keyword}/{index}", child) for index, child in enumerate(value))
        for keyword in (*_HERE_MAPS, *_INSIDE_MAPS, *_DEFINITIONS):
            value = node.get(keyword)
            if isinstance(value, dict):
                stack.extend((f"{at}/{keyword}/{_escaped(name)}", child) for name, child in value.items())


class _Explanation:
    """Finds where a value does not fit a schema, going only where it does not fit and never far."""

    def __init__(self, validator: Validator, document: _Document) -> None:
        self._validator = validator
        self._document = document
        self._problems: list[str] = []
        self._steps = _MOST_STEPS

    def of(self, value: JSON) -> list[str]:
        self._explain("#", self._document.root, value, "$", 0)
        return self._problems[:MOST_PROBLEMS]

    def _explain(self, pointer: str, schema: JSON, value: JSON, path: str, depth: int) -> None:
        """Tell the problems of a value that is known not to fit."""
        before = len(self._problems)
        if isinstance(schema, dict) and self._steps > 0 and depth < _DEEPEST_STEP:
            self._steps -= 1
            self._explain_plain(schema, value, path)
            for part, inner, child, place in (
                *self._same_value(pointer, schema, value, path),
                *self._inside(pointer, schema, value, path),
            ):
                if len(self._problems) >= MOST_PROBLEMS:
                    return
                if not self._validator.fits(part, child):
                    self._explain(part, inner, child, place, depth + 1)
        if len(self._problems) == before:
            self._tell(path, _in_general(schema, value))

    def _tell(self, path: str, problem: str) -> None:
        problem = f"at {path}: {_abridged(problem)}"
        if problem not in self._problems:
            self._problems.append(problem)

    def _explain_plain(self, schema: Schema, value: JSON, path: str) -> None:
        plain: Schema = {keyword: schema[keyword] for keyword in schema if keyword in _PLAIN}
        if schema.get("additionalProperties") is False:
            plain["additionalProperties"] = False
            for keyword in _INSIDE_MAPS:
                if isinstance(names := schema.get(keyword), dict):
                    plain[keyword] = {name: {} for name in names}
        for before, after in (("prefixItems", "items"), ("items", "additionalItems")):
            if isinstance(places := schema.get(before), list) and schema.get(after) is False:
                plain[before], plain[after] = [{} for _ in places], False
        if not plain:
            return
        for error in self._validator.plain_errors(plain, value):
            self._tell(path, error.message)
            if len(self._problems) >= MOST_PROBLEMS:
                return

    def _same_value(self, pointer: str, schema: Schema, value: JSON, path: str) -> Iterator["_Step"]:
        for keyword in _REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target, node = self._document.target(reference)
                yield target, node, value, path
        for index, inner in enumerate(_list(schema.get("allOf"))):
            yield f"{pointer}/allOf/{index}", inner, value, path
        for keyword in ("anyOf", "oneOf"):
            yield from self._alternatives(f"{pointer}/{keyword}", _list(schema.get(keyword)), value, path)
        if "if" in schema:
            keyword = "then" if self._validator.fits(f"{pointer}/if", value) else "else"
            if keyword in schema:
                yield f"{pointer}/{keyword}", schema[keyword], value, path
        for name, inner in _map(schema.get("dependentSchemas")).items():
            if isinstance(value, dict) and name in value:
                yield f"{pointer}/dependentSchemas/{_escaped(name)}", inner, value, path

    def _alternatives(self, pointer: str, alternatives: list[JSON], value: JSON, path: str) -> Iterator["_Step"]:
        """Yield the alternative that was most likely meant, or tell what all of them want when none stands out."""
        parts = [(f"{pointer}/{index}", inner) for index, inner in enumerate(alternatives)]
        if not parts or any(self._validator.fits(part, value) for part, _ in parts):
            return
        parts = [self._followed(part, inner) for part, inner in parts]
        possible = [(part, inner) for part, inner in parts if _may_be(inner, value)]
        if not possible:
            wanted = ", ".join(dict.fromkeys(_wanted(inner) for _, inner in parts))
            self._tell(path, f"{_written(value)} is none of what it may be: {wanted}")
        elif tags := self._wrong_tags([inner for _, inner in possible], value):
            name, allowed = tags
            found = _written(value[name]) if isinstance(value, dict) else ""
            self._tell(_place(path, name), f"{found} is not one of {', '.join(allowed)}")
        else:
            meant = min(possible, key=lambda each: self._distance(each[0], each[1], value))
            yield (*meant, value, path)

    def _followed(self, pointer: str, schema: JSON) -> tuple[str, JSON]:
        while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
            pointer, schema = self._document.target(reference)
        return pointer, schema

    def _wrong_tags(self, alternatives: list[JSON], value: JSON) -> tuple[str, list[str]] | None:
        """Return the property that tells the alternatives apart and what it may be, if the value has another there."""
        if not isinstance(value, dict) or len(alternatives) < 2:  # noqa: PLR2004 (one alternative needs no tag)
            return None
        for name, found in value.items():
            allowed: list[JSON] = []
            for schema in alternatives:
                tag = _map(_map(_map(schema).get("properties")).get(name))
                choices = [tag["const"]] if "const" in tag else _list(tag.get("enum"))
                if not choices or found in choices:
                    break
                allowed += choices
            else:
                return name, [_written(each) for each in allowed]
        return None

    def _distance(self, pointer: str, schema: JSON, value: JSON) -> tuple[int, int]:
        """Say how far a value is from an alternative: by wrong tags first, then by wrong or missing properties."""
        if not isinstance(schema, dict) or not isinstance(value, dict):
            return 0, 0
        properties = _map(schema.get("properties"))
        wrong = [
            name
            for name, inner in properties.items()
            if name in value and not self._validator.fits(f"{pointer}/properties/{_escaped(name)}", value[name])
        ]
        tags = sum("const" in _map(properties[name]) or "enum" in _map(properties[name]) for name in wrong)
        missing = sum(name not in value for name in _list(schema.get("required")))
        unknown = sum(name not in properties for name in value) if schema.get("additionalProperties") is False else 0
        return tags, len(wrong) + missing + unknown

    def _inside(self, pointer: str, schema: Schema, value: JSON, path: str) -> Iterator["_Step"]:
        if isinstance(value, dict):
            properties = _map(schema.get("properties"))
            patterns = _map(schema.get("patternProperties"))
            for name, child in value.items():
                place = _place(path, name)
                known = name in properties
                if known:
                    yield f"{pointer}/properties/{_escaped(name)}", properties[name], child, place
                for pattern, inner in patterns.items():
                    if not self._validator.matches(pattern, name):
                        continue
                    known = True
                    yield f"{pointer}/patternProperties/{_escaped(pattern)}", inner, child, place
                others = schema.get("additionalProperties")
                if not known and isinstance(others, dict):
                    yield f"{pointer}/additionalProperties", others, child, place
        elif isinstance(value, list):
            fixed = next((key for key in ("prefixItems", "items") if isinstance(schema.get(key), list)), "")
            places = _list(schema.get(fixed))
            rest = "additionalItems" if fixed == "items" else "items"
            for index, child in enumerate(value):
                place = f"{path}[{index}]"
                if index < len(places):
                    yield f"{pointer}/{fixed}/{index}", places[index], child, place
                elif isinstance(schema.get(rest), dict):
                    yield f"{pointer}/{rest}", schema[rest], child, place


_Step: TypeAlias = tuple[str, JSON, JSON, str]
"""Where to look next: the pointer and the schema of the part, the value to hold against it, and the value's path."""


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _map(value: JSON) -> Schema:
    return value if isinstance(value, dict) else {}


def _may_be(schema: JSON, value: JSON) -> bool:
    """Tell whether a value is of a type that a schema takes."""
    if not isinstance(schema, dict):
        return False
    named = schema.get("type")
    kinds = named if isinstance(named, list) else [named] if isinstance(named, str) else []
    if not kinds:
        choices = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
        return not choices or any(type(choice) is type(value) for choice in choices)
    return any(
        isinstance(value, _TYPES.get(str(kind), ())) and (kind == "boolean") == isinstance(value, bool)
        for kind in kinds
    )


def _wanted(schema: JSON) -> str:
    if isinstance(schema, dict):
        if "const" in schema:
            return _written(schema["const"])
        if choices := _list(schema.get("enum")):
            return ", ".join(_written(choice) for choice in choices)
        named = schema.get("type")
        if isinstance(named, str):
            return named
        if isinstance(named, list):
            return ", ".join(str(each) for each in named)
    return "something else"


def _in_general(schema: JSON, value: JSON) -> str:
    if not isinstance(schema, dict):
        return f"{_written(value)} is not allowed here"
    keywords = [name for name in schema if name not in _PLAIN and name not in (*_DEFINITIONS, "description", "title")]
    return f"{_written(value)} does not fit the tool's schema ({', '.join(keywords)})"


def _written(value: JSON) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), LONGEST_PROBLEM // 4)


def _abridged(text: str) -> str:
    """Shorten in the middle: what is wrong stands at the end, behind the value."""
    if len(text) <= LONGEST_PROBLEM:
        return text
    return f"{shorten(text, LONGEST_PROBLEM // 2)} {text[-LONGEST_PROBLEM // 2 :]}"


def _place(path: str, name: str) -> str:
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{json.dumps(shorten(name, 80), ensure_ascii=False)}]"


def _escaped(name: str) -> str:
    """Write a name as one step of a JSON pointer in a URI."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~")
