"""Reads the leaves at some paths of Avro values and steps over all else.

A leaf is a part of a value that becomes the content of a document field. ``Walk.step_of`` turns a schema into a tree of
steps. A step gets the position of its part of the value and returns the position behind it: of a record with a number
and a text, the first step skips the number, the second reads the leaf. Behind the last leaf a step goes to the end. A
part without leaves whose values all have the same size needs no step, but only the size, an ``int``.

A position may pass the end of a damaged value: the next read raises ``IndexError``, or ``avro`` compares. fastavro
1.13.1 is not used: it reads whole values, and without a bound on the time for arrays whose items have no bytes.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Path

#: Limit of nested unions, arrays and maps: far below that of Python's stack, so that the outcome is always the same.
MAX_DEPTH: Final = 50

#: (value, position of the part, nesting level, leaves) -> position behind the part. The step of a leaf sets
#: ``leaves[number]`` to its content and type.
Step = Callable[[bytes, int, int, list[Any]], int]

_NAMED_KINDS: Final = ("record", "error", "enum", "fixed")
#: Errors that a broken type raises, because schemas are not validated.
_BROKEN: Final = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
#: Contents for leaves of types that no document field has, so that ``WantedFields.from_mapping`` refuses them.
_MISFITS: Final = {"float": 0.0, "double": 0.0, "array": [], "map": {}, "record": {}, "error": {}}


class Type(NamedTuple):
    """A type in a schema, the JSON ``node``; ``namespace`` is that inside, ``name`` is empty for an unnamed type."""

    kind: str
    node: Any
    namespace: str
    name: str = ""


class Walk:
    """Makes the steps of a schema. Call ``add_types`` for all parts of the schema, then ``step_of`` for its root.

    The position of a path in ``paths`` is the number of its leaf. ``step_of`` fills ``leaf_types``: the types of each
    leaf that the schema has, by number.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._numbers = {path: number for number, path in enumerate(paths)}
        self._types_by_name: dict[str, Type] = {}
        self._steps: dict[tuple[str, Path | None, bool], Step | int] = {}
        self.leaf_types: dict[int, list[Any]] = {}

    def add_types(self, node: Any, namespace: str = "") -> None:
        if isinstance(node, dict):
            if node.get("type") in _NAMED_KINDS and isinstance(node.get("name"), str):
                type_ = _named_type(node, namespace)
                namespace = type_.namespace
                self._types_by_name.setdefault(type_.name, type_)
            node = [node.get(key) for key in ("type", "items", "values", "fields")]
        for inner in node if isinstance(node, list) else ():
            self.add_types(inner, namespace)

    def type_of(self, node: Any, namespace: str = "") -> Type:
        while not isinstance(node, list):
            kind = node["type"] if isinstance(node, dict) else node
            if kind in _NAMED_KINDS and kind is not node:
                return _named_type(node, namespace)
            if kind in ("array", "map", "int", "long", "bytes", "string", *_SIZES):
                return Type(kind, {} if kind is node else node, namespace)
            if isinstance(node, str):
                # As in Java, beyond the specification: a bare name may also be that of a type without a namespace.
                full_name = node if "." in node else f"{namespace}.{node}"
                return self._types_by_name.get(full_name) or self._types_by_name[node]
            if not isinstance(kind, str | list | dict):
                raise TypeError("a type is neither a name nor an object")
            node = kind
        return Type("union", node, namespace)

    def step_of(self, node: Any, namespace: str = "", path: Path | None = (), *, is_last: bool = True) -> Step | int:
        """Return the step of a type, or its size; a broken type becomes a step that raises the error.

        ``namespace`` is that around the type; ``path`` leads from the whole value to it, None in a part that is
        skipped; ``is_last``: no leaf follows behind the type.
        """
        try:
            type_ = self.type_of(node, namespace)
        except _BROKEN as error:
            return _refusal(error)
        key = (type_.name, path, is_last)
        if key in self._steps:  # a named type may occur any number of times
            return self._steps[key]
        if type_.name:  # it may contain itself: a placeholder, which looks the step up when it is called
            self._steps[key] = lambda *arguments: as_step(self._steps[key])(*arguments)  # noqa: PLW0108  set below
        try:
            step = self._new_step(type_, path, is_last=is_last)
        except _BROKEN as error:
            step = _refusal(error)
        if type_.name:
            self._steps[key] = step
        return step

    def _new_step(self, type_: Type, path: Path | None, *, is_last: bool) -> Step | int:
        kind, node, namespace, _ = type_
        if kind == "union":
            return _union([as_step(self.step_of(branch, namespace, path, is_last=is_last)) for branch in node])
        if path is not None and (number := self._numbers.get(path)) is not None:
            self.leaf_types.setdefault(number, []).append(node)
            skip = as_step(self._new_step(type_, None, is_last=is_last))  # for records and so on, which no field takes
            return _leaf(type_, number, skip)
        if kind in ("record", "error", "array", "map"):
            depth = 0 if path is None else len(path)
            inner = {leaf[depth]: leaf[: depth + 1] for leaf in self._numbers if leaf[:depth] == path}
            return self._outer_step(type_, inner, is_last=is_last)
        if kind == "fixed":
            return min(max(int(node["size"]), 0), sys.maxsize)
        return _SIZES.get(kind, _skip_bytes if kind in ("bytes", "string") else _skip_number)

    def _outer_step(self, type_: Type, inner: Mapping[str, Path], *, is_last: bool) -> Step | int:
        """Return the step of a record, array or map; ``inner``: by name, the paths to its parts that have leaves."""
        kind, node, namespace, _ = type_
        if is_last and not inner:
            return _stop
        if kind == "array":
            return _blocks(self.step_of(node["items"], namespace, None, is_last=False))
        if kind == "map":
            skip = self.step_of(node["values"], namespace, None, is_last=False)
            if not inner:
                return _blocks(_sequence([_skip_bytes, skip]))
            read = {
                name.encode(): as_step(self.step_of(node["values"], namespace, path, is_last=False))
                for name, path in inner.items()
            }
            return _blocks(_entry(read, as_step(skip)), is_read=True)
        fields = node["fields"]
        last = max((number for number, field in enumerate(fields) if field["name"] in inner), default=-1)
        end = last + 1 if is_last else len(fields)  # behind the last leaf nothing is read
        steps = [
            self.step_of(field["type"], namespace, inner.get(field["name"]), is_last=is_last and number == last)
            for number, field in enumerate(fields[:end])
        ]
        return _sequence(steps if end == len(fields) else [*steps, _stop])


def _named_type(node: Mapping[str, Any], namespace: str) -> Type:
    name = node["name"]
    if not isinstance(name, str):
        raise TypeError("a name is no text")
    if "." in name:
        namespace = name.rpartition(".")[0]
    else:
        namespace = node.get("namespace", namespace) or ""
        name = f"{namespace}.{name}" if namespace else name
    if "\ufffd" in name:  # was half of a surrogate pair: two names could become equal
        raise ValueError("a name contains half of a surrogate pair, or U+FFFD")
    return Type(node["type"], node, namespace, name)


def unusable(reason: str) -> DecodeError:
    return DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"it is no Avro schema: {reason[:200]}")


def as_step(step: Step | int) -> Step:
    return (lambda _value, position, _level, _leaves: position + step) if isinstance(step, int) else step


def _deeper(level: int) -> int:
    if level >= MAX_DEPTH:
        raise DecodeError(ErrorCode.TOO_DEEP, f"the value is nested deeper than {MAX_DEPTH} levels")
    return level + 1


def _leaf(type_: Type, number: int, skip: Step) -> Step:
    read, misfit, is_fixed = _READS.get(type_.kind), _MISFITS.get(type_.kind), type_.kind == "fixed"

    def read_leaf(value: bytes, position: int, level: int, leaves: list[Any]) -> int:
        if read is None:
            end = skip(value, position, level, leaves)
            content = value[position:end] if is_fixed else misfit
        else:
            content, end = read(value, position)
        leaves[number] = content, type_
        return end

    return read_leaf


def _union(branches: Sequence[Step]) -> Step:
    def read_branch(value: bytes, position: int, level: int, leaves: list[Any]) -> int:
        level = _deeper(level)
        branch, position = _length(value, position)
        return branches[branch](value, position, level, leaves)

    return read_branch


def _sequence(steps: Sequence[Step | int]) -> Step | int:
    """Return the step of a record; its size has a limit that no value reaches.

    A record of a single step is that step: records in each other would multiply the time for a byte.
    """
    sizes = [step for step in steps if isinstance(step, int)]
    if len(sizes) == len(steps):
        return min(sum(sizes), sys.maxsize)
    calls = [as_step(step) for step in steps if step != 0]
    if len(calls) == 1:
        return calls[0]

    def read_record(value: bytes, position: int, level: int, leaves: list[Any]) -> int:
        for call in calls:
            position = call(value, position, level, leaves)
        return position

    return read_record


def _entry(read: Mapping[bytes, Step], skip: Step) -> Step:
    def read_entry(value: bytes, position: int, level: int, leaves: list[Any]) -> int:
        key, position = _bytes(value, position)
        return read.get(key, skip)(value, position, level, leaves)

    return read_entry


def _blocks(item: Step | int, *, is_read: bool = False) -> Step:
    """Return the step of an array or a map. ``is_read``: items have leaves, so no block is skipped as a whole.

    A block begins with its number of items; if this number is negative, the size of the block in bytes follows.
    """

    def read_blocks(value: bytes, position: int, level: int, leaves: list[Any]) -> int:
        level = _deeper(level)
        count, position = _number(value, position)
        while count:
            if count < 0:
                size, position = _length(value, position)
            if count < 0 and not is_read:
                position += size
            elif isinstance(item, int):
                if item == 0:
                    raise unusable("an array in front of a field that is read has items without bytes")
                position += count * item
            else:
                for _ in range(abs(count)):
                    position = item(value, position, level, leaves)
            count, position = _number(value, position)
        return position

    return read_blocks


def _refusal(error: Exception) -> Step:
    reason = f"{type(error).__name__}: {error}"

    def refuse(_value: bytes, _position: int, _level: int, _leaves: list[Any]) -> int:
        raise unusable(reason)

    return refuse


def _stop(value: bytes, position: int, _level: int, _leaves: list[Any]) -> int:
    return max(position, len(value))


def _skip_number(value: bytes, position: int, _level: int, _leaves: list[Any]) -> int:
    return position + 1 if value[position] < 0x80 else _number(value, position)[1]


def _skip_bytes(value: bytes, position: int, _level: int, _leaves: list[Any]) -> int:
    length, position = _length(value, position)
    return position + length


# Each of these returns a content and the position behind it.
def _number(value: bytes, position: int) -> tuple[int, int]:
    byte = value[position]
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= 64:
            raise ValueError("a number is too long")
        position += 1
        byte = value[position]
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), position + 1


def _length(value: bytes, position: int) -> tuple[int, int]:
    byte = value[position]
    if byte < 0x80 and not byte & 1:  # most lengths have a byte
        return byte >> 1, position + 1
    number, position = _number(value, position)
    if number < 0:  # as a branch it would count from the end of a list, as a length it would lead back
        raise ValueError("a length or a branch is below zero")
    return number, position


def _bytes(value: bytes, position: int) -> tuple[bytes, int]:
    length, position = _length(value, position)
    return value[position : position + length], position + length


_READS: Final[Mapping[str, Callable[[bytes, int], tuple[Any, int]]]] = {
    "boolean": lambda value, position: (value[position] != 0, position + 1),
    **dict.fromkeys(("int", "long"), _number),
    "enum": _length,
    **dict.fromkeys(("bytes", "string"), _bytes),
}
