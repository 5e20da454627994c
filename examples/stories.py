"""Keep documents and stories in PostgreSQL; docs/deployment.md, "From alerts to a table", shows how to run it.

The tables ``documents``, ``members`` (each document with its ``cluster``, the id of the first one), ``stories``
(clusters of two or more) and ``live_pairs`` are those of present versions: the program also reads the input topics,
because no alert tells that a document was deleted or replaced. A document is in the story of the earliest document
that it resembles, of those that are left; the ``cluster_id`` of an alert is that of the moment.

Missing are documents whose records had expired at the first start, and pairs of alerts in Avro without their schema.
Dead letters such as ``unknown_document`` still change the table. When a topic is created again, delete its rows in
``offsets``.

Documents stay when they leave the index, and pairs when their documents are deleted. To remove both:

    DELETE FROM documents WHERE time < now() - interval '62 days';
    DELETE FROM pairs p WHERE (SELECT count(*) FROM documents d
      WHERE d.profile = p.profile AND d.id IN (p.id, p.other)) < 2;
"""

import sys
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import psycopg

from streamdedup.cli.assembly import alert_reader, kafka_options, topic_decoder
from streamdedup.errors import MessageError, StreamdedupError
from streamdedup.kafka.reader import TopicReader
from streamdedup.settings import Settings
from streamdedup.wire import content_digest, decode_alert


def store(database, inputs, alerts, record):
    """Store the pairs of an alert, or change the document of an input record as the daemon does."""
    if record.position.topic not in inputs:
        alert = decode_alert(alerts.as_json(record.value or b""))
        pairs = [(alert.profile, alert.document.id, alert.document.digest, m.id, m.digest) for m in alert.matches]
        database.cursor().executemany("SELECT store_pair(%s, %s, %s, %s, %s)", pairs)
        return
    profile, decoder = inputs[record.position.topic]
    document = decoder.decode(record.position, record.timestamp_ms, record.key, record.value, record.headers)
    key, digest = (profile, document.id), content_digest(document.text, document.scope)
    if document.op == "delete":
        database.execute("DELETE FROM documents WHERE (profile, id) = (%s, %s)", key)
    elif document.op == "append":
        for (digests,) in database.execute("SELECT digests FROM documents WHERE (profile, id) = (%s, %s)", key):
            appended = blake2b(bytes.fromhex(digests[-1]) + digest, digest_size=16).hexdigest()
            database.execute("SELECT store_append(%s, %s, %s)", (*key, appended))
    else:
        source = document.source and document.source.replace("\0", "")
        database.execute("SELECT store_document(%s, %s, %s, %s, %s)", (*key, digest.hex(), source, document.time_ms))


def main(settings, address):
    """Follow the topics from the stored offsets on; a batch and the offsets behind it are one transaction."""
    inputs = {topic: (name, topic_decoder(settings, p)) for name, p in settings.profiles.items() for topic in p.topics}
    alerts = alert_reader(settings)
    options = replace(kafka_options(settings), topics=(*inputs, settings.kafka.duplicates_topic))
    with psycopg.connect(address, autocommit=True) as database, TopicReader(options) as reader:
        database.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
        reader.start_at({(topic, number): offset for topic, number, offset in database.execute("TABLE offsets")})
        while not reader.has_new_partitions():
            records = reader.poll(1).records
            with database.transaction():
                for record in records:
                    with suppress(MessageError):  # the daemon makes a dead letter of the record
                        store(database, inputs, alerts, record)
                    database.execute("SELECT store_offset(%s, %s, %s)", record.position[:3])


if __name__ == "__main__":
    try:
        sys.exit(main(Settings.load(Path(sys.argv[1])), sys.argv[2]) if sys.argv[2:] else "stories.py SETTINGS ADDRESS")
    except (StreamdedupError, psycopg.Error) as error:
        sys.exit(f"{error}".replace(sys.argv[2], "ADDRESS"))  # the address may have a password
