"""Errors, sorted by the daemon's reaction, not by source; and all exit codes.

All folders raise them. ``daemon.loop`` and ``daemon.recovery`` react; ``cli.main`` and ``cli.fatal`` turn errors into
exit codes. A new exit code also touches ``EXIT_CODES`` of ``cli.main`` and docs/commands.md.

    StreamdedupError
    ├── SettingsError            refuse to start, exit 2
    ├── MessageError             this record becomes a dead letter, the others are processed
    │   ├── DecodeError
    │   └── DocumentTooLarge
    ├── CorpusError              a file cannot be read as a corpus; commands report it, exit 1
    │   └── UnknownFormat        the format of the file is not supported, exit 2
    ├── TransientError           back off, process the batch again: after an undo, or with new clients where stated
    │   ├── StoreUnavailable
    │   │   └── IndexBusy        the server answers: try again without a ping
    │   ├── RegistryUnavailable
    │   ├── BrokerUnavailable    with new clients; if publishing failed, in smaller batches
    │   │   ├── BrokerSilent     with the same clients
    │   │   ├── GroupHasOtherIndex  with new clients, once no member of the group uses another index
    │   │   └── MembershipEnded  with new clients, in smaller batches
    │   └── Rejoin               as a new member of the group
    ├── IndexNotWritable         a program must not write this index; it may look it up
    ├── DeadLetterBurst          publish nothing further, hold the partitions until a restart
    ├── BatchRefused             another daemon owns the partition: drop the batch, go on
    └── FatalError               exit; the supervisor or the operator decides
        ├── IndexMismatch
        ├── IndexLost            recover first, unless service.on_index_lost is fail
        ├── StaleFence
        ├── StoreMisconfigured
        ├── BrokerMisconfigured
        ├── RegistryMisconfigured
        ├── CodecMissing
        └── ProducerFenced       exit at the second within a minute; at the first, new clients

An error text is written for the operator: the cause, the place and the remedy. No error text contains a secret or a
document's text.
"""

#: Exit code: stopped on request.
EXIT_OK = 0
#: Exit code: a command failed (unreadable file, server absent).
EXIT_FAILED = 1
#: Exit code: wrong settings or wrong use of the command line.
EXIT_USAGE = 2
#: Exit code of ``index status``: offsets are committed that the index does not know.
EXIT_INDEX_LOST = 3
#: Exit code: the watchdog ended the process because the loop made no progress; safe to restart.
EXIT_STALLED = 70
#: Exit code: stopped on request, but a server did not answer in time; the next start replays the batch in flight.
EXIT_FORCED = 75
#: Exit code: a fatal error that a restart alone does not cure; the message names the remedy.
EXIT_FATAL = 78
#: Exit code: the reader of the output has gone, as in ``| head``; 128 plus the number of SIGPIPE, as in shells.
EXIT_PIPE = 141


class StreamdedupError(Exception):
    """Base class of the errors whose text is written for the operator."""


class SettingsError(StreamdedupError):
    """Settings are unknown, wrong or contradictory; one line for each mistake."""


class CorpusError(StreamdedupError):
    """A file cannot be read in the expected format; the text names the file and, if known, the line."""


class UnknownFormat(CorpusError):
    """A file's format is not supported or not recognised; the text names a way to convert the file."""


class MessageError(StreamdedupError):
    """A record can never be processed, in this or any later attempt; ``code`` is the stable name of the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DecodeError(MessageError):
    """A record's value is not a valid document."""


class DocumentTooLarge(MessageError):
    """A document's text is longer than the configured limit."""


class TransientError(StreamdedupError):
    """A server is unavailable for a while: back off, and process the batch again."""


class StoreUnavailable(TransientError):
    """The index server is unreachable, full, loading or failing over."""


class IndexBusy(StoreUnavailable):
    """Another process rebuilds or deletes the index."""


class RegistryUnavailable(TransientError):
    """The schema registry does not answer."""


class BrokerUnavailable(TransientError):
    """Kafka did not answer, or a transaction ended in a state that needs new clients."""


class BrokerSilent(BrokerUnavailable):
    """Kafka stopped answering outside a transaction; the same clients can be used when it answers again."""


class GroupHasOtherIndex(BrokerUnavailable):
    """Members of the consumer group use another index, so this daemon does not join."""


class MembershipEnded(BrokerUnavailable):
    """Kafka refused a commit because the group membership had ended during the batch; it may have taken too long."""


class Rejoin(TransientError):
    """The daemon must rejoin the consumer group, so that commits from the generation before are refused."""


class BatchRefused(StreamdedupError):
    """The index refused a write because another daemon owns the partition, or just owned it; drop the batch."""


class DeadLetterBurst(StreamdedupError):
    """Too many among a topic's last records would become dead letters; the batch must not be published."""


class IndexNotWritable(StreamdedupError):
    """The program that uses the library must not write this index; the text says why and what to do."""


class FatalError(StreamdedupError):
    """To go on would lose or repeat pairs, or is impossible without an operator."""


class IndexMismatch(FatalError):
    """The index was built with other parameters than this daemon has."""


class IndexLost(FatalError):
    """Offsets are committed, but the index for these records is gone."""


class StaleFence(FatalError):
    """The index is fenced by a later generation than this consumer group has reached."""


class StoreMisconfigured(FatalError):
    """The index server denies access, or its configuration loses keys."""


class BrokerMisconfigured(FatalError):
    """Kafka lacks a topic or a permission, or a size limit is too small."""


class RegistryMisconfigured(FatalError):
    """The server is no schema registry or denies access, its schemas lack configured fields, or protoc cannot run."""


class CodecMissing(FatalError):
    """Records are compressed with a codec whose library is not installed."""


class ProducerFenced(FatalError):
    """Another daemon uses the same transactional.id."""


def exit_code(error: StreamdedupError) -> int:
    """Return the documented exit code for an error that ends a command."""
    if isinstance(error, (SettingsError, UnknownFormat)):
        return EXIT_USAGE
    return EXIT_FATAL if isinstance(error, FatalError) else EXIT_FAILED
