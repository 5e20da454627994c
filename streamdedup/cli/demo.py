"""``streamdedup demo``: documents become alerts on one machine, with private servers that end with the command."""

import contextlib
import csv
import select
import sys
import tempfile
import time
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from streamdedup.cli.demo_run import DemoOptions, DemoRun
from streamdedup.cli.demo_servers import PROFILES, DemoServers, ignore_signals, raise_on_signals, running_servers
from streamdedup.cli.options import FormatOption, IdColumnOption, TextColumnOption
from streamdedup.cli.output import output_to
from streamdedup.cli.rendering.differences import GAP
from streamdedup.cli.rendering.terminal import make_console, print_rows
from streamdedup.corpora import FORMAT_TITLES, Columns, CorpusReader
from streamdedup.errors import SettingsError

#: Default rate for the sample, in documents per second: the demo takes half a minute.
SAMPLE_PACE = 10.0
#: Text in place of the address of the page.
_MISSING_SERVICE = "pip install 'streamdedup[serve]' to have one"
#: Interval of checking the servers while they are kept, in seconds.
_CHECK_INTERVAL_S = 0.5


def demo(  # noqa: PLR0913  one argument per option
    file: Annotated[str | None, typer.Argument(help=f"Corpus: {FORMAT_TITLES}; default: the sample.")] = None,
    profile: Annotated[
        Literal["articles", "reviews"], typer.Option("--profile", "-p", help="Profile for FILE.")
    ] = "articles",
    threshold: Annotated[float | None, typer.Option("--threshold", "-t", help="Least similarity (0.8).")] = None,
    min_words: Annotated[int | None, typer.Option(min=0, help="Skip texts with fewer words.")] = None,
    pace: Annotated[
        float | None, typer.Option(min=0, help="Documents per second, 0 for no limit; default: 10 for the sample.")
    ] = None,
    diff: Annotated[
        bool | None, typer.Option("--diff/--no-diff", help="Show texts side by side; default: for the sample.")
    ] = None,
    pairs: Annotated[str | None, typer.Option(metavar="PAIRS", help="Write the pairs to this file, as scan.")] = None,
    keep: Annotated[
        bool | None,
        typer.Option("--keep/--no-keep", help="Leave all running until Enter; default: the sample in a terminal."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser; implies --keep.")] = False,
    corpus_format: FormatOption = "auto",
    id_column: IdColumnOption = None,
    text_column: TextColumnOption = None,
) -> None:
    """Watch documents become alerts, on private servers; nothing to set up.

    Starts private servers, sends the sample (or FILE), shows alerts and dead letters live, and checks that every record
    is accounted for. Paste a text into the page whose address it prints, and see the near-duplicates.

    Example:  streamdedup demo --open

    Example:  streamdedup demo reuters21578.tar.gz --pairs pairs.tsv
    """
    if threshold is not None and not 0 < threshold <= 1:
        raise SettingsError(f"--threshold {threshold}: must be above 0 and at most 1")
    changes = _given(threshold=threshold, min_words=min_words)
    columns = Columns(id_column, tuple(text_column or ()))
    if file is not None:
        reader = CorpusReader(file, format=corpus_format, on_bad="pass", columns=columns)
        options = DemoOptions(readers={profile: reader}, profiles={profile: PROFILES[profile] | changes})
    elif columns or corpus_format != "auto":
        raise SettingsError("--format, --id-column and --text-column are for a FILE; the sample needs none")
    else:
        options = _sample(changes)
    if keep is None:
        keep = open_page or (file is None and sys.stdin.isatty() and sys.stdout.isatty())
    options = replace(options, keep=keep, open_page=open_page, **_given(pace=pace, diff=diff))
    run_demo(options, pairs, make_console(), inputs=() if file is None else (file,))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _sample_folder() -> Path:
    return Path(str(resources.files("streamdedup") / "sample"))


def _sample(changes: Mapping[str, Any]) -> DemoOptions:
    """Return the options for the project's sample."""
    folder = _sample_folder()
    with (folder / "expected_pairs.tsv").open(encoding="utf-8", newline="") as lines:
        expected = frozenset(tuple(sorted((row["id1"], row["id2"]))) for row in csv.DictReader(lines, delimiter="\t"))
    readers = {name: CorpusReader(folder / f"{name}.jsonl", on_bad="pass") for name in PROFILES}
    return DemoOptions(
        readers=readers,
        profiles={name: {**PROFILES[name], **changes} for name in PROFILES},
        total_count=sum(1 for reader in readers.values() for _ in reader),
        expected=None if changes else expected,
        pace=SAMPLE_PACE,
        diff=True,
    )


def run_demo(options: DemoOptions, pairs: str | None, console: Console, inputs: Sequence[str] = ()) -> None:
    """Start the servers, run the demo, write the file ``pairs``, and end the servers."""
    raise_on_signals()
    with ExitStack() as stack:
        try:
            # Opened first, so that an unwritable file is reported at once.
            output = None if pairs is None else stack.enter_context(output_to(pairs, inputs, "--pairs"))
            console.print(
                Text("Starting a private Redis, a Kafka broker, the daemon and its page; Ctrl-C ends all.", "bold")
            )
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="streamdedup-demo-", ignore_cleanup_errors=True)
            )
            servers = stack.enter_context(running_servers(Path(directory), options.profiles))
            run = DemoRun(options, console, servers, stack)
            _introduce(options, console, servers)
            if options.open_page:
                _open_page(console, servers)
            with _progress_bar(console) as progress:
                duration_s = run.run(progress, progress.add_task("", total=1.0, counts=""))
            if output is not None:
                run.write_pairs(output)
            run.summarise(duration_s)
            if options.keep:
                _wait_for_user(console, servers)
        finally:
            ignore_signals()


def _introduce(options: DemoOptions, console: Console, servers: DemoServers) -> None:
    daemon = servers.daemon
    rows = {
        "redis": servers.redis.url,
        "kafka": f"{servers.broker.bootstrap_servers}  (in memory, for this demo only)",
        "daemon": f"streamdedup run --config {daemon.config_path}",
        "log": str(daemon.log_path),
        "metrics": f"{daemon.url('/metrics')}  (while this runs)",
        "page": _MISSING_SERVICE if servers.service is None else f"{servers.service.url('/')}  (open it in a browser)",
    }
    print_rows(console, rows)
    console.print()
    if options.diff:
        new, old = ("green", "red") if console.color_system else ("{+so+}", "[-so-]")
        console.print(
            Text(
                f"Left the new document, right a similar earlier one. Text of the left one only is marked {new}, text "
                f"of the right one only {old}; {GAP} replaces text that both have."
            ),
            soft_wrap=True,
        )
    console.print(Text("time      profile   new ~ earlier  similarity", "dim"), soft_wrap=True)


def _open_page(console: Console, servers: DemoServers) -> None:
    """Open the page in the user's browser.

    Raises:
        SettingsError: The libraries of the service are not installed.
    """
    if servers.service is None:
        raise SettingsError(f"--open needs the page: {_MISSING_SERVICE}")
    if not webbrowser.open(servers.service.url("/")):
        console.print(Text(f"No browser was found: open {servers.service.url('/')} in one.", "bold"), soft_wrap=True)


def _progress_bar(console: Console) -> Progress:
    """Return a progress bar on standard output, below the alerts."""
    columns = (BarColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _wait_for_user(console: Console, servers: DemoServers) -> None:
    """Wait for Enter or Ctrl-C; after the end of standard input, for Ctrl-C."""
    lines = [
        "\nStill running. From elsewhere:",
        f"  streamdedup tail --config {servers.daemon.config_path} --from-beginning --diff",
    ]
    if servers.service is not None:
        lines.append(f"Paste a text of {_sample_folder()}/articles.jsonl into {servers.service.url('/')}")
    console.print(Text("\n".join([*lines, "Enter or Ctrl-C ends."])), soft_wrap=True)
    readable = [sys.stdin]
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            servers.check()
            if not readable:
                time.sleep(_CHECK_INTERVAL_S)
            elif select.select(readable, [], [], _CHECK_INTERVAL_S)[0]:
                if sys.stdin.readline():
                    return
                readable = []
