"""Servers that ask for passwords, users who lack one right each, and commands that are called against them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from kafka.admin import ACLOperation, ResourceType

from streamdedup.embedded import RedisServer
from tests import servers
from tests.canaries import TLS
from tests.guarded_kafka import GuardedKafka, Right

#: Seconds that a command may take to end; on a busy machine, its imports alone take ten.
ANSWER_S = 180.0
#: Users, each with all rights of the daemon but those that the name says; "whole" and "replay" have more.
USERS = ("whole", "replay", "least", "no-input", "no-duplicates", "no-group", "no-transactions", "no-settings")
#: Consumer group that the users have their rights for.
GROUP = "articles-group"
#: Topics that they have their rights for.
INPUT, DUPLICATES, LETTERS = "articles", "duplicates", "duplicates.dlq"

SETTINGS = """
[kafka]
bootstrap_servers = "{kafka}"
security_protocol = "SASL_SSL"
ssl_ca_file = "{tls}/certificate.pem"
ssl_cert_file = "{tls}/certificate.pem"
ssl_key_file = "{tls}/plain.key"
sasl_mechanism = "PLAIN"
sasl_username = "whole"
sasl_password_file = "kafka-password"
group_id = "{group}"
instance_id = "a"
session_timeout = "6s"
transaction_timeout = "9s"

[redis]
url = "{redis}"
username = "whole"
password_file = "redis-password"

[service]
metrics_port = 0

[profiles.articles]
topics = ["{input}"]
"""


@dataclass
class Done:
    """How a command ended: its exit code and all that it wrote."""

    code: int
    text: str


def run(*arguments: object, environ: Mapping[str, str] | None = None) -> Done:
    """Run a command to its end, within ``ANSWER_S``, with variables besides those of this process."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "streamdedup", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environ or {})},
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"no answer within {ANSWER_S:g} s: {(error.stdout or b'').decode()[-2000:]}")
    return Done(done.returncode, done.stdout.decode(errors="replace"))


@dataclass
class Guarded:
    """Servers with everything as it should be, and a settings file for them.

    Attributes:
        folder: Where the settings file and the files of passwords are.
        kafka: Kafka.
        redis: Redis.
        passwords: Passwords of the users of Kafka and of Redis, and of the key of our certificate, by ``kafka``,
            ``redis`` and ``key``.
    """

    folder: Path
    kafka: GuardedKafka
    redis: RedisServer
    passwords: dict[str, str]

    @property
    def config(self) -> Path:
        """The settings file."""
        return self.folder / "streamdedup.toml"

    def command(self, *arguments: object, config: Path | None = None, **settings: object) -> list[str]:
        """Return a command's arguments, with settings over those of the file: two underscores stand for a dot."""
        sets = [part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
        return [*map(str, arguments), "--config", str(config or self.config), *sets]

    def run(self, *arguments: object, config: Path | None = None, **settings: object) -> Done:
        """Run a command to its end; see ``command``."""
        return run(*self.command(*arguments, config=config, **settings))

    def client(self) -> redis.Redis:
        """Return a client of Redis that may do anything."""
        return redis.Redis(port=self.redis.port, password=self.passwords["redis"], decode_responses=True)


@contextmanager
def guarded(folder: Path, passwords: dict[str, str], redis_program: str | None) -> Iterator[Guarded]:
    """Yield servers that ask for the passwords ``kafka`` and ``redis``; all users of a server have the same."""
    for name, password in passwords.items():
        (folder / f"{name}-password").write_text(password, encoding="utf-8")
    kafka = GuardedKafka(folder, dict.fromkeys(USERS, passwords["kafka"]))
    store = servers.make_redis(redis_program, options={"requirepass": passwords["redis"]})
    with kafka.server, store:
        kafka.create_topics(INPUT, DUPLICATES, LETTERS)
        for user in USERS:
            kafka.grant(user, rights_of(user))
        kafka.let_in_by_scram("least")
        # Who also creates topics, fills the input topic and reads the alerts.
        kafka.grant("whole", [(ResourceType.TOPIC, "*", ACLOperation.ALL)])
        # Lacks only the right on the group that stores the progress of a replay.
        kafka.grant("replay", [(ResourceType.TOPIC, INPUT, ACLOperation.WRITE)])
        kafka.grant("replay", [(ResourceType.TOPIC, LETTERS, ACLOperation.READ)])
        setup = Guarded(folder, kafka, store, passwords)
        with setup.client() as client:
            may_log_in = {"enabled": True, "passwords": [f"+{passwords['redis']}"], "keys": ["*"]}
            client.acl_setuser("whole", commands=["+@all"], **may_log_in)
            client.acl_setuser("reader", commands=["+@read", "+info"], **may_log_in)
        text = SETTINGS.format(tls=TLS, kafka=kafka.bootstrap_servers, redis=store.url, group=GROUP, input=INPUT)
        setup.config.write_text(text, encoding="utf-8")
        yield setup


def rights_of(
    user: str, group: str = GROUP, topics: tuple[str, str, str] = (INPUT, DUPLICATES, LETTERS)
) -> list[Right]:
    """Return what a user of that name is granted, for a group and the topics of input, alerts and dead letters."""
    given, *outputs = topics
    topic, transaction = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    granted = {
        "no-input": [(topic, given, ACLOperation.READ)],
        "no-duplicates": [
            *((topic, name, ACLOperation.WRITE) for name in outputs),
            (topic, outputs[0], ACLOperation.READ),
        ],
        "no-settings": [(topic, name, ACLOperation.DESCRIBE_CONFIGS) for name in (given, *outputs)],
        "no-group": [(ResourceType.GROUP, group, ACLOperation.READ)],
        "no-transactions": [(transaction, f"streamdedup-{group}-a", ACLOperation.WRITE)],
    }
    return [right for lacking, those in granted.items() if lacking != user for right in those]
