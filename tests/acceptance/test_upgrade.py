"""A rolling upgrade: daemons of two versions side by side in one group, and each pair once.

The later version is this one with another number and a field more in its alerts, as an addition of a minor version.
"""

import contextlib
import json
import sys

from tests.daemons import Daemon
from tests.made_corpus import a_corpus, the_expected

LATER = """
import sys
import msgspec
import streamdedup
streamdedup.__version__ = "0.2.0"
from streamdedup.daemon import publisher

def encode_alert(*arguments, earlier=publisher.encode_alert, **named):
    return [
        msgspec.json.encode(msgspec.json.decode(value) | {"added_later": True})
        for value in earlier(*arguments, **named)
    ]

publisher.encode_alert = encode_alert
from streamdedup.__main__ import main
sys.exit(main())
"""


class LaterDaemon(Daemon):
    """The daemon of the later version."""

    def program(self) -> list[str]:
        return [sys.executable, "-c", LATER]


def test_daemons_of_two_versions_work_side_by_side_and_every_pair_is_published_once(install):
    installation = install(4, batch_records=20)
    corpus = a_corpus(3, 400)
    parts = [corpus[first : first + 100] for first in range(0, 400, 100)]
    names = ("a", "b")
    with contextlib.ExitStack() as stack:
        earlier = [stack.enter_context(installation.daemon(name)) for name in names]
        for daemon in earlier:
            daemon.wait_ready()
        installation.send(parts[0])
        installation.wait_committed(20)
        for number, name in enumerate(names):
            assert earlier[number].stop() == 0
            installation.send(parts[number + 1])
            later = stack.enter_context(LaterDaemon(installation, name, {}))
            later.wait_ready()
            assert later.wait_event("started")["version"] == "0.2.0"
        installation.send(parts[3])
        installation.wait_committed(len(corpus))
    assert installation.pairs() == the_expected(corpus)
    alerts = [json.loads(record.value) for record in installation.published(installation.duplicates)]
    assert {"added_later" in alert for alert in alerts} == {True, False}
