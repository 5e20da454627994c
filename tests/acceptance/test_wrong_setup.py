"""Everything that can be set up wrong, and the answer: an exit code, words that say what to do, and no traceback.

The servers ask for passwords and grant nothing by themselves; each case is one call of the command.
"""

import socket

import pytest

from streamdedup.errors import EXIT_FATAL, EXIT_OK, EXIT_USAGE
from tests.canaries import TLS
from tests.daemons import Daemon
from tests.guarded import DUPLICATES, GROUP, INPUT, LETTERS, Done, Guarded

#: Another password than that of anybody.
WRONG = "swordfish"


@pytest.fixture(scope="module")
def setup(guarded_servers: Guarded) -> Guarded:
    """The servers, with topics that are set up wrong, and a file with a wrong password."""
    kafka = guarded_servers.kafka
    kafka.create_topics("small", **{"max.message.bytes": "70000"})
    kafka.create_topics("compacted", **{"cleanup.policy": "compact"})
    kafka.create_topics("brief", **{"retention.ms": str(7 * 86_400_000)})
    (guarded_servers.folder / "wrong-password").write_text(WRONG, encoding="utf-8")
    return guarded_servers


def answered(done: Done, code: int, *words: str) -> None:
    """Check the exit code, that all of ``words`` are said, and that nothing is said in Python."""
    assert done.code == code, done.text[-3000:]
    assert [word for word in words if word.lower() not in done.text.lower()] == [], done.text[-3000:]
    assert "Traceback" not in done.text


class TestKafka:
    @pytest.mark.parametrize(
        ("settings", "name"),
        [
            ({"profiles__articles__topics": "nowhere"}, "nowhere"),
            ({"kafka__duplicates_topic": "no-alerts", "kafka__dead_letter_topic": "duplicates.dlq"}, "no-alerts"),
            ({"kafka__dead_letter_topic": "no-letters"}, "no-letters"),
        ],
    )
    def test_a_missing_topic_is_named_with_the_command_that_creates_it(self, setup, settings, name):
        answered(setup.run("run", **settings), EXIT_FATAL, name, "streamdedup topics create")

    def test_a_topic_for_smaller_messages_is_named_with_what_to_raise_or_to_lower(self, setup):
        done = setup.run("run", kafka__duplicates_topic="small", kafka__dead_letter_topic="duplicates.dlq")
        answered(done, EXIT_FATAL, "small", "max.message.bytes", "kafka.max_message_bytes")

    @pytest.mark.parametrize("command", ["run", "check"])
    @pytest.mark.parametrize("topic", ["duplicates_topic", "dead_letter_topic"])
    def test_a_compacted_output_topic_is_named_with_what_to_set(self, setup, command, topic):
        settings = {"kafka__dead_letter_topic": "duplicates.dlq"} | {f"kafka__{topic}": "compacted"}
        done = setup.run(command, **settings)
        answered(done, EXIT_FATAL, "topic compacted is compacted", "--add-config cleanup.policy=delete")

    def test_a_topic_that_keeps_less_than_a_rebuild_reads_is_warned_of_with_the_command(self, setup):
        settings = {"kafka__duplicates_topic": "brief", "kafka__dead_letter_topic": "duplicates.dlq"}
        command = "--entity-name brief --add-config retention.ms=2678400000"
        answered(setup.run("check", **settings), EXIT_OK, "warning  topic brief keeps records for 7 days only", command)
        with Daemon(setup, "a", {key.replace("__", "."): value for key, value in settings.items()}) as daemon:
            daemon.wait_ready()
            assert [command in event["reason"] for event in daemon.events("topic_warning")] == [True]
            assert daemon.stop() == 0

    @pytest.mark.parametrize("command", [["run"], ["tail"], ["topics", "create"], ["index", "unfence", "--yes"]])
    def test_a_wrong_password_is_told_as_such_by_every_command(self, setup, command):
        done = setup.run(*command, kafka__sasl_password_file=setup.folder / "wrong-password")
        answered(done, EXIT_FATAL, "kafka", "sasl_username", "password")
        assert WRONG not in done.text

    def test_a_broker_whose_certificate_is_not_trusted_is_told_as_such(self, setup):
        done = setup.run("run", kafka__ssl_ca_file=TLS / "other.pem")
        answered(done, EXIT_FATAL, "certificate", "kafka.ssl_ca_file")

    def test_a_login_that_the_broker_does_not_know_is_named(self, setup):
        answered(setup.run("run", kafka__sasl_mechanism="SCRAM-SHA-256"), EXIT_FATAL, "sasl_mechanism")

    @pytest.mark.parametrize(
        ("user", "words"),
        [
            ("no-input", ["rights", "READ on topic articles"]),
            ("no-duplicates", ["rights", "WRITE on topic duplicates"]),
            ("no-group", ["rights", "READ on the consumer group"]),
            ("no-transactions", ["rights", "WRITE on transactional ids", "streamdedup-<kafka.group_id>"]),
        ],
    )
    def test_a_right_that_is_missing_is_named(self, setup, user, words):
        answered(setup.run("run", kafka__sasl_username=user), EXIT_FATAL, *words)

    def test_a_right_that_a_command_needs_beside_those_of_the_daemon_is_named_before_anything_is_sent(self, setup):
        user = {"kafka__sasl_username": "no-settings"}
        corpus = setup.folder / "corpus.jsonl"
        corpus.write_text('{"id": "a", "text": "b"}\n', encoding="utf-8")
        done = setup.run("produce", corpus, "--topic", INPUT, **user)
        answered(done, EXIT_FATAL, f"grant WRITE on topic {INPUT}")
        replay = ("dlq", "replay", "--yes", "--from-beginning")
        answered(setup.run(*replay, **user), EXIT_FATAL, f"grant READ, WRITE on topic {INPUT}")
        done = setup.run(*replay, kafka__sasl_username="replay")
        answered(done, EXIT_FATAL, "grant READ on the consumer group", f"{GROUP}.dlq-replay")

    def test_no_right_to_create_topics_is_told_with_the_topics_name(self, setup):
        settings = {"kafka__sasl_username": "no-input", "profiles__articles__topics": "new"}
        answered(setup.run("topics", "create", **settings), EXIT_FATAL, "rights", "new")

    def test_a_transaction_timeout_above_the_brokers_is_told_with_both_names(self, setup):
        done = setup.run("run", kafka__transaction_timeout="61s")
        answered(done, EXIT_FATAL, "transaction.max.timeout.ms", "kafka.transaction_timeout")

    def test_a_session_timeout_beyond_what_the_broker_allows_is_told(self, setup):
        answered(setup.run("run", kafka__session_timeout="61s"), EXIT_FATAL, "kafka.session_timeout", "broker")

    def test_without_the_right_to_read_settings_of_topics_it_works_and_says_so(self, setup):
        with Daemon(setup, "a", {"kafka.sasl_username": "no-settings"}) as daemon:
            daemon.wait_ready()
            reasons = [event["reason"] for event in daemon.events("topic_warning")]
            told = {reason.rpartition("grant DESCRIBE_CONFIGS on topic ")[2].split()[0] for reason in reasons}
            assert told == {INPUT, DUPLICATES, LETTERS}
            assert daemon.stop() == 0


class TestRedis:
    def test_a_user_who_may_not_write_is_told_as_such(self, setup):
        answered(setup.run("run", redis__username="reader"), EXIT_FATAL, "rights", "redis.username")


class TestCheck:
    """``streamdedup check`` against the same servers: all failures at once, and nothing that changes them."""

    def test_with_everything_as_it_should_be_nothing_fails_and_no_password_is_shown(self, setup):
        done = setup.run("check")
        answered(done, EXIT_OK, "0 failed: the daemon can start", "READ granted", "WRITE granted on streamdedup-")
        assert not [password for password in setup.passwords.values() if password in done.text]

    def test_everything_that_is_wrong_is_told_at_once(self, setup):
        settings = {
            "profiles__articles__topics": "nowhere",
            "kafka__duplicates_topic": "small",
            "kafka__dead_letter_topic": "compacted",
            "redis__username": "reader",
        }
        done = setup.run("check", **settings)
        answered(done, EXIT_FATAL, "no such topic: nowhere", "small takes messages", "compacted, which")
        answered(done, EXIT_FATAL, "lacks rights", "the daemon would not start")

    def test_a_wrong_password_is_told_for_each_server_and_shown_for_none(self, setup):
        wrong = setup.folder / "wrong-password"
        done = setup.run("check", kafka__sasl_password_file=wrong, redis__password_file=wrong)
        answered(done, EXIT_FATAL, "kafka.sasl_username", "redis.username")
        assert WRONG not in done.text


class TestThisMachine:
    def test_a_port_in_use_is_told_with_its_setting(self, setup):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            answered(setup.run("run", service__metrics_port=port), EXIT_USAGE, "service.metrics_port", str(port))

    def test_an_address_that_is_not_this_machines_is_told_with_its_setting(self, setup):
        answered(setup.run("run", service__metrics_host="192.0.2.1"), EXIT_USAGE, "192.0.2.1", "service.metrics_")
