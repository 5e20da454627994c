"""``streamdedup demo``: the whole path on one machine, with servers of its own, ended with the command."""

import contextlib
import csv
import select
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from streamdedup.cli.demo_run import Demo, Show, print_rows
from streamdedup.cli.demo_servers import PROFILES, Servers
from streamdedup.cli.demo_signals import EndingSignals
from streamdedup.cli.differences import GAP
from streamdedup.cli.output import output_to
from streamdedup.cli.produce import FormatOption, IdColumnOption, TextColumnOption
from streamdedup.cli.show import make_console
from streamdedup.corpora import Columns, CorpusReader
from streamdedup.errors import SettingsError

#: Documents a second of the sample, unless the user says otherwise: it takes half a minute then.
SAMPLE_PACE = 10.0
#: Between two looks at whether all still runs, while the user is waited for, in seconds.
_LOOK_S = 0.5


def _introduce(show: Show, console: Console, servers: Servers) -> None:
    daemon = servers.daemon
    rows = {
        "redis": servers.redis.url,
        "kafka": f"{servers.broker.bootstrap_servers}  (in memory, for this demo only)",
        "daemon": f"streamdedup run --config {daemon.config_path}",
        "log": str(daemon.log_path),
        "metrics": f"{daemon.metrics_url}  (while this runs)",
    }
    print_rows(console, rows)
    console.print()
    if show.diff:
        left, right = ("green", "red") if console.color_system else ("{+so+}", "[-so-]")
        console.print(
            Text(
                "Left the new document, right an earlier one that it resembles. What only the left one has is marked "
                f"{left}, what only the right one has {right}; {GAP} stands for what both have."
            ),
            soft_wrap=True,
        )
    console.print(Text("time      profile   new ~ earlier  similarity", "dim"), soft_wrap=True)


def _progress_bar(console: Console) -> Progress:
    columns = (BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _wait_for_user(console: Console, servers: Servers) -> None:
    """Leave everything running until Enter or Ctrl-C; without anybody to press Enter, until Ctrl-C.

    Raises:
        ServerError: A server has ended.
    """
    config = servers.daemon.config_path
    console.print(
        Text(
            f"\nStill running. Look at {servers.daemon.metrics_url} or, from elsewhere,\n"
            f"  streamdedup tail --config {config} --from-beginning --diff\nEnter or Ctrl-C ends."
        ),
        soft_wrap=True,
    )
    listening = [sys.stdin]
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            servers.check()
            if not listening:
                time.sleep(_LOOK_S)
            elif select.select(listening, [], [], _LOOK_S)[0]:
                if sys.stdin.readline():
                    return
                listening = []


def play(show: Show, pairs: str | None, console: Console) -> None:
    """Run the demo from the start of its servers to their end.

    Args:
        show: What to show.
        pairs: File for the pairs that come out.
        console: Where to.

    Raises:
        StreamdedupError: Something could not be started, has ended, or does not add up.
    """
    with EndingSignals() as signals, ExitStack() as stack:
        try:
            # Opened before anything else: a file that cannot be written is said at once.
            output = None if pairs is None else stack.enter_context(output_to(pairs))
            console.print(
                Text("Starting a private Redis, a Kafka broker and the daemon; Ctrl-C ends all of them.", "bold")
            )
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="streamdedup-demo-"))
            servers = stack.enter_context(Servers(Path(directory), show.profiles, signals.held))
            demo = Demo(show, console, servers, stack)
            _introduce(show, console, servers)
            with _progress_bar(console) as progress:
                duration_s = demo.run(progress, progress.add_task("", total=1.0, figures=""))
            if output is not None:
                demo.write_pairs(output)
            demo.summarise(duration_s)
            if show.keep:
                _wait_for_user(console, servers)
        finally:
            signals.ignore()


def _sample(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return readers, profiles and expected pairs of the project's own sample."""
    folder = Path(str(resources.files("streamdedup") / "sample"))
    with (folder / "expected_pairs.tsv").open(encoding="utf-8", newline="") as lines:
        expected = frozenset(tuple(sorted((row["id1"], row["id2"]))) for row in csv.DictReader(lines, delimiter="\t"))
    readers = {name: CorpusReader(folder / f"{name}.jsonl", on_bad="pass") for name in PROFILES}
    return {
        "readers": readers,
        "total_count": sum(1 for reader in readers.values() for _ in reader),
        "profiles": {name: {**PROFILES[name], **changes} for name in PROFILES},
        "expected": None if changes else expected,
    }


def _file(reader: CorpusReader, profile: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return reader and profile for a corpus of the user's."""
    return {
        "readers": {profile: reader},
        "total_count": None,
        "profiles": {profile: {**PROFILES[profile], **changes}},
        "expected": None,
    }


def demo(  # noqa: PLR0913  a command line has as many options as it has
    file: Annotated[
        str | None, typer.Argument(help="A corpus: JSON lines, CSV, TSV, text, Reuters-21578; default: the sample.")
    ] = None,
    profile: Annotated[
        Literal["articles", "reviews"], typer.Option("--profile", "-p", help="How to compare the texts of FILE.")
    ] = "articles",
    threshold: Annotated[float | None, typer.Option("--threshold", "-t", help="Least similarity; default 0.8.")] = None,
    min_words: Annotated[int | None, typer.Option(min=0, help="Skip texts with fewer words.")] = None,
    pace: Annotated[
        float | None, typer.Option(min=0, help="Documents a second, 0 for no limit; default: 10 for the sample.")
    ] = None,
    diff: Annotated[
        bool | None, typer.Option("--diff/--no-diff", help="Show texts side by side; default: for the sample.")
    ] = None,
    pairs: Annotated[str | None, typer.Option(metavar="PAIRS", help="Write the pairs here, as scan does.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave all running at the end, until Enter or Ctrl-C.")] = False,
    corpus_format: FormatOption = "auto",
    id_column: IdColumnOption = None,
    text_column: TextColumnOption = None,
) -> None:
    """Watch documents become alerts, on private servers; nothing to set up.

    Starts private servers, sends the sample (or FILE), shows alerts and dead letters live, checks that every record is
    accounted for, and ends everything that it started.

    Example:  streamdedup demo

    Example:  streamdedup demo reuters21578.tar.gz --pairs pairs.tsv
    """
    if threshold is not None and not 0 < threshold <= 1:
        raise SettingsError(f"--threshold {threshold}: must be above 0 and at most 1")
    given = {"threshold": threshold, "min_words": min_words}
    changes = {name: value for name, value in given.items() if value is not None}
    columns = Columns(id_column, tuple(text_column or ()))
    if file is None:
        if columns or corpus_format != "auto":
            raise SettingsError("--format, --id-column and --text-column are for a FILE; the sample needs none")
        chosen = _sample(changes)
    else:
        chosen = _file(CorpusReader(file, format=corpus_format, on_bad="pass", columns=columns), profile, changes)
    show = Show(
        **chosen,
        pace=pace if pace is not None else SAMPLE_PACE if file is None else 0.0,
        diff=diff if diff is not None else file is None,
        keep=keep,
    )
    play(show, pairs, make_console())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)
