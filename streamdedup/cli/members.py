"""Members of the consumer group before a command that needs the group to be empty: named, refused or waited for."""

import time
from collections.abc import Callable

import typer

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.progress import measuring
from streamdedup.errors import BrokerUnavailable, StreamdedupError
from streamdedup.kafka import describe_group
from streamdedup.settings import Settings

#: What to do about daemons that run.
_STOP_ADVICE = "stop them first; one that ended without leaving the group stays a member for kafka.session_timeout"
#: Time beyond the session in which Kafka removes a member, in seconds.
_REMOVAL_S = 15.0
#: Pause between two looks at the group, in seconds.
_LOOK_EVERY_S = 1.0


def refuse_while_daemons_run(settings: Settings, force: str = "", *, wait: bool = False) -> None:
    """Raise unless Kafka says that the group has no members.

    Args:
        settings: The settings.
        force: What else can be done.
        wait: Wait for the sessions of members to end first, see ``await_no_members``.

    Raises:
        StreamdedupError: The group has members, or Kafka does not say.
    """
    try:
        if wait:
            await_no_members(settings)
        else:
            refuse_members(settings, force)
    except BrokerUnavailable as error:
        unknown = "; if none does, add --force" if force else ""
        raise BrokerUnavailable(
            f"{error}\nwithout Kafka nobody knows whether daemons of the group {settings.kafka.group_id} run{unknown}"
        ) from error


def refuse_members(settings: Settings, otherwise: str) -> None:
    """Raise when the group has members.

    Args:
        settings: The settings.
        otherwise: What else can be done, at the end of the text.

    Raises:
        StreamdedupError: The group has members; the text names them.
        BrokerUnavailable: Kafka does not say.
    """
    members = describe_group(kafka_options(settings)).members
    if members:
        raise _refusal(settings, members, otherwise)


def await_no_members(
    settings: Settings, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until the group has no members, at most ``kafka.session_timeout`` and 15 seconds.

    A daemon with ``kafka.group_instance_id``, or one that was killed, stays a member until its session has ended. From
    a daemon that runs it cannot be told until then.

    Args:
        settings: The settings.
        clock: Seconds that only grow.
        sleep: Waits for so many seconds.

    Raises:
        StreamdedupError: Members are left; the text names them.
        BrokerUnavailable: Kafka does not say.
    """
    options = kafka_options(settings)
    members = describe_group(options).members
    if not members:
        return
    bound_s, started = settings.kafka.session_timeout_s + _REMOVAL_S, clock()
    typer.echo(
        f"streamdedup: the group {settings.kafka.group_id} has members: {', '.join(members)}; waiting at most "
        f"{bound_s:g} s for their sessions to end",
        err=True,
    )
    with measuring("seconds") as show:
        while members:
            waited_s = clock() - started
            if waited_s >= bound_s:
                raise _refusal(settings, members, f"Waited {bound_s:g} s for them")
            show(f"waiting for {', '.join(members)}", round(waited_s), round(bound_s))
            sleep(_LOOK_EVERY_S)
            members = describe_group(options).members


def _refusal(settings: Settings, members: tuple[str, ...], otherwise: str) -> StreamdedupError:
    return StreamdedupError(
        f"daemons of the group {settings.kafka.group_id} are running: {', '.join(members)}\n"
        f"{'. '.join(filter(None, (_STOP_ADVICE, otherwise)))}"
    )
