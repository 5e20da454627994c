"""Kafka behind the Protocols of ``kafka.protocols``; the only package that imports the Kafka client.

    protocols      records, batches, sources and sinks as the daemon knows them
    options        settings of a connection, and the client configurations that follow from them
    login          passwords and tokens that change while the process runs
    consumer       the consumer of the group: poll, rewind, keep the membership, commit
    fresh_poll     a second poll where the first returns only records fetched before
    watches        watches over the membership, the topics and the silence of Kafka
    group_admin    questions about a group without joining it, for commands
    offsets        committed offsets of the group, with their metadata
    producer       transactions, plain publishing, and many records of a corpus
    reader         reading topics without a group
    history        bounded reads of topics, for a rebuild and for commands
    texts          the text of a document, from its record
    pace           the rate of sent records, for commands
    admin          topics: look up, create, check
    errors         errors of the client as errors of this package; calls with a time limit
    unreadable     offsets that the client cannot parse
    batch_limits   limits on the memory of a record batch and of a poll
    decoders       decompression with a limit
    compat         all other use of private parts of the client

Calls that ask Kafka raise ``BrokerUnavailable`` if no broker answers in time, and ``FatalError`` if the broker refuses
the client permanently; docstrings name further errors only.

The client has traps that lose or duplicate records, such as an unchecked future or a membership read too late. The code
names each trap, and ``tests/integration/test_kafka_traps.py`` has a test for each.
"""
