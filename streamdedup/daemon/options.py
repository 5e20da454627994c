"""The options of the loop that do not depend on a profile.

``cli.assembly.loop_options`` makes them from the settings, for ``loop`` and ``publisher``; ``recovery`` has the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streamdedup.wire import Alert, alert_json
from streamdedup.wire.dead_letters import DaemonInfo

#: Reaction to a lost index: end the daemon, go on without the lost documents, or rebuild the index.
Policy = Literal["fail", "continue", "rebuild"]


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Options of loop and publisher; ``daemon`` is for dead letters.

    Attributes:
        dead_letter_limit: Most dead letters among the last records of a topic (``breaker``); None for no limit.
        copy_headers: Names of headers to copy to alerts; a dead letter that is too large drops the other headers first.
    """

    duplicates_topic: str
    dead_letter_topic: str
    max_message_bytes: int
    daemon: DaemonInfo
    on_index_lost: Policy
    dead_letter_limit: int | None = 500
    batch_records: int = 2_000
    copy_headers: tuple[str, ...] = ()
    encode_alert: Callable[[Alert], bytes] = alert_json
