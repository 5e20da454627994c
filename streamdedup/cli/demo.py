"""``streamdedup demo``: documents become alerts on one machine, with private servers that end with the command.

``demo_servers`` starts the servers, ``demo_run`` sends the sample and shows the alerts.
"""

import contextlib
import select
import sys
import tempfile
import time
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from streamdedup.cli.demo_run import SAMPLE, DemoOptions, DemoRun
from streamdedup.cli.demo_servers import DemoServers, ignore_signals, raise_on_signals, running_servers
from streamdedup.cli.guards import is_interactive
from streamdedup.cli.rendering.differences import GAP
from streamdedup.cli.rendering.terminal import has_colours, make_console, print_line, print_rows
from streamdedup.errors import SettingsError

_DEFAULT_PACE = 10.0  # default rate, in documents per second: the demo takes half a minute
#: How to get the page where the libraries of the HTTP service are missing.
_INSTALL_ADVICE = "pip install 'streamdedup[serve]' to have one"
_CHECK_INTERVAL_S = 0.5  # interval of checking the servers while they are kept, in seconds


def demo(
    *,
    pace: Annotated[float, typer.Option(min=0, help="Documents per second; 0 for no limit.")] = _DEFAULT_PACE,
    diff: Annotated[bool, typer.Option("--diff/--no-diff", help="Show texts side by side.")] = True,
    keep: Annotated[
        bool | None, typer.Option("--keep/--no-keep", help="Leave all running until Enter; default: in a terminal.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser; keeps all running unless --no-keep.")
    ] = False,
) -> None:
    """Watch documents become alerts, on private servers; nothing to set up.

    Starts private servers, sends the sample, shows alerts and dead letters live, and checks that every record is
    accounted for. Paste a text into the page whose address it prints, and see the near-duplicates.

    Example:  streamdedup demo --open
    """
    if keep is None:
        keep = open_page or (is_interactive() and sys.stdout.isatty())
    _run(DemoOptions(pace=pace, diff=diff, keep=keep, open_page=open_page), make_console())


def _run(options: DemoOptions, console: Console) -> None:
    """Start the servers, send the sample, summarise; the stack ends the servers, also after an error or a signal."""
    raise_on_signals()
    with ExitStack() as stack:
        try:
            console.print(
                Text("Starting a private Redis, a Kafka broker, the daemon and its page; Ctrl-C ends all.", "bold")
            )
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="streamdedup-demo-", ignore_cleanup_errors=True)
            )
            servers = stack.enter_context(running_servers(Path(directory)))
            demo_run = DemoRun(options, console, servers, stack)  # opens its Kafka clients on the stack
            _introduce(options, console, servers)
            if options.open_page:
                _open_page(console, servers)
            duration_s = demo_run.run()
            demo_run.summarise(duration_s)
            if options.keep:
                _wait_for_user(console, servers)
        finally:
            ignore_signals()  # while the stack ends the servers: another Ctrl-C must not leave one behind


def _introduce(options: DemoOptions, console: Console, servers: DemoServers) -> None:
    daemon = servers.daemon
    rows = {
        "redis": servers.redis.url,
        "kafka": f"{servers.broker.bootstrap_servers}  (in memory, for this demo only)",
        "daemon": f"streamdedup run --config {daemon.config_path}",
        "log": str(daemon.log_path),
        "metrics": f"{daemon.url('/metrics')}  (while this runs)",
        "page": _INSTALL_ADVICE if servers.service is None else f"{servers.service.url('/')}  (open it in a browser)",
    }
    print_rows(console, rows)
    console.print()
    if options.diff:
        # As `rendering.pairs` marks differences, with colours or without.
        new, old = ("green", "red") if has_colours(console) else ("{+this way+}", "[-this way-]")
        print_line(
            console,
            Text(
                f"Left the new document, right a similar earlier one. Text of the left one only is marked {new}, text "
                f"of the right one only {old}; {GAP} replaces text that both have."
            ),
        )
    print_line(console, Text("time           profile   new ~ earlier  similarity", "dim"))  # as `match_line` prints


def _open_page(console: Console, servers: DemoServers) -> None:
    """Open the page in the user's browser; ``SettingsError`` if the service's libraries are not installed."""
    if servers.service is None:
        raise SettingsError(f"--open needs the page: {_INSTALL_ADVICE}")
    if not webbrowser.open(servers.service.url("/")):
        print_line(console, Text(f"No browser was found: open {servers.service.url('/')} in one.", "bold"))


def _wait_for_user(console: Console, servers: DemoServers) -> None:
    lines = [
        "",
        "Still running. From elsewhere:",
        f"  streamdedup tail --config {servers.daemon.config_path} --from-beginning --diff",
    ]
    if servers.service is not None:
        lines.append(f"Paste a text of {SAMPLE}/articles.jsonl into {servers.service.url('/')}")
    for line in (*lines, "Enter or Ctrl-C ends."):
        print_line(console, Text(line))
    readable = [] if sys.stdin is None else [sys.stdin]
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            servers.check()
            if not readable:
                time.sleep(_CHECK_INTERVAL_S)
            elif select.select(readable, [], [], _CHECK_INTERVAL_S)[0]:
                if sys.stdin.readline():
                    return
                readable = []  # the end of standard input would be readable all the time
