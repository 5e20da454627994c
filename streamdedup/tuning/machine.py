"""The measured costs of a document on one machine, as ``streamdedup plan`` saves them in a file."""

from typing import Annotated, Final, Literal

import msgspec

from streamdedup.errors import SettingsError

#: Version of the file; raised by a change that an earlier version would misread.
MACHINE_FORMAT: Final = 1

_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
#: Costs of entries, buckets of one band, further members of one band, and claims, as in ``memory.Costs``.
_Parts = tuple[_Amount, _Amount, _Amount, _Amount]


class MeasuredProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings that decide on the costs.

    Attributes:
        namespace: Prefix and profile of the keys, joined by a colon.
        shingles: Unit and size of shingles.
        bands: Bands of the index.
        rows: Rows of a band.
        bucket_layout: Bucket layout of the settings.
        retention_s: Retention in seconds.
        retention_slack_s: Retention slack in seconds.
    """

    namespace: str
    shingles: str
    bands: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    rows: _Count
    bucket_layout: Literal["sets", "packed"]
    retention_s: _Amount
    retention_slack_s: _Amount


class MeasuredSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The documents that were measured.

    Attributes:
        name: Files, or the built-in sample.
        documents: Documents of the sample.
        document_bytes: Bytes of a record, mean.
        alerts_share: Alerts for each document.
        matches: Matches of an alert, mean; 1 without alerts.
        alert_bytes: Bytes of an alert, mean.
        buckets: Buckets of all bands that a document adds, mean.
        members: Buckets of all bands that a document is inserted into, mean.
    """

    name: str
    documents: _Count
    document_bytes: _Amount
    alerts_share: _Share
    matches: _Amount
    alert_bytes: _Amount
    buckets: _Amount
    members: _Amount


class StageCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processor time in microseconds.

    Attributes:
        decode_us: Of the daemon, to decode a record.
        prepare_us: Of the daemon, for shingles, sketch and band keys of a document.
        alert_us: Of the daemon, to encode an alert.
        lookup_us: Of the service for look-ups, for a text.
        lookup_redis_us: Of Redis, for a text.
    """

    decode_us: _Amount
    prepare_us: _Amount
    alert_us: _Amount
    lookup_us: _Amount
    lookup_redis_us: _Amount


class LayoutCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs of the index stage with one bucket layout.

    Attributes:
        index_us: Processor time of the daemon for a document, in microseconds, with one slot for each band.
        redis_us: Processor time of Redis for a document.
        slot_us: Processor time of the daemon for each further slot of a chunk of documents.
        slot_redis_us: Processor time of Redis for each further slot of a chunk.
        sent_bytes: Bytes that Redis receives for a document.
        received_bytes: Bytes that Redis sends for a document.
        fixed_bytes: Memory that does not depend on the number.
        each_bytes: Memory of one more.
    """

    index_us: _Amount
    redis_us: _Amount
    slot_us: _Amount
    slot_redis_us: _Amount
    sent_bytes: _Amount
    received_bytes: _Amount
    fixed_bytes: _Parts
    each_bytes: _Parts


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measured machine.

    Attributes:
        format: Version of the file.
        measured_at: Time of the measurement.
        processor: Name of the processor.
        cores: Number of cores.
        versions: Versions of streamdedup, Python and the server.
        profile: The settings.
        sample: The documents.
        stages: Costs that do not depend on the bucket layout.
        layouts: Costs by bucket layout.
    """

    format: Literal[1]
    measured_at: str
    processor: str
    cores: _Count
    versions: dict[str, str]
    profile: MeasuredProfile
    sample: MeasuredSample
    stages: StageCosts
    layouts: dict[Literal["sets", "packed"], LayoutCosts]


def encode_machine(machine: Machine) -> bytes:
    """Return the content of the file of a measured machine."""
    return msgspec.json.format(msgspec.json.encode(machine), indent=2) + b"\n"


def decode_machine(content: bytes, name: str) -> Machine:
    """Return the measured machine in a file.

    Args:
        content: Content of the file.
        name: Name of the file, for errors.

    Raises:
        SettingsError: The file is not one of ``encode_machine``, or a number in it is out of range.
    """
    try:
        machine = msgspec.json.decode(content, type=Machine)
    except msgspec.MsgspecError as error:
        raise SettingsError(f"{name}: not a measurement of streamdedup plan --save: {error}") from error
    if len(machine.layouts) != 2:
        raise SettingsError(f"{name}: not a measurement of streamdedup plan --save: layouts are sets and packed")
    return machine
