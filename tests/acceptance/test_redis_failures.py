"""Redis as it is run, failing while documents flow: the topics tell that no pair was lost and none doubled."""

import contextlib
import threading

import pytest
import redis

from streamdedup.embedded.process import LOOPBACK
from streamdedup.index.redis.keys import Keys
from tests import redis_sets, servers
from tests.daemons import produce_keyed, values_of
from tests.made_corpus import a_corpus, the_expected

#: Documents of a run, and how many are sent at once; a chunk follows as soon as the one before is half done.
DOCUMENTS, CHUNK = 900, 30
#: Documents of a part, which a test lets go: each fault has documents that come after it, however fast the others were.
PART = 150
#: Partitions of the input topic, and daemons that share them.
PARTITIONS, DAEMONS = 4, "ab"
ASSIGNED = "streamdedup_partitions_assigned"
#: So that a server that is away is noticed soon.
IMPATIENT = {"redis.timeout": "500ms"}


class Load:
    """Documents that flow part by part, within a ``with`` block, at the pace at which they are committed."""

    def __init__(self, installation, corpus):
        self._installation, self._corpus = installation, corpus
        self._thread = threading.Thread(target=self._send)
        self._stopped = threading.Event()
        self._parts = threading.Semaphore(0)
        self._released_count = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._stopped.set()
        self._parts.release()
        self._thread.join()

    def _send(self):
        for start in range(0, len(self._corpus), CHUNK):
            if start % PART == 0:
                self._parts.acquire()
                if self._stopped.is_set():
                    return
            chunk = self._corpus[start : start + CHUNK]
            produce_keyed(self._installation.kafka, self._installation.topic, values_of(chunk))
            while self._installation.committed_count() < start + CHUNK // 2:
                if self._stopped.wait(0.01):
                    return

    def go_on(self):
        """Let the next part flow."""
        assert self._released_count < len(self._corpus), "no documents are left"
        self._released_count += PART
        self._parts.release()

    def wait_flowing(self):
        """Wait until half of the part that was let go last is committed."""
        self._installation.wait_committed(self._released_count - PART // 2)

    def finish(self):
        """Let all parts flow, and wait until all documents are committed."""
        while self._released_count < len(self._corpus):
            self.go_on()
        self._installation.wait_committed(len(self._corpus))


@contextlib.contextmanager
def running(installation):
    """Run the daemons; at the end all documents must be committed, and the pairs be those of the reference."""
    corpus = a_corpus(DOCUMENTS, DOCUMENTS)
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(installation.daemon(name, **IMPATIENT)) for name in DAEMONS]
        for daemon in daemons:
            daemon.wait_ready()
        load = stack.enter_context(Load(installation, corpus))
        load.go_on()
        load.wait_flowing()
        yield daemons, load
        load.finish()
        assert [daemon.stop() for daemon in daemons] == [0] * len(daemons)
    expected = the_expected(corpus)
    assert len(expected) > 200
    assert installation.pairs() == expected


def on(installation, *lines):
    """Let the settings file of an installation name another store."""
    text = installation.config.read_text(encoding="utf-8")
    url = next(line for line in text.splitlines() if line.startswith("url ="))
    installation.config.write_text(text.replace(url, "\n".join(lines)), encoding="utf-8")
    return installation


def at_work(daemons):
    """Wait until every daemon is at work; return how often each has noticed before that the store was away."""
    servers.wait_until(
        lambda: all(daemon.metric("streamdedup_ready") and daemon.metric(ASSIGNED) for daemon in daemons),
        what="every daemon at work",
    )
    return failures(daemons)


def failures(daemons):
    """Return how often each daemon has noticed that the store was away: at work, or in marking what is committed."""
    return [daemon.metric("streamdedup_store_errors_total") + len(daemon.events("mark_missed")) for daemon in daemons]


def wait_noticed(daemons, before):
    """Wait until a daemon has noticed more often than before that the store was away.

    Another may have needed nothing of the lost server before its replica took over.
    """

    def noticed():
        return any(now > then for now, then in zip(failures(daemons), before, strict=True))

    servers.wait_until(noticed, what="a daemon that waits for the store")


def copied(master, replica):
    """Let the master write nothing further, and wait until the replica has all that it has acknowledged.

    What a master has acknowledged and takes with it is an index that has gone back in time, and another test.
    """
    master.client_pause(600_000, all=False)  # for longer than the copy and the end of the master take
    end = master.info("replication")["master_repl_offset"]
    servers.wait_until(lambda: replica.info("replication")["slave_repl_offset"] >= end, what="the copy of all")


@pytest.mark.long
def test_sentinel_fails_over_while_documents_flow(install, redis_program):
    # As docs/redis.md advises: a master that has no replica takes no writes.
    careful = {"min-replicas-to-write": "1", "min-replicas-max-lag": "2"}
    with redis_sets.redis_sentinel(redis_program, **careful) as watched:
        nodes = f'nodes = ["{LOOPBACK}:{watched.sentinel.port}"]'
        installation = on(
            install(PARTITIONS, batch_records=15), 'mode = "sentinel"', nodes, 'sentinel_service = "index"'
        )
        with running(installation) as (daemons, load), redis.Redis(port=watched.replica.port) as replica:
            before = at_work(daemons)
            with redis.Redis(port=watched.master.port) as master:
                copied(master, replica)
            watched.master.kill()
            load.go_on()
            wait_noticed(daemons, before)
            watched.be_quick()
            servers.wait_until(lambda: replica.info("replication")["role"] == "master", what="the failover")
            # Back before the Sentinel is done, and empty, the old master would be taken for the master again.
            servers.wait_until(watched.has_failed_over, what="the end of the failover")
            # Alone the new master takes no writes; the old one comes back as its replica.
            watched.master.start()
            load.wait_flowing()


@pytest.mark.long
def test_a_cluster_moves_slots_and_fails_over_while_documents_flow(install, redis_program):
    with redis_sets.redis_cluster(redis_program, replicated=True) as cluster:
        cluster.be_patient()
        nodes = ", ".join(f'"{host}:{port}"' for host, port in cluster.addresses[:2])
        installation = on(install(PARTITIONS, batch_records=15), 'mode = "cluster"', f"nodes = [{nodes}]")
        with running(installation) as (daemons, load):
            keys = Keys(f"{installation.group}:articles", 9)
            slots = [cluster.slot(keys.buckets_prefix(band)) for band in (0, 1)]
            for slot in slots:
                move(cluster, slot, daemons, load)
                load.wait_flowing()
            victim = cluster.owner(slots[0])
            before = at_work(daemons)
            cluster.nodes[victim].kill()
            load.go_on()
            wait_noticed(daemons, before)
            cluster.be_quick()
            other = cluster.clients[(victim + 1) % 3]
            servers.wait_until(lambda: has_replaced(other, cluster.nodes[victim]), what="the failover")
            cluster.be_patient()
            load.wait_flowing()


def has_replaced(client, victim):
    """Whether the node of a client takes the victim for dead and knows three masters without it."""
    flags = {address: node["flags"].split(",") for address, node in client.cluster("NODES").items()}
    masters = [one for one in flags.values() if "master" in one and "fail" not in one]
    return "fail" in flags[f"{LOOPBACK}:{victim.port}"] and len(masters) == 3


def move(cluster, slot, daemons, load):
    """Move a slot key by key to the next master, as a resharding does, and make sure that it is missed meanwhile."""
    target = (cluster.owner(slot) + 1) % 3
    waited = sum(len(daemon.events("waiting")) for daemon in daemons)
    cluster.begin_move(slot, target)
    load.go_on()
    servers.wait_until(
        lambda: sum(len(daemon.events("waiting")) for daemon in daemons) > waited, what="a daemon that waits"
    )
    cluster.move_keys(slot, target)
    cluster.end_move(slot, target)
