"""What ``streamdedup index rebuild`` does: a member of the group, and the only one, builds the indexes anew."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from streamdedup.cli.assembly import kafka_options, rebuilder
from streamdedup.daemon.rebuild import Progress, keeping_membership
from streamdedup.errors import BrokerUnavailable
from streamdedup.index.redis.servers import Servers
from streamdedup.kafka import KafkaSource, KafkaTransport
from streamdedup.settings import Settings

#: Longest wait for one poll while joining the group, in seconds.
_POLL_S = 0.2


def rebuild_indexes(
    settings: Settings,
    names: Sequence[str],
    servers: Servers,
    on_keys: Callable[[int], None],
    progress: Progress,
) -> dict[str, int]:
    """Build the indexes of profiles anew from what the group has committed.

    Args:
        settings: The settings.
        names: The profiles.
        servers: The store.
        on_keys: Called with the number of keys of the old index deleted since the last call.
        progress: Told how far it is.

    Returns:
        How many records of each were replayed.

    Raises:
        StoreUnavailable: The store does not answer, or somebody else rebuilds an index.
        BrokerUnavailable: Kafka does not answer.
        FatalError: One of them refuses us.
    """
    builder = rebuilder(settings, servers, on_keys)
    try:
        for name in names:
            builder.begin(name)
        # Joined only now: what an earlier member has indexed and not committed is refused from here on.
        with _joined(settings) as (source, generation):
            committed = source.all_committed()
            step = keeping_membership(source, lambda: None)
            return {name: builder.rebuild(name, committed, generation, step, progress) for name in names}
    finally:
        builder.abandon()


@contextmanager
def _joined(settings: Settings) -> Iterator[tuple[KafkaSource, int]]:
    """Be a member of the group; yield the source, and the generation of the group.

    Raises:
        BrokerUnavailable: Kafka did not take us in in time.
    """
    # Not in the name of a daemon: it would stay a member after we have gone.
    options = replace(kafka_options(settings), group_instance_id=None)
    source, sink = KafkaTransport(options).open()
    try:
        deadline = time.monotonic() + options.session_timeout_s + options.fetch_timeout_s
        while (generation := source.generation()) is None or not source.assigned():
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"the group {options.group_id} did not take us in; is a daemon still a member?")
            source.hold(_POLL_S)
        yield source, generation
    finally:
        sink.close()
        source.close()
