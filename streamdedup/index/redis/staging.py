"""An index in Redis while it is built anew: under its own keys, but without the fingerprint that others look for."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec

from streamdedup.errors import BatchRefused, StoreUnavailable, TransientError
from streamdedup.index.redis.admin import IndexUpkeep
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.runner import Call, ScriptRunner
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.position import Partition

#: How long a draft stands without a sign of whoever builds it.
LEASE_MS = 60_000

logger = logging.getLogger(__name__)


class RedisStagingIndex:
    """A ``StagingIndex`` in Redis.

    Args:
        servers: Where the index is.
        namespace: Prefix and profile, joined by a colon.
        store: The index, made with ``draft=True``.
        on_keys: Called with the number of keys deleted since the last call.
    """

    def __init__(
        self,
        servers: Servers,
        namespace: str,
        store: RedisIndex,
        on_keys: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self.store = store
        self._servers = servers
        self._namespace = namespace
        self._keys = Keys(namespace, 1)
        self._on_keys = on_keys
        self._name = secrets.token_hex(8).encode()
        # As of a generation that no group has: where the server has gone back and this is all that is announced, it
        # must not look as if what is committed had been.
        self._note = f"{0:010d}.{secrets.randbelow(10**17):017d}"
        self._runner = ScriptRunner(servers, self._keys.draft)

    def begin(self, is_lost: Callable[[], bool], tick: Callable[[], None] = lambda: None) -> bool:
        """See ``StagingIndex.begin``."""
        draft = self._keys.draft
        if not self._servers.ask(draft, "SET", draft, self._name, "NX", "PX", LEASE_MS):
            self._keep_if_ours(f"the index of {self._namespace} is being rebuilt by somebody else")

        def deleted(count: int) -> None:
            self.keep()
            self._on_keys(count)
            tick()

        try:
            needed = is_lost()
            if needed:
                IndexUpkeep(self._servers, self._namespace).drop(deleted, keep=draft)
        except BaseException:
            self.abandon()
            raise
        if not needed:
            self.abandon()
        return needed

    def _keep_if_ours(self, otherwise: str) -> None:
        if not self._hold(b""):
            raise StoreUnavailable(otherwise)

    def _hold(self, fingerprint: bytes) -> bool:
        """Prolong our hold, or end it by making the draft the index; return False when it is not ours."""
        keys = [self._keys.guard(0), self._keys.draft, self._keys.fingerprint]
        (held,) = self._runner.run([Call("hold_staging", keys, [self._name, LEASE_MS, fingerprint])])
        return bool(held)

    def take_over(self, partition: Partition, generation: int, committed: int) -> Fence:
        """See ``StagingIndex.take_over``."""
        fence = self.store.fence(partition, generation, committed)
        self.store.announce(self._note, [fence])
        return fence

    def settle(self, notes: Mapping[Partition, str], fences: Sequence[Fence]) -> None:
        """See ``StagingIndex.settle``."""
        self.store.settle(self._note, notes, fences)

    def keep(self) -> None:
        """See ``StagingIndex.keep``."""
        if not self._hold(b""):
            raise BatchRefused("the rebuilding of the index was taken over by somebody else")

    def complete(self, fingerprint: Fingerprint) -> None:
        """See ``StagingIndex.complete``."""
        # As RedisIndex.open writes it.
        if not self._hold(msgspec.json.encode(self.store.stored_fingerprint(fingerprint))):
            raise BatchRefused("the rebuilding of the index was taken over by somebody else")

    def abandon(self) -> None:
        """See ``StagingIndex.abandon``."""
        try:
            if self._hold(b""):
                self._servers.ask(self._keys.draft, "UNLINK", self._keys.draft)
        except TransientError as error:
            # It ends by itself after a minute.
            logger.info("A draft of an index was left", extra={"event": "draft_left", "error": repr(error)})
