"""``streamdedup run``: builds the daemon's loop and its parts (``cli.assembly``), waits for the servers, runs the loop.

Stop signals, stop timer, watchdog and health server already work while the servers are awaited. A new server to wait
for is a ``Check`` with a ``server`` in ``cli.checks``.
"""

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import structlog

from streamdedup import __version__
from streamdedup.cli import assembly
from streamdedup.cli.checks import CHECKS, CheckRun
from streamdedup.cli.fatal import ending_at_once, fatal_errors_logged
from streamdedup.cli.rendering.terminal import fitted_to_stderr
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.cli.warm_up import freeze_heap, warm_up
from streamdedup.daemon import logs
from streamdedup.daemon.health import HealthServer
from streamdedup.daemon.loop import Loop
from streamdedup.daemon.metrics import Awaited, Metrics
from streamdedup.daemon.shutdown import STOP_TIMEOUT_S, StopSignals, StopTimer, Watchdog
from streamdedup.errors import EXIT_FORCED, EXIT_STALLED, SettingsError, TransientError
from streamdedup.findings import Finding, warnings_or_raise
from streamdedup.index.backend import Backend
from streamdedup.indexes import connect_backend, detector_options
from streamdedup.kafka.producer import KafkaTransport
from streamdedup.settings import Settings
from streamdedup.wire import alert_json
from streamdedup.wire.avro_alerts import AvroAlerts

#: Number of objects created and not freed after which Python searches for reference cycles. At its default, 700, Python
#: searches many times in each batch, visits all fetched records, and finds nothing.
_COLLECT_AFTER_OBJECTS = 20_000

_LOGGER = "streamdedup.run"
log = structlog.get_logger(_LOGGER)


class _Pulse:
    """Time since the loop's last step, for liveness checks and a metric; passes each step on to the watchdog."""

    def __init__(self, watchdog: Watchdog, limit_s: float) -> None:
        self._watchdog = watchdog
        self._limit_s = limit_s
        self._last_tick_at = time.monotonic()

    def tick(self) -> None:
        self._last_tick_at = time.monotonic()
        self._watchdog.tick()

    def age_s(self) -> float:
        return time.monotonic() - self._last_tick_at

    def problem(self) -> str | None:
        """Return why the process counts as not alive, or None."""
        age_s = self.age_s()
        return f"the loop has made no step for {age_s:.0f} s" if age_s > self._limit_s else None


def run_daemon(settings: Settings) -> None:
    """Build the loop, wait for the servers, and run until a signal asks to stop."""
    metrics = _new_metrics(settings)
    with ExitStack() as stack:
        # First opened and last closed: the timer also limits the time for closing everything below.
        timer = stack.enter_context(StopTimer(STOP_TIMEOUT_S, ending_at_once("stop_forced", EXIT_FORCED, _LOGGER)))

        def on_stop() -> None:
            timer.begin()
            logs.ClientRepeats.is_stopping = True  # drops errors that clients log about their last requests

        stop = stack.enter_context(StopSignals(on_stop))
        watchdog = stack.enter_context(Watchdog(settings.watchdog_s, ending_at_once("fatal", EXIT_STALLED, _LOGGER)))
        pulse = _Pulse(watchdog, settings.watchdog_s)
        backend = stack.enter_context(connect_backend(settings))
        alert_writer = assembly.alert_writer(settings)
        loop = Loop(
            transport=KafkaTransport(assembly.kafka_options(settings)),
            pipelines=assembly.pipelines(settings, backend),
            options=assembly.loop_options(settings, alert_json if alert_writer is None else alert_writer.encode),
            metrics=metrics,
            stop=stop,
            tick=pulse.tick,
            rebuilder=assembly.rebuilder(settings, backend),
        )
        metrics.loop_age_seconds.set_function(pulse.age_s)
        health = _serve_health(settings, metrics, loop, pulse)
        stack.callback(health.close)
        log.info(
            "started",
            version=__version__,
            metrics_port=health.port,
            kafka=",".join(settings.kafka.bootstrap_servers),
            redis=settings.redis.shown_url,
            group=settings.kafka.group_id,
            profiles=sorted(settings.profiles),
        )
        for hint in settings.hint_lines():
            log.warning("settings_hint", reason=hint)
        warm_up(detector_options(name, profile) for name, profile in settings.profiles.items())
        _await_servers(settings, backend, alert_writer, stop, pulse, loop)
        freeze_heap()  # last, when all long-lived objects exist
        loop.run()
        log.info("stopped")


def _new_metrics(settings: Settings) -> Metrics:
    metrics = Metrics()
    metrics.build.info({"version": __version__})
    profile_of = {topic: name for name, profile in settings.profiles.items() for topic in profile.topics}
    metrics.begin_at_zero(profile_of)
    return metrics


def _serve_health(settings: Settings, metrics: Metrics, loop: Loop, pulse: _Pulse) -> HealthServer:
    host, port = settings.service.metrics_host, settings.service.metrics_port
    try:
        return HealthServer(host, port, metrics.registry, live=pulse.problem, ready=loop.readiness.problem)
    except OSError as error:
        text = error.strerror or str(error)
        raise SettingsError(f"service.metrics_port: cannot listen on {host}:{port}: {text}; choose another") from error


def _await_servers(
    settings: Settings, backend: Backend, alert_writer: AvroAlerts | None, stop: StopSignals, pulse: _Pulse, loop: Loop
) -> None:
    """Wait for the servers, one after the other, until each passes its check; register the schema of alerts."""
    check_run = CheckRun(settings, backend)
    for check in CHECKS:
        if check.server is None:
            continue
        loop.readiness.set_awaited(check.server)
        while not stop.stopping:
            pulse.tick()
            try:
                # Registered before the check, which would warn that the registry lacks the schema.
                if check.server is Awaited.SCHEMA_REGISTRY and alert_writer is not None:
                    alert_writer.register()
                    pulse.tick()
                for warning in warnings_or_raise(_ticking(check.findings(check_run), pulse)):
                    log.warning(check.event, reason=warning.sentence)
            except TransientError as error:
                stop.wait(loop.readiness.record_failure(check.server, error))
            else:
                loop.readiness.forget_failures()
                break


def _ticking(findings: Iterable[Finding], pulse: _Pulse) -> Iterator[Finding]:
    """Yield findings, with a tick for each, because checks of a slow server take long."""
    for finding in findings:
        pulse.tick()
        yield finding


def run(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Run the daemon until it is asked to stop.

    Reads articles and reviews from the input topics, finds near-duplicates, publishes alerts.

    Example:  streamdedup run --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    logs.configure(settings.service.log_level, fit=fitted_to_stderr)
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)
    with fatal_errors_logged(log):
        run_daemon(settings)
