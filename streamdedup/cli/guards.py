"""Guards of commands that change data: the user confirms (``index``, ``dlq replay``); no daemon runs (``index``)."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.output import showing_parts, tell_prefixed
from streamdedup.errors import BrokerUnavailable, SettingsError, StreamdedupError
from streamdedup.kafka.group_admin import describe_group, members_of_index
from streamdedup.settings import Settings

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

_STOP_ADVICE = "stop them first; one that ended without leaving the group stays a member for kafka.session_timeout"
_REMOVAL_S = 15.0  # longest time after the end of a session until Kafka removes the member, in seconds
_POLL_INTERVAL_S = 1.0


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()  # None in a process with a closed standard input


def require_confirmable(effect: str, *, yes: bool) -> None:
    """Raise ``SettingsError`` if ``confirm`` could not ask; ``effect`` says what the command does: "deletes"."""
    if not yes and not is_interactive():
        raise SettingsError(f"--yes: required without a terminal, because this {effect}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on standard error; any answer but yes ends the command with code 1."""
    if yes:
        return
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort as error:
        # typer reports Ctrl-C, the end of the input and "no" by the same error.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


@contextmanager
def explaining_absent_kafka(settings: Settings, advice: str = "") -> Iterator[None]:
    """Add to ``BrokerUnavailable`` that daemons may run, and the ``advice`` of the command."""
    try:
        yield
    except BrokerUnavailable as error:
        text = f"without Kafka it is unknown whether daemons of the group {settings.kafka.group_id} run"
        raise BrokerUnavailable(f"{error}\n{'; '.join(filter(None, (text, advice)))}") from error


def refuse_members(settings: Settings, advice: str = "", *, of_index: bool = False) -> None:
    """Raise ``StreamdedupError`` if the consumer group has members; the error names them and ends with ``advice``.

    With ``of_index``, a member that uses the indexes of another ``redis.key_prefix`` does not count.
    """
    options = kafka_options(settings)
    members = members_of_index(options, unnamed=True) if of_index else describe_group(options).members
    if members:
        raise _members_error(settings, members, advice)


def await_no_members(
    settings: Settings, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until the consumer group has no members, at most ``kafka.session_timeout`` plus ``_REMOVAL_S``."""
    options = kafka_options(settings)
    members = describe_group(options).members
    if not members:
        return
    # A killed daemon, or one with `kafka.group_instance_id`, stays a member until its session ends, and cannot be told
    # from a running one.
    limit_s, started = settings.kafka.session_timeout_s + _REMOVAL_S, clock()
    tell_prefixed(
        f"the group {settings.kafka.group_id} has members: {', '.join(members)}; waiting at most "
        f"{limit_s:g} s for their sessions to end"
    )
    with showing_parts("seconds") as show:
        while members:
            waited_s = clock() - started
            if waited_s >= limit_s:
                raise _members_error(settings, members, f"Waited {limit_s:g} s for them")
            show(f"waiting for {', '.join(members)}", round(waited_s), round(limit_s))
            sleep(_POLL_INTERVAL_S)
            members = describe_group(options).members


def _members_error(settings: Settings, members: tuple[str, ...], advice: str) -> StreamdedupError:
    return StreamdedupError(
        f"daemons of the group {settings.kafka.group_id} are running: {', '.join(members)}\n"
        f"{'. '.join(filter(None, (_STOP_ADVICE, advice)))}"
    )
