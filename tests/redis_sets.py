"""Redis servers of the tests' own: a cluster, a master with a replica and a Sentinel, one that speaks TLS only."""

import contextlib
import itertools
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import redis

from streamdedup.embedded import ManagedProcess, RedisServer, find_redis
from streamdedup.embedded.process import LOOPBACK
from tests.canaries import TLS
from tests.servers import make_redis, wait_until
from tests.support.ports import accepts_connections, free_ports

#: Where a server can be reached by an address that is not in its certificate.
OTHER_LOOPBACK = "127.0.0.2"
#: The page that says how Redis is run.
PAGE = Path(__file__).parents[1] / "docs" / "redis.md"
#: Slots of a cluster.
SLOTS_COUNT = 16384
#: Milliseconds without an answer after which nodes of a cluster and Sentinels take a server for dead.
DEAD_AFTER_MS = 1000
#: The same where no server is to be taken for dead.
PATIENT_MS = 120_000
#: Name under which the Sentinel knows the master.
SERVICE = "index"


class ClusterNode(RedisServer):
    """A server that can be a node of a cluster."""

    def __init__(self, program: str | None, **options: str):
        common = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(DEAD_AFTER_MS),
            # Five seconds of waiting for further replicas would be waited for in vain.
            "repl-diskless-sync-delay": "0",
            # A replica takes over however long ago its master was killed.
            "cluster-replica-validity-factor": "0",
        }
        super().__init__(program, options={**common, **options})
        self.bus_port = 0

    def choose_ports(self) -> None:
        # Left alone, the second port would be among those that outgoing connections get.
        self.port, self.bus_port = free_ports(2)

    def command(self) -> list[str]:
        return [*super().command(), "--cluster-port", str(self.bus_port)]


class Cluster:
    """Masters that share the slots evenly, spare nodes without slots, and a replica of each master or none.

    ``nodes`` are the masters, then the spare nodes, then the replicas in the order of their masters.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        program: str | None,
        masters: int,
        spares: int,
        *,
        replicated: bool = False,
        **options: str,
    ):
        self.program = program
        nodes_count = masters + spares + (masters if replicated else 0)
        self.nodes = [stack.enter_context(ClusterNode(program, **options)) for _ in range(nodes_count)]
        self.clients = [stack.enter_context(redis.Redis(port=node.port)) for node in self.nodes]
        for at, client in enumerate(self.clients):
            client.cluster("SET-CONFIG-EPOCH", at + 1)
        for at, client in enumerate(self.clients[:masters]):
            client.cluster("ADDSLOTSRANGE", SLOTS_COUNT * at // masters, SLOTS_COUNT * (at + 1) // masters - 1)
        for node in self.nodes[1:]:
            self.clients[0].cluster("MEET", LOOPBACK, node.port, node.bus_port)
        wait_until(self.is_settled, what="the cluster")
        for at in range(masters if replicated else 0):
            replica = self.clients[masters + spares + at]
            replica.cluster("REPLICATE", self.clients[at].cluster("MYID"))
            wait_until(lambda one=replica: one.info("replication").get("master_link_status") == "up", what="a copy")
        if replicated:
            wait_until(self.replicas_are_known, what="replicas in the map of every node")

    def be_patient(self) -> None:
        """Let no node take another one for dead because the machine is busy."""
        self._take_for_dead_after(PATIENT_MS)

    def be_quick(self) -> None:
        self._take_for_dead_after(DEAD_AFTER_MS)

    def _take_for_dead_after(self, silence_ms: int) -> None:
        for node, client in zip(self.nodes, self.clients, strict=True):
            if node.is_running():
                client.config_set("cluster-node-timeout", silence_ms)

    def replicas_are_known(self) -> bool:
        """Tell whether every node names a replica for each range of slots; clients read the map once."""
        return all(
            len(servers) > 1 for client in self.clients for _, _, *servers in client.execute_command("CLUSTER SLOTS")
        )

    def is_settled(self) -> bool:
        facts = [client.cluster("INFO") for client in self.clients]
        return all(
            (fact["cluster_state"], int(fact["cluster_known_nodes"])) == ("ok", len(self.nodes)) for fact in facts
        )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(LOOPBACK, node.port) for node in self.nodes]

    def all_keys(self) -> list[bytes]:
        return list(itertools.chain.from_iterable(client.keys() for client in self.clients))

    def flush(self) -> None:
        for client in self.clients:
            client.flushall()

    def slot(self, key: bytes) -> int:
        return int(self.clients[0].cluster("KEYSLOT", key))

    def owner(self, slot: int) -> int:
        for first, last, (_, port, *_), *_ in self.clients[0].execute_command("CLUSTER SLOTS"):
            if first <= slot <= last:
                return [node.port for node in self.nodes].index(port)
        raise LookupError(f"nobody serves slot {slot}")

    def begin_move(self, slot: int, to: int) -> None:
        """Declare that a slot is on its way to another node, as a resharding does first."""
        source = self.clients[self.owner(slot)]
        self.clients[to].cluster("SETSLOT", slot, "IMPORTING", source.cluster("MYID"))
        source.cluster("SETSLOT", slot, "MIGRATING", self.clients[to].cluster("MYID"))

    def move_keys(self, slot: int, to: int, count: int = 1_000_000) -> None:
        source = self.clients[self.owner(slot)]
        # In two words: of the one command the client makes texts of the keys, which are bytes.
        for key in source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, count):
            source.migrate(LOOPBACK, self.nodes[to].port, key, 0, 5000)

    def end_move(self, slot: int, to: int) -> None:
        own = self.clients[to].cluster("MYID")
        source = self.owner(slot)
        for at in (to, source):
            self.clients[at].cluster("SETSLOT", slot, "NODE", own)
        wait_until(lambda: self.owner(slot) == to, what="the new owner of the slot")


@contextlib.contextmanager
def redis_cluster(
    program: str | None, masters: int = 3, spares: int = 0, *, replicated: bool = False, **options: str
) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        yield Cluster(stack, program, masters, spares, replicated=replicated, **options)


class SentinelServer(ManagedProcess):
    """A Sentinel that watches one master and decides by itself."""

    def __init__(self, program: str | None, master_port: int, *options: str) -> None:
        self._program = find_redis(program)
        super().__init__("sentinel")
        self.port = 0
        self._lines = [
            f"sentinel monitor {SERVICE} {LOOPBACK} {master_port} 1",
            f"sentinel down-after-milliseconds {SERVICE} {DEAD_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} {3 * DEAD_AFTER_MS}",
            *options,
        ]

    def choose_ports(self) -> None:
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        # A Sentinel writes what it has learnt into this file.
        file = self.directory / "sentinel.conf"
        head = [f"port {self.port}", f"bind {LOOPBACK}", f"dir {self.directory}"]
        file.write_text("\n".join([*head, *self._lines]) + "\n", encoding="utf-8")
        return [self._program, str(file), "--sentinel"]

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


class SentinelSet:
    """A master, its replica and a Sentinel, which takes no server for dead before ``be_quick``."""

    def __init__(self, stack: contextlib.ExitStack, program: str | None, **directives: str):
        # A second of waiting for further replicas before the first copy is sent would be waited for in vain.
        options = {"repl-diskless-sync-delay": "0", **directives}
        self.master: RedisServer = stack.enter_context(make_redis(program, options=options))
        copying = {**options, "replicaof": f"{LOOPBACK} {self.master.port}"}
        self.replica: RedisServer = stack.enter_context(make_redis(program, options=copying))
        self.sentinel = stack.enter_context(SentinelServer(program, self.master.port))
        with redis.Redis(port=self.sentinel.port) as client:
            wait_until(lambda: client.sentinel_master(SERVICE)["num-slaves"] == 1, what="the replica at the Sentinel")
        with redis.Redis(port=self.replica.port) as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", what="the first copy")
        self.be_patient()

    def be_patient(self) -> None:
        """Let the Sentinel take no server for dead because the machine is busy."""
        self._take_for_dead_after(PATIENT_MS)

    def be_quick(self) -> None:
        self._take_for_dead_after(DEAD_AFTER_MS)

    def _take_for_dead_after(self, silence_ms: int) -> None:
        with redis.Redis(port=self.sentinel.port) as client:
            client.sentinel_set(SERVICE, "down-after-milliseconds", silence_ms)

    def has_failed_over(self) -> bool:
        """Tell whether the Sentinel takes the replica for the master, and is done with it."""
        with redis.Redis(port=self.sentinel.port) as client:
            state = client.sentinel_master(SERVICE)
        return bool(state["port"] == self.replica.port and not state["is_odown"] and state["flags"] == "master")


@contextlib.contextmanager
def redis_sentinel(program: str | None, **directives: str) -> Iterator[SentinelSet]:
    """Start a master, a replica and a Sentinel, and stop them at the end; directives are for both servers."""
    with contextlib.ExitStack() as stack:
        yield SentinelSet(stack, program, **directives)


class TlsServer(RedisServer):
    """A server that speaks nothing but TLS, also at an address that its certificate does not carry."""

    def __init__(self, **options: str) -> None:
        files = {"tls-cert-file": "certificate.pem", "tls-key-file": "plain.key", "tls-ca-cert-file": "certificate.pem"}
        paths = {name: str(TLS / file) for name, file in files.items()}
        # The wheel's server speaks no TLS.
        super().__init__("redis-server", options={**paths, "bind": f"{LOOPBACK} {OTHER_LOOPBACK}", **options})

    def command(self) -> list[str]:
        return [*super().command(), "--port", "0", "--tls-port", str(self.port)]

    def is_ready(self) -> bool:
        return accepts_connections(self.port)


def let_in(client: redis.Redis, user: str, *rules: str) -> None:
    """Make a user of a server anew with these rules, without what the server remembers of earlier users."""
    client.execute_command("ACL", "DELUSER", user)
    client.execute_command("ACL", "SETUSER", user, *rules)
    client.execute_command("ACL", "LOG", "RESET")
    # What a server has compiled for one user serves the next.
    client.script_flush()


def acl_line(name: str) -> list[str]:
    """Return the rules of a line of the page, as ``ACL SETUSER`` takes them; the password is "secret"."""
    (line,) = re.findall(
        rf"^```acl {name}\nACL SETUSER streamdedup(?:-\w+)? (.+)\n```$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return line.replace(">PASSWORD", ">secret").split()
