"""The incarnation of each topic that a consumer reads: Kafka's topic id, which a topic created again does not keep."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from streamdedup.errors import Rejoin
from streamdedup.kafka.protocols import Bookmark
from streamdedup.position import Partition

#: What is committed along with an offset: a note, then the id of the topic.
_METADATA = re.compile(r"(?P<note>.*?) ?(?P<topic_id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})")


#: What a broker tells of a topic that does not exist.
_NO_ID = str(UUID(int=0))


def topic_id_of(told: UUID | str | None) -> str:
    """Return a topic id as text; empty when the broker told none (before Kafka 2.8) or the topic does not exist."""
    text = "" if told is None else str(told)
    return "" if text == _NO_ID else text


def metadata_of(note: str, topic_id: str) -> str:
    """Return what is committed along with an offset."""
    return f"{note} {topic_id}".strip()


def committed_for(metadata: str) -> tuple[str, str]:
    """Return the note and the topic id that were committed along with an offset; each empty when there is none."""
    match = _METADATA.fullmatch(metadata)
    return (metadata, "") if match is None else (match["note"], match["topic_id"])


def of_present_topics(
    found: Mapping[Any, Any], topic_ids: Mapping[str, str]
) -> tuple[dict[Partition, Bookmark], frozenset[Partition]]:
    """Sort committed offsets by whether they belong to the present incarnation of their topic.

    Kafka deletes what was committed for a deleted topic, but a group coordinator may do so late, and a batch that was
    polled before the deletion may be committed after it.

    Args:
        found: The client's committed offset of each partition.
        topic_ids: Present id of each topic, as far as known.

    Returns:
        Bookmarks of present topics, and the partitions whose committed offset is that of an earlier incarnation.
    """
    bookmarks, earlier = {}, set()
    for place, committed in found.items():
        partition = Partition(*place)
        note, topic_id = committed_for(committed.metadata or "")
        present = topic_ids.get(partition.topic, "")
        if topic_id and present and topic_id != present:
            earlier.add(partition)
        else:
            bookmarks[partition] = Bookmark(committed.offset, note)
    return bookmarks, frozenset(earlier)


class TopicIds:
    """The id of each topic as first told to a consumer.

    kafka-python 3.0.12 fetches by name: after a topic was created again a consumer goes on at its old offset, or at the
    oldest record when that offset does not exist, and returns records of either topic from its buffers. New clients
    know the new id before they fetch anything.

    Args:
        consumer: The client's consumer.
        topics: Its topics.
    """

    def __init__(self, consumer: Any, topics: Iterable[str]) -> None:
        self._topics = tuple(topics)
        self._ids: dict[str, str] = {}
        self._recreated: str | None = None
        cluster = consumer._cluster  # noqa: SLF001  no public method of the consumer tells the ids
        cluster.add_listener(self._take_note)
        self._take_note(cluster)

    def known(self) -> dict[str, str]:
        """Return the id of each topic that has one."""
        return dict(self._ids)

    def _take_note(self, cluster: Any) -> None:
        """Compare with what was told first; called on the client's network thread at each update of its metadata."""
        for topic in self._topics:
            topic_id = topic_id_of(cluster.topic_id(topic))
            if topic_id and self._ids.setdefault(topic, topic_id) != topic_id:
                self._recreated = topic

    def look(self) -> None:
        """Raise when a topic has another id than at first.

        Raises:
            Rejoin: It was deleted and created again.
        """
        if self._recreated is not None:
            raise Rejoin(f"topic {self._recreated} was deleted and created again: the group is joined anew")
