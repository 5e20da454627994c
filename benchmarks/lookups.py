"""Whether a look-up before sending finds the matches of the alert: over HTTP, Kafka and Redis, on open sets.

    python -m benchmarks.lookups [--quick] [--data FOLDER] [--documents 3000] [NAME ...]

Each document of a set is looked up at `streamdedup serve`, then sent to the daemon's topic, and the next one follows
when the daemon has committed it. At the end the matches of each alert are compared with those of the look-up, with all
their fields and in their order. Documents have ids of their own and are sent once, so no pair was claimed before.
`--quick` takes the first documents of the project's sample.
"""

import argparse
import http.client
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from kafka import KafkaProducer

from benchmarks import load, open_sets, report
from benchmarks.open_sets import Set
from benchmarks.quality import KEYS
from benchmarks.services import Service, serve_command
from benchmarks.world import Job, World
from tests.servers import read_topic

#: Sets that are compared unless others are named: licences, versions of web pages, short messages, Chinese reviews.
NAMES = ("spdx_licenses", "ota_pga", "sms_spam", "zh_shopping_reviews")
#: Most documents of a set.
DOCUMENTS, QUICK_DOCUMENTS = 3_000, 60
#: Threshold of the profiles.
THRESHOLD = 0.5
#: Most matches of one answer: the most that the service gives.
MAX_MATCHES = 1_000

#: Matches of a document, as JSON values.
Matches = list[dict[str, Any]]


@dataclass(frozen=True)
class Compared:
    """Look-ups and alerts of one set.

    Attributes:
        name: Name of the set.
        profile: Name of the profile whose shingles were compared.
        documents: Documents that were looked up and sent.
        alerts: Documents with an alert.
        matches: Matches of the alerts.
        looked_up: Matches of the look-ups.
        differing: Documents whose look-up and alert differ.
        incomplete: Look-ups that did not compare all candidates.
    """

    name: str
    profile: str
    documents: int
    alerts: int
    matches: int
    looked_up: int
    differing: int
    incomplete: int


def main() -> None:
    """Compare, print, write."""
    arguments = _arguments()
    if arguments.quick:
        files = [file for file in open_sets.sample_files() if file.stem == "articles"]
    else:
        files = [file for file in open_sets.files(arguments.data) if file.name.partition(".")[0] in arguments.names]
    if not files:
        sys.exit(
            f"none of the sets {', '.join(arguments.names)} in {arguments.data}; name a folder: QUALITY_DATA=FOLDER"
        )
    compared = []
    with ExitStack() as stack:
        world = World(stack, arguments.redis)
        for file in files:
            compared.append(compare(world, open_sets.read(file), arguments.documents))
            print(compared[-1], file=sys.stderr, flush=True)
        setting = {
            "sets": ", ".join(one.name for one in compared),
            "documents": f"the first {arguments.documents:,} of each set at most",
            "threshold": THRESHOLD,
            "servers": world.servers(),
        }
    results = [asdict(one) for one in compared]
    report.Report("lookups", arguments.quick, setting, results, {"sets": table(compared)}).show(arguments.output)
    if any(one.differing for one in compared):
        sys.exit("look-ups differ from alerts")


def _arguments() -> argparse.Namespace:
    parser = report.parser(__doc__ or "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"sets; default: {', '.join(NAMES)}")
    parser.add_argument("--data", type=Path, default=open_sets.DATA, metavar="FOLDER", help="where the sets are")
    parser.add_argument("--documents", type=int, help=f"most documents of a set; default: {DOCUMENTS:,}")
    parser.add_argument("--redis", metavar="PROGRAM", help="Redis server program")
    arguments = parser.parse_args()
    arguments.names = arguments.names or [*NAMES]
    arguments.documents = arguments.documents or (QUICK_DOCUMENTS if arguments.quick else DOCUMENTS)
    return arguments


def compare(world: World, one: Set, count: int) -> Compared:
    """Look up and send the documents of a set, and compare the answers with the alerts."""
    job, profile = world.empty_job(), one.profiles[0]
    documents = one.documents[:count]
    keys = KEYS[profile] | {"threshold": THRESHOLD}
    with ExitStack() as stack:
        daemon = world.daemon(job, profile=keys)
        service = Service("serve", lambda port: serve_command(world.redis.url, port, keys), "/readyz")
        for process in (daemon, service):
            stack.enter_context(closing(process))
            process.start()
        answers = _look_up_and_send(world, job, service, documents)
    alerts = alerted(record.value for record in read_topic(world.address, job.output))
    looked_up = {each: answer["matches"] for each, answer in answers.items() if answer["matches"]}
    return Compared(
        one.name,
        profile,
        len(documents),
        len(alerts),
        sum(map(len, alerts.values())),
        sum(answer["matches_count"] for answer in answers.values()),
        sum(alerts.get(each) != looked_up.get(each) for each in answers),
        sum(not answer["complete"] for answer in answers.values()),
    )


def _look_up_and_send(world: World, job: Job, service: Service, documents: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Look up each document, send it, and wait until the daemon has committed it; return the answers by id."""
    answers = {}
    address = urlsplit(service.url("/v1/profiles/articles/lookup"))
    with ExitStack() as stack:
        producer = stack.enter_context(closing(KafkaProducer(bootstrap_servers=world.address, linger_ms=0)))
        client = stack.enter_context(closing(http.client.HTTPConnection(address.netloc, timeout=load.PATIENCE_S)))
        for sent, document in enumerate(documents, start=1):
            body = msgspec.json.encode({"text": document.text, "id": document.id, "limit": MAX_MATCHES})
            client.request("POST", address.path, body, {"content-type": "application/json"})
            response = client.getresponse()
            content = response.read()
            if response.status != http.HTTPStatus.OK:
                sys.exit(f"{document.id} cannot be looked up: {content.decode()}")
            answers[document.id] = json.loads(content)
            value = msgspec.json.encode({"id": document.id, "text": document.text})
            producer.send(job.topic, key=document.id.encode(), value=value)
            producer.flush()
            service.wait_until(lambda sent=sent: world.committed_count(job) >= sent, load.PATIENCE_S)  # type: ignore[misc]
    return answers


def alerted(values: Any) -> dict[str, Matches]:
    """Return the matches of alerts by the id of the document; the parts of an alert are joined in their order."""
    parts: dict[str, list[tuple[int, Matches]]] = {}
    for value in values:
        alert = json.loads(value)
        parts.setdefault(alert["document"]["id"], []).append((alert["part"], alert["matches"]))
    return {
        each: [match for _, matches in sorted(of_document, key=lambda part: part[0]) for match in matches]
        for each, of_document in parts.items()
    }


def table(compared: Sequence[Compared]) -> report.Table:
    """Return the counts of all sets."""
    rows = [
        [
            one.name,
            one.profile,
            f"{one.documents:,}",
            f"{one.alerts:,}",
            f"{one.matches:,}",
            f"{one.looked_up:,}",
            "equal" if not one.differing else f"{one.differing:,} differ",
        ]
        for one in compared
    ]
    head = ["set", "profile", "documents", "alerts", "matches alerted", "matches looked up", ""]
    return report.Table(head, rows)


if __name__ == "__main__":
    main()
