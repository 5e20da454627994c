"""Every error of the project, sorted by what the service does about it, not by who raised it.

    StreamdedupError
    ├── SettingsError            refuse to start, exit 2
    ├── MessageError             this record becomes a dead letter, the rest goes on
    │   ├── DecodeError
    │   └── DocumentTooLarge
    ├── CorpusError              a file that cannot be read as a corpus; commands report it, exit 1
    ├── OutputError              a file or a stream that cannot be written; commands report it, exit 1
    ├── TransientError           undo the batch, back off, try again
    │   ├── StoreUnavailable
    │   ├── BrokerUnavailable    with new clients
    │   │   └── BrokerSilent     with the same clients
    │   └── Rejoin               as a new member of the group
    ├── DeadLetterBurst          publish nothing further, hold the partitions until a restart
    ├── BatchRefused             somebody else owns the partition by now: drop the batch, go on
    └── FatalError               exit, and let the supervisor or the operator decide
        ├── IndexMismatch
        ├── IndexLost
        ├── StaleFence
        ├── StoreMisconfigured
        ├── BrokerMisconfigured
        ├── CodecMissing
        └── ProducerFenced

The text of an error is written for the operator: what was wrong, where, and what to do. No error text contains a
secret or the text of a document.
"""

#: Exit code: stopped because it was asked to.
EXIT_OK = 0
#: Exit code: a command could not do what it was asked for (unreadable file, server absent).
EXIT_FAILED = 1
#: Exit code: the reader of the output has gone, as in ``| head``; what shells count: 128 and the number of SIGPIPE.
EXIT_PIPE = 141
#: Exit code: wrong settings or wrong use of the command line.
EXIT_USAGE = 2
#: Exit code of ``index status``: offsets are committed, and the index does not know them.
EXIT_INDEX_LOST = 3
#: Exit code: the watchdog saw no progress and ended the process; safe to restart.
EXIT_STALLED = 70
#: Exit code: a fatal error that a restart alone does not cure; the message says what does.
EXIT_FATAL = 78
#: Exit code: asked to stop, but a server did not answer in time; the batch in flight is replayed at the next start.
EXIT_FORCED = 75


class StreamdedupError(Exception):
    """Root of all errors that the project raises on purpose."""


class SettingsError(StreamdedupError):
    """Settings that are unknown, of a wrong kind or contradict each other; one line of text for each mistake."""


class CorpusError(StreamdedupError):
    """A file that is not the corpus it was said to be; the text names the file and, where there is one, the line."""


class OutputError(StreamdedupError):
    """A file or a stream that a command cannot write to: unwritable, or its disk is full; the text names it."""


class MessageError(StreamdedupError):
    """A record that can never be processed, however often it is tried.

    Attributes:
        code: Stable, machine-readable name of the reason, for headers and metric labels.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DecodeError(MessageError):
    """A value that is not the JSON object it should be."""


class DocumentTooLarge(MessageError):
    """A document beyond the configured size."""


class TransientError(StreamdedupError):
    """A server that may come back: undo the batch, back off, try again."""


class StoreUnavailable(TransientError):
    """The index's server is away, full, loading or failing over."""


class BrokerUnavailable(TransientError):
    """Kafka did not answer, or a transaction ended in a state that only new clients resolve."""


class BrokerSilent(BrokerUnavailable):
    """Kafka has stopped answering while nothing was under way; the same clients go on when it is back."""


class Rejoin(TransientError):
    """The group must be joined anew, so that it refuses what was indexed before."""


class BatchRefused(StreamdedupError):
    """A write was refused because a later generation owns the partition; the batch must be dropped."""


class DeadLetterBurst(StreamdedupError):
    """More of a topic's last records than allowed would become dead letters; the batch must not be published."""


class FatalError(StreamdedupError):
    """Going on would lose or double pairs, or cannot succeed without an operator."""


class IndexMismatch(FatalError):
    """The stored index was built with other parameters than this daemon's."""


class IndexLost(FatalError):
    """Offsets are committed, but the index that they were written to is gone."""


class StaleFence(FatalError):
    """The index is fenced by a generation that this consumer group has never reached."""


class StoreMisconfigured(FatalError):
    """The server refuses us, or is set up so that it loses keys."""


class BrokerMisconfigured(FatalError):
    """A topic is missing, a right is missing, or a size limit is too small."""


class CodecMissing(FatalError):
    """Records are compressed with a codec whose library is not installed."""


class ProducerFenced(FatalError):
    """Two live daemons share one transactional.id."""


def exit_code(error: StreamdedupError) -> int:
    """Return the documented exit code of an error that ends a command."""
    if isinstance(error, SettingsError):
        return EXIT_USAGE
    return EXIT_FATAL if isinstance(error, FatalError) else EXIT_FAILED
