"""The walk over Protobuf messages against the decoder of protobuf, on random messages."""

import random

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError as DamagedError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.wire.formats.protobuf_walk import MAX_DEPTH, read_message, tree_of, value_at
from tests.bombs import varint
from tests.thoroughness import examples

MESSAGE, ENUM, GROUP = 11, 14, 10
SCALARS = sorted(set(range(1, 19)) - {MESSAGE, GROUP})
NUMBERS = [0, 1, 2, 3, 127, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]


def message_class(syntax):
    file = FileDescriptorProto(name="a.proto", syntax=syntax)
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    file.enum_type[0].value.add(name="ONE", number=1)
    message = file.message_type.add(name="A")
    for kind in SCALARS:
        message.field.add(name=f"f{kind}", number=kind, type=kind, label=1, type_name=".E" if kind == ENUM else None)
    message.field.add(name="a", number=MESSAGE, type=MESSAGE, type_name=".A", label=1)
    if syntax == "proto2":
        message.field.add(name="group", number=GROUP, type=GROUP, type_name=".A", label=1)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("A"))


CLASSES = {syntax: message_class(syntax) for syntax in ("proto2", "proto3")}


def encoded(rng, depth):
    """Return random fields: of the schema, unknown, or of the schema with another wire type."""
    parts = []
    for _ in range(rng.randrange(6)):
        number, wire_type = rng.choice([*range(1, 21), *[MESSAGE] * 5, 3_000]), rng.choice([0, 1, 2, 2, 3, 5])
        inner = encoded(rng, depth - 1) if depth and rng.random() < 0.6 else b"\xc3\xa9" * rng.randrange(3)
        content = {
            0: varint(rng.choice(NUMBERS)),
            1: rng.choice([bytes(8), rng.randbytes(8)]),
            2: varint(len(inner)) + inner,
            3: (encoded(rng, depth - 1) if depth else b"") + varint(number << 3 | 4),
            5: rng.choice([bytes(4), rng.randbytes(4)]),
        }[wire_type]
        parts.append(varint(number << 3 | wire_type) + content)
    return b"".join(parts)


def value_in(message, path):
    """Return what a whole decoder has at a path."""
    for field in path:
        if field.has_presence and not message.HasField(field.name):
            return None
        message = getattr(message, field.name)
    if field.message_type is not None:
        return {}
    if not (message or field.has_presence):
        return None
    named = {} if field.enum_type is None else field.enum_type.values_by_number
    return named[message].name if message in named else message


@settings(max_examples=examples(500))
@given(st.integers(0, 2**48), st.sampled_from(sorted(CLASSES)))
def test_the_walk_reads_what_protobuf_reads(seed, syntax):
    rng = random.Random(seed)
    fields = CLASSES[syntax].DESCRIPTOR.fields_by_name
    if syntax == "proto2":  # closed: an unknown symbol is an unknown field
        fields = {name: field for name, field in fields.items() if field.enum_type is None}
    inner = [field for field in fields.values() if field.message_type is not None]
    paths = [
        [*(rng.choice(inner) for _ in range(rng.randrange(3))), field] for field in fields.values() for _ in range(2)
    ]
    value = encoded(rng, 3)
    value = value[: rng.choice([len(value), rng.randrange(len(value) + 1)])]
    try:
        message = CLASSES[syntax].FromString(value)
    except (DamagedError, UnicodeDecodeError):
        message = None
    try:
        contents = read_message(b"?" + value, 1, tree_of(paths))
        found = [value_at(contents, path, is_text=False) for path in paths]
    except UnicodeDecodeError:  # proto2 allows any bytes
        assert message is None or syntax == "proto2"
        return
    except (LookupError, ValueError):
        assert message is None
        return
    if message is not None:  # the walk does not look at parts beside the paths
        assert repr(found) == repr([value_in(message, path) for path in paths])


@pytest.mark.parametrize(
    "value",
    [b"\x1b", b"\x1b\x14", b"\x14", b"\0\0", b"\4", b"\3\4", b"\x1e", b"\x1f", b"\x12\5abc", b"\x15abc", b"\xff" * 99],
)
def test_damaged_messages_are_refused(value):
    with pytest.raises((LookupError, ValueError)):
        read_message(value, 0, {})


def test_groups_have_a_depth_limit():
    for levels in (MAX_DEPTH, MAX_DEPTH + 1, 100_000):
        value = b"\x1b" * levels + b"\x1c" * levels
        if levels == MAX_DEPTH:
            assert read_message(value, 0, {}) == {}
        else:
            with pytest.raises(LookupError):
                read_message(value, 0, {})
