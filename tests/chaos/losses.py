"""Losses of the index while documents flow, and the rebuilds that they cause.

An older copy of the data is put back with a restart, as after a restored backup or a failover. The daemons' logs tell
which losses were filled as gaps and which indexes were rebuilt as a whole.
"""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.faults import Strike
from tests.chaos.world import World

#: Retention and slack in a run with losses, in seconds: a run lasts for several lifetimes. The slack is longer than the
#: daemons lag behind on a busy machine.
RETENTION_S, SLACK_S = 40, 160
#: Settings of the daemons.
SETTINGS = {
    "service.on_index_lost": "rebuild",
    "profiles.articles.retention": f"{RETENTION_S}s",
    "profiles.articles.retention_slack": f"{SLACK_S}s",
}
#: Records a second: daemons that lose their index again and again have less time.
PER_SECOND = 6.0
#: Number of copies of the data from which an older one is chosen, and the share that is kept of copies made during a
#: rebuild: with such a copy the daemons wait until the lease on it ends, for a minute at most.
COPIES, STAGING_SHARE = 8, 0.1
#: Number of records committed between two losses, and the lag in seconds below which the next loss occurs.
BETWEEN, CAUGHT_UP_S = 120, 20.0
#: Longest waits for a loss to be noticed, and for the end of a rebuild, in seconds.
NOTICE_S, REBUILD_S = 90.0, 120.0
#: Longest wait between two losses, in seconds.
WORK_S = 600.0


class Copies:
    """Copies of Redis' data."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._folder = world.folder / "copies"
        self._folder.mkdir(exist_ok=True)
        self._count = 0
        self.paths: list[Path] = []

    def take(self) -> Path:
        """Copy the data; the oldest copies are deleted."""
        with self._world.redis_client() as client:
            client.save()
            is_staging = any(client.scan_iter("*staging", count=10_000))
        self._count += 1
        path = self._folder / f"{self._count}.rdb"
        shutil.copy(self._world.redis.directory / "dump.rdb", path)
        if not is_staging or self._rng.random() < STAGING_SHARE:
            self.paths.append(path)
        if len(self.paths) > COPIES:
            self.paths.pop(0).unlink()
        return path

    def put_back(self, path: Path) -> None:
        redis = self._world.redis
        redis.kill()
        # A snapshot may be the base of the append-only file.
        folder = redis.directory / "appendonlydir"
        shutil.rmtree(folder)
        folder.mkdir()
        shutil.copy(path, folder / "appendonly.aof.1.base.rdb")
        (folder / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
        redis.start()


def flushed(strike: Strike, _copies: Copies) -> None:
    """Delete all data; connections stay."""
    with strike.world.redis_client() as client:
        client.flushall()
    strike.victim.release()


def put_back(strike: Strike, copies: Copies) -> None:
    path = strike.rng.choice(copies.paths or [copies.take()])
    if strike.rng.random() < 0.5:
        strike.victim.release()
    copies.put_back(path)
    strike.victim.release()


def writes_lost(strike: Strike, copies: Copies) -> None:
    """Restart Redis without its last writes, as a failover to a replica that lags behind does."""
    path = copies.take()
    strike.victim.release()
    strike.pause(0.1, 3.0)
    copies.put_back(path)


#: Every kind of loss, by name.
LOSSES: dict[str, Callable[[Strike, Copies], None]] = {
    "index-flushed": flushed,
    "index-put-back": put_back,
    "index-writes-lost": writes_lost,
}


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A rebuild that a daemon has begun, of the whole index or of a gap.

    ``place``: log, and number of the rebuild in it. ``records``: replayed ones; None if it was not completed.
    """

    place: tuple[str, int]
    is_gap: bool
    records: int | None


def rebuilds(folder: Path) -> list[Rebuild]:
    found: list[Rebuild] = []
    for log in sorted(folder.glob("*.log")):
        begun: list[Rebuild] = []
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            if '"index_rebuil' not in line or not line.endswith("\n"):
                continue
            event = json.loads(line)
            if event["event"] == "index_rebuild_begun":
                begun.append(Rebuild((log.name, len(begun)), event["gap"], None))
            elif event["event"] == "index_rebuilt":
                begun[-1] = replace(begun[-1], records=event["records"])
        found += begun
    return found


def rebuild_lines(found: list[Rebuild]) -> list[str]:
    lines = []
    for is_gap, name in ((True, "gaps filled"), (False, "whole rebuilds")):
        begun = [rebuild for rebuild in found if rebuild.is_gap is is_gap]
        records = [rebuild.records for rebuild in begun if rebuild.records is not None]
        lines.append(f"{name}: {len(records)}, {sum(records)} records; interrupted: {len(begun) - len(records)}")
    return lines
