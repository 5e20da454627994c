"""Tells whether another process has taken over our place in the group, under the same static member id.

The client learns of it by its next heartbeat, writes that to its log, and goes on polling as if nothing were: without
heartbeats, without records, and at full speed.
"""

from typing import Any

from kafka.errors import FencedInstanceIdError, RebalanceInProgressError

from streamdedup.kafka.errors import CLIENT_ERRORS, translated
from streamdedup.kafka.options import KafkaOptions


class FencingWatch:
    """Looked at after each poll.

    Args:
        consumer: The client's consumer; its coordinator is watched from now on.
        options: Its options.
    """

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._options = options
        self._error: FencedInstanceIdError | None = None
        self._coordinator = consumer._coordinator  # noqa: SLF001  no public method tells
        if options.group_instance_id is not None:
            self._watch_heartbeats()

    def _watch_heartbeats(self) -> None:
        handle = self._coordinator._handle_heartbeat_response  # noqa: SLF001  see above

        def handle_and_note(*answer: Any) -> Any:
            try:
                return handle(*answer)
            except FencedInstanceIdError as error:
                self._error = error
                raise

        self._coordinator._handle_heartbeat_response = handle_and_note  # noqa: SLF001  see above

    def look(self) -> None:
        """Raise when somebody else has our place.

        Raises:
            BrokerMisconfigured: He has, and it will not come back.
        """
        if self._error is not None:
            raise translated(self._error, "stay in the group", self._options.secrets())

    def confirm(self) -> None:
        """Ask the group by a heartbeat whether we have our place; a dynamic member has a generation of its own.

        Raises:
            BrokerUnavailable: We have not, or the group does not answer.
            BrokerMisconfigured: Somebody else has it.
        """
        if self._options.group_instance_id is None:
            return
        coordinator = self._coordinator
        try:
            coordinator._net.run(coordinator._send_heartbeat_request)  # noqa: SLF001  the client's own way to ask
        except RebalanceInProgressError:
            return  # so we are a member
        except CLIENT_ERRORS as error:
            raise translated(error, "stay in the group", self._options.secrets()) from error
