"""The daemon with logins that expire while it runs."""

from tests.daemons import PATIENT
from tests.made_corpus import a_corpus, the_expected
from tests.servers import wait_until
from tests.token_login import ExpiringTokens


def test_tokens_of_redis_that_expire_while_documents_flow_lose_and_double_nothing(install, start_redis):
    installation = install(2, batch_records=10)
    corpus = a_corpus(31, 240)
    redis = start_redis()
    settings = {"redis.url": redis.url, "redis.credential_provider": "tests.token_login:provider"}
    with ExpiringTokens(redis.port) as tokens, installation.daemon(**PATIENT, **settings) as daemon:
        for start in range(0, len(corpus), 60):
            ended_count = tokens.ended_count
            installation.send(corpus[start : start + 60])
            installation.wait_committed(start + 60)
            wait_until(lambda before=ended_count: tokens.ended_count > before, what="the end of a token")
        assert daemon.stop() == 0
        assert "canary" not in daemon.log.read_text(encoding="utf-8")
    assert installation.pairs() == the_expected(corpus)
