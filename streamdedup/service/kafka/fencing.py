"""Notices that another process has taken over our place in the group, under the same static member id.

The client learns of it by its next heartbeat, writes that to its log, and goes on polling as if nothing were: without
heartbeats, without records, and at full speed.
"""

from typing import Any

from kafka.errors import FencedInstanceIdError

from streamdedup.service.kafka.failures import translated
from streamdedup.service.kafka.options import KafkaOptions


class FencingWatch:
    """Looked at after each poll.

    Args:
        consumer: The client's consumer; its coordinator is watched from now on.
        options: Its options.
    """

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._options = options
        self._error: FencedInstanceIdError | None = None
        coordinator = consumer._coordinator  # noqa: SLF001  no public method tells
        handle = coordinator._handle_heartbeat_response  # noqa: SLF001  see above

        def handle_and_note(*answer: Any) -> Any:
            try:
                return handle(*answer)
            except FencedInstanceIdError as error:
                self._error = error
                raise

        coordinator._handle_heartbeat_response = handle_and_note  # noqa: SLF001  see above

    def look(self) -> None:
        """Raise when somebody else has our place.

        Raises:
            BrokerMisconfigured: He has, and it will not come back.
        """
        if self._error is not None:
            raise translated(self._error, "stay in the group", self._options.secrets())
