"""The installed HTTP service beside a daemon, on a real Kafka and Redis."""

import pytest

from streamdedup.wire import decode_alert
from tests.made_corpus import a_corpus, the_expected
from tests.servers import read_topic, wait_no_transaction
from tests.serving import ServeProcess


@pytest.mark.long
def test_a_lookup_before_sending_finds_the_matches_of_the_alert(install, tmp_path):
    """Documents are looked up one by one before they are sent; what the daemon then alerts is what was found."""
    installation = install(partitions=1)
    corpus = a_corpus(3, 40)
    found = {}
    with installation.daemon() as daemon, ServeProcess(installation.config, tmp_path) as service:
        daemon.wait_ready()
        for at, (document_id, text) in enumerate(corpus, start=1):
            answer = service.look_up(text, id=document_id)
            if answer["matches"]:
                found[document_id] = answer["matches"]
            installation.send([(document_id, text)])
            installation.wait_committed(at)
        batch = service.request(
            "POST", "/v1/profiles/articles/lookup:batch", {"texts": [{"text": text} for _, text in corpus]}
        )[2]
        assert daemon.stop() == 0
        assert service.stop() == 0
    # What is committed may be so for the group a moment before it is for subscribers.
    wait_no_transaction(installation.kafka, [installation.duplicates])
    records = read_topic(installation.kafka, installation.duplicates)
    alerts = [decode_alert(record.value) for record in records]
    assert len(the_expected(corpus)) > 5
    assert {
        alert.document.id: [(match.id, match.similarity, match.pair) for match in alert.matches] for alert in alerts
    } == {
        each: [(match["id"], match["similarity"], match["pair"]) for match in matches]
        for each, matches in found.items()
    }
    # Afterwards each text is known by its own document.
    ids = [{match["id"] for match in result["answer"]["matches"]} for result in batch["results"]]
    assert all(document_id in known for (document_id, _), known in zip(corpus, ids, strict=True))
