"""Kafka behind the Protocols of ``kafka.protocols``: the only package that imports the Kafka client.

    options      what can be set, and the client configurations that follow from it
    client       clients built and closed within a bound; calls that could block for ever, bounded
    failures     every error of the client turned into one of ours
    records      records and offsets, theirs and ours
    source       poll, rewind, hold, commit
    unreadable   which offsets the client cannot parse
    sinks        publish in one transaction, or at least once
    topics       look up and create topics
    topic_settings  size, retention and compaction of topics
    checks       everything that can be verified before the first record
    groups       members and committed offsets of the group
    connect      opens both ends
    reader       follow topics, fetch single records; no group
    span         read to the ends of a moment; remember how far
    history      read topics from a time on
    feeder       send many records, each checked

The client has traps that lose or double records (an unchecked future, a reused producer, metadata taken late, a poll
that spins for ever). Each rule against one stands beside the code that follows it and has a test in
``tests/integration/test_kafka_traps.py``.
"""

from streamdedup.kafka.checks import check_kafka
from streamdedup.kafka.connect import KafkaTransport
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.groups import GroupState, committed_quietly, describe_group
from streamdedup.kafka.history import KafkaHistory
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import PlainSink, TransactionalSink
from streamdedup.kafka.topic_settings import TopicNeed
from streamdedup.kafka.topics import BROKERS_DEFAULT, CreatedTopics, check_topics, create_topics

__all__ = [
    "BROKERS_DEFAULT",
    "CreatedTopics",
    "GroupState",
    "KafkaHistory",
    "KafkaOptions",
    "KafkaSource",
    "KafkaTransport",
    "PlainSink",
    "TopicNeed",
    "TransactionalSink",
    "check_kafka",
    "check_topics",
    "committed_quietly",
    "create_topics",
    "describe_group",
]
