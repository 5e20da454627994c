"""What remains of a bad run: its topics as lines of JSON, and the logs and traces of the daemons."""

import json
import shutil
from pathlib import Path

from tests.daemons import Installation
from tests.servers import read_topic


def keep_evidence(installation: Installation, folder: Path) -> None:
    """Copy logs and topics into a new folder within ``folder``."""
    place = folder / installation.group
    shutil.copytree(installation.folder, place)
    for topic in (installation.topic, installation.duplicates, f"{installation.duplicates}.dlq"):
        with (place / f"{topic}.jsonl").open("w", encoding="utf-8") as file:
            for record in read_topic(installation.kafka, topic):
                key, value = (part and part.decode(errors="replace") for part in (record.key, record.value))
                line = {"partition": record.partition, "offset": record.offset, "time": record.timestamp}
                file.write(json.dumps({**line, "key": key, "value": value}, ensure_ascii=False) + "\n")
