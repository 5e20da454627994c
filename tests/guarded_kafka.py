"""A Kafka that asks for certificate, user and password, and grants nothing by itself."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from tests import servers
from tests.canaries import TLS
from tests.support.kafka import KafkaServer

#: The only user who may do anything.
ADMIN = "admin"

#: What the daemon must be granted: kind of resource, its name, operation.
Right = tuple[ResourceType, str, ACLOperation]


class GuardedKafka:
    """Users of a Kafka, their passwords and their rights.

    Args:
        folder: Where to put its certificate together with the key.
        passwords: Password of each user besides the administrator.
    """

    def __init__(self, folder: Path, passwords: dict[str, str]) -> None:
        self._keystore = folder / "keystore.pem"
        self._keystore.write_bytes(b"".join((TLS / name).read_bytes() for name in ("plain.key", "certificate.pem")))
        self._passwords = {ADMIN: "only-for-tests", **passwords}
        self.server = KafkaServer(servers.kafka_jars(), options=self._properties(), probe=self._count_brokers)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses, separated by commas."""
        return self.server.bootstrap_servers

    def login(self, user: str = ADMIN) -> dict[str, Any]:
        """Return the client's options with which a user logs in, by ``PLAIN``."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(TLS / "certificate.pem"),
            "ssl_certfile": str(TLS / "certificate.pem"),
            "ssl_keyfile": str(TLS / "plain.key"),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": self._passwords[user],
        }

    @contextlib.contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """Yield a client that may do anything."""
        with contextlib.closing(servers.admin_client(self.bootstrap_servers, **self.login())) as admin:
            yield admin

    def create_topics(self, *names: str, **configs: str) -> None:
        """Create topics of one partition."""
        topic = {"num_partitions": 1, "replication_factor": 1, "configs": configs}
        with self.admin() as admin:
            admin.create_topics(dict.fromkeys(names, topic), wait_for_metadata=True)

    def grant(self, user: str, rights: list[Right]) -> None:
        """Grant rights to a user."""
        acls = _acls_of(user, rights)
        with self.admin() as admin:
            admin.create_acls(acls)
            # The controller has answered; the broker learns of it a moment later.
            for acl in acls:
                servers.wait_until(lambda acl=acl: admin.describe_acls(acl)[0], what=f"{acl}")

    def withdraw(self, user: str, rights: list[Right]) -> None:
        """Withdraw rights that were granted."""
        with self.admin() as admin:
            admin.delete_acls(_acls_of(user, rights))

    def let_in_by_scram(self, user: str) -> None:
        """Let a user log in by ``SCRAM-SHA-512``, with the password given for it."""
        credential = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, self._passwords[user])
        with self.admin() as admin:
            problems = admin.alter_user_scram_credentials([credential])
        if any(problems.values()):
            raise RuntimeError(f"the broker takes no SCRAM login: {problems}")

    def _properties(self) -> dict[str, str]:
        """Return what makes a broker ask for passwords and refuse whatever is not granted."""
        users = " ".join(f'user_{name}="{password}"' for name, password in self._passwords.items())
        own = f'username="{ADMIN}" password="{self._passwords[ADMIN]}"'
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listener.name.plaintext.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(TLS / "certificate.pem"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": f"{module} required {own} {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The controllers' listener asks for no password, so whoever uses it is nobody in particular.
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "transaction.max.timeout.ms": "60000",
            "group.max.session.timeout.ms": "60000",
        }

    def _count_brokers(self, address: str) -> int:
        """How many brokers the one at ``address`` sees; 0 while it lets nobody in."""
        ask: Callable[[], KafkaAdminClient] = partial(
            servers.admin_client, address, bootstrap_timeout_ms=1_000, **self.login()
        )
        try:
            with contextlib.closing(ask()) as admin:
                return len(admin.describe_cluster()["brokers"])
        except (KafkaError, OSError):
            return 0


def _acls_of(user: str, rights: list[Right]) -> list[ACL]:
    return [
        ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name))
        for kind, name, operation in rights
    ]
