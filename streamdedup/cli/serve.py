"""``streamdedup serve``: builds the parts of the HTTP service (``streamdedup.serve``) from settings, and runs it."""

import signal
import socket
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, cast

import structlog

from streamdedup import __version__, clock
from streamdedup.cli.assembly import alert_reader, kafka_options, topic_decoder
from streamdedup.cli.fatal import ending_at_once, fatal_errors_logged
from streamdedup.cli.rendering.terminal import fitted_to_stderr
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.cli.topic_reading import reading_options
from streamdedup.cli.warm_up import freeze_heap, warm_up
from streamdedup.daemon import logs
from streamdedup.daemon.shutdown import STOP_TIMEOUT_S, StopTimer
from streamdedup.detection.lookup import IndexLookup
from streamdedup.errors import EXIT_FORCED, SettingsError
from streamdedup.index.backend import Backend
from streamdedup.index.contract import IndexReader
from streamdedup.indexes import connect_backend, detector_options
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.serve.admission import AllowedHosts, Tokens
from streamdedup.serve.feed import Feed, Feeds
from streamdedup.serve.index_thread import IndexThread, ServedProfile, TimedReader
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.stream_kinds import DEAD_LETTERS, StreamKind, alerts_kind
from streamdedup.serve.texts import TextAligner
from streamdedup.settings import Profile, Settings
from streamdedup.settings.hosts import is_loopback
from streamdedup.wire import Decoder

#: Time limit for requests in progress when the service is asked to stop, in seconds; below ``STOP_TIMEOUT_S``.
_STOP_S = 5
#: Time limit for connecting, for one fetch, and for all records of one comparison of two texts, in seconds; below the
#: time limit of requests, ``Limits.timeout_s``.
_COMPARISON_S = 3.0
#: Longest time limit of a request to the schema registry, in seconds: below ``_COMPARISON_S``, so that the comparison
#: names the registry and not Kafka, and the pause after a failure begins.
_REGISTRY_S = 2.0
#: Time limit of each step of opening the reader of a stream, in seconds: no subscriber waits longer
#: (``feed._OPEN_S``), and an opening that was given up ends before ``STOP_TIMEOUT_S``.
_OPENING_S = 5.0
_BACKLOG = 512  # connections that may wait to be accepted
_KEEP_ALIVE_S = 30  # time without a request after which a connection is closed, in seconds
#: Time in which a client must take some of the bytes that wait for it, in milliseconds; above the time after which a
#: stream gives up by itself (``streaming._SEND_S``).
_STALLED_MS = 75_000

_LOGGER = "streamdedup.serve"
log = structlog.get_logger(_LOGGER)


def run_service(settings: Settings) -> None:
    """Listen first, so that a taken port is reported at once; build the parts, serve, and close in reverse order."""
    try:
        from streamdedup.serve.access import Gate, Limits  # noqa: PLC0415  needs the extra "serve"
        from streamdedup.serve.app import create_app  # noqa: PLC0415  needs the extra "serve"
        from streamdedup.serve.server import create_server  # noqa: PLC0415  needs the extra "serve"
    except ModuleNotFoundError as error:
        raise SettingsError(f"serve needs {error.name}: pip install 'streamdedup[serve]'") from error
    api = settings.api
    metrics = ServeMetrics()
    metrics.build.info({"version": __version__})
    tokens = Tokens(api.tokens_file) if api.tokens_file is not None else None
    with ExitStack() as stack:
        listener = stack.enter_context(_listen(api.host, api.port))
        backend = stack.enter_context(connect_backend(settings, from_replicas=api.read_from == "replica"))
        profiles = _served_profiles(settings, backend)
        index_thread = stack.enter_context(closing(IndexThread(profiles, metrics, clock.now_ms)))
        options = replace(kafka_options(settings), connect_timeout_s=_COMPARISON_S, fetch_timeout_s=_COMPARISON_S)
        aligner = TextAligner(lambda: _open_fetcher(options), _COMPARISON_S)
        stack.callback(aligner.close)
        feeds = _feeds(settings, metrics)
        limits = Limits.for_texts(max(profile.max_text_bytes for profile in profiles.values()))
        # The Host header of a probe has the IP address of the pod or host, which the settings do not have. So a service
        # that listens on the network accepts every IP address as host.
        hosts = AllowedHosts((api.host, *api.allowed_hosts), any_address=not is_loopback(api.host))
        app = create_app(index_thread, aligner, feeds, metrics, limits.max_body_bytes)
        gate = Gate(app, tokens, hosts, limits, metrics)
        timer = StopTimer(STOP_TIMEOUT_S, ending_at_once("stop_forced", EXIT_FORCED, _LOGGER))
        timer.start()  # never closed: at its end the interpreter waits for threads whose servers may be silent

        def on_signal() -> None:
            timer.begin()
            logs.ClientRepeats.is_stopping = True  # drops errors of uvicorn about clients that it does not wait for

        server = create_server(gate, feeds.end, on_signal, limits, _server_options(settings))
        # From here on a signal lets the server end as soon as it runs. uvicorn 0.54 has these handlers while it runs,
        # and raises the signals again when it has ended.
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, server.handle_exit)
        warm_up(profile.lookup.options for profile in profiles.values())
        freeze_heap()  # last, when all long-lived objects exist
        host, port = listener.getsockname()[:2]
        log.info("serving", version=__version__, host=host, port=port, profiles=sorted(profiles))
        server.run(sockets=[listener])
        log.info("stopped")


def _feeds(settings: Settings, metrics: ServeMetrics) -> Feeds:
    def feed(kind: StreamKind, topic: str) -> Feed:
        reading = reading_options(settings, topic)
        options = replace(reading, connect_timeout_s=_OPENING_S, opening_timeout_s=_OPENING_S)
        return Feed(kind, topic, lambda: TopicReader(options), metrics)

    alerts = alerts_kind(alert_reader(settings))
    return Feeds(feed(alerts, settings.kafka.duplicates_topic), feed(DEAD_LETTERS, settings.kafka.dead_letter_topic))


def _open_fetcher(options: KafkaOptions) -> RecordFetcher:
    # The client does not report a missing topic or right: records would seem to have expired.
    require_topics(options)
    return RecordFetcher(options)


def _served_profiles(settings: Settings, backend: Backend) -> dict[str, ServedProfile]:
    served = {}
    for name, profile in settings.profiles.items():
        reader = TimedReader(backend.reader(name))
        served[name] = ServedProfile(
            name=name,
            topics=profile.topics,
            similarity=profile.similarity,
            retention_s=profile.retention_s,
            max_text_bytes=profile.max_text_bytes,
            bucket_cap=profile.bucket_cap,
            fingerprint=profile.fingerprint(),
            decoder=_comparison_decoder(settings, profile),
            reader=reader,
            # `TimedReader` passes all methods on.
            lookup=IndexLookup(detector_options(name, profile), cast("IndexReader", reader)),
        )
    return served


def _comparison_decoder(settings: Settings, profile: Profile) -> Decoder:
    decoder = topic_decoder(settings, profile)
    if decoder.registry is None:
        return decoder
    timeout_s = min(_REGISTRY_S, decoder.registry.timeout_s)
    return replace(decoder, registry=replace(decoder.registry, timeout_s=timeout_s))


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; ``SettingsError`` if the address cannot be bound."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # asyncio of Python 3.11 turns Nagle's algorithm off only for sockets whose protocol is named. With it, the
        # second packet of an answer waits 40 ms for the acknowledgement of the first.
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        text = error.strerror or str(error)
        raise SettingsError(f"api.host: {host}: {text}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections do not hinder a restart
        if sys.platform == "linux":  # accepted connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        text = error.strerror or str(error)
        raise SettingsError(f"api.port: cannot listen on {host}:{port}: {text}; choose another") from error
    return listener


def _server_options(settings: Settings) -> dict[str, Any]:
    return {
        "log_config": None,  # `daemon.logs` has configured the log
        "access_log": False,  # paths have document ids
        "server_header": False,  # clients need not know the server
        "proxy_headers": False,  # nothing depends on the address of a client
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "timeout_graceful_shutdown": _STOP_S,
        "ssl_certfile": settings.api.ssl_cert_file,
        "ssl_keyfile": settings.api.ssl_key_file,
    }


def serve(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Answer look-ups over HTTP: is this text known, and from where?

    Runs until asked to stop; reads the indexes and writes nothing.

    The address is that of the section [api] in the settings, by default http://127.0.0.1:8080; /openapi.json there
    describes the requests.

    Example:  streamdedup serve --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    logs.configure(settings.service.log_level, fit=fitted_to_stderr)
    with fatal_errors_logged(log):
        run_service(settings)
