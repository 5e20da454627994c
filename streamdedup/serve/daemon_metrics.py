"""The state of the pipeline from the metrics of the daemons, which are scraped as Prometheus does.

A host name with several addresses, as that of a headless Service in Kubernetes, names a daemon at each of them; it is
resolved again for each reading, so that daemons may come and go.
"""

import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from streamdedup.serve.pipeline import Increases, PipelineReading
from streamdedup.serve.schemas import DaemonBody, StoreBody
from streamdedup.wire import rfc_3339

#: Time for the answer of one daemon, in seconds.
TIMEOUT_S: Final = 3.0
#: Longest answer of a daemon, in bytes; that of a daemon with 100 topics has 0.5 MB.
MAX_BYTES: Final = 4_194_304
#: Most addresses of all host names; further ones are not asked.
MAX_TARGETS: Final = 256
#: Daemons that are asked at the same time.
_THREADS: Final = 8
_CHUNK_BYTES: Final = 65_536
_PREFIX: Final = "streamdedup_"
#: Metrics that are read; the lines of others are not parsed.
_WANTED: Final = (
    "records_total",
    "alerts_total",
    "lag_records",
    "waiting",
    "halted",
    "store_used_bytes",
    "store_limit_bytes",
    "store_errors_total",
    "broker_errors_total",
    "dead_letters_total",
    "index_lost_timestamp_seconds",
)
_WANTED_LINES: Final = tuple(_PREFIX + name for name in _WANTED)

#: Samples by the name of the metric, without its prefix.
Samples = Mapping[str, Sequence[Sample]]


class ScrapeError(Exception):
    """A daemon has not answered with its metrics; the message is the reason, for people."""


class Target(NamedTuple):
    """Metrics of one daemon.

    Attributes:
        url: Their URL.
        address: Address of its host name to connect to, without a port; None for the host name itself.
    """

    url: str
    address: str | None = None

    @property
    def name(self) -> str:
        """Host and port for people."""
        parts = urlsplit(self.url)
        if self.address is None:
            return parts.netloc
        host = f"[{self.address}]" if ":" in self.address else self.address
        return host if parts.port is None else f"{host}:{parts.port}"


class DaemonMetrics:
    """Scrapes daemons; a ``PipelineSource``.

    Args:
        urls: Addresses of their metrics.
        now_ms: The clock, in milliseconds since the epoch.
    """

    name: Final = "metrics"

    def __init__(self, urls: Sequence[str], now_ms: Callable[[], float]) -> None:
        self._urls = tuple(urls)
        self._now_ms = now_ms
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="scrape")
        self._records = Increases(from_zero=True)
        self._alerts = Increases(from_zero=True)
        self._errors: dict[Target, _ErrorWatch] = {}

    def read(self) -> PipelineReading:
        """See ``PipelineSource.read``; a daemon that cannot be reached is no error."""
        found = [target for targets in self._threads.map(targets_of, self._urls) for target in targets][:MAX_TARGETS]
        answers = dict(zip(found, self._threads.map(_scraped, found), strict=True))
        reached = {target: answer for target, answer in answers.items() if not isinstance(answer, ScrapeError)}
        self._errors = {target: self._errors.get(target) or _ErrorWatch() for target in answers}
        daemons = tuple(self._daemon(target, answer) for target, answer in answers.items())
        if not reached:
            return PipelineReading(None, None, None, daemons)
        used = max(_total(samples, "store_used_bytes") for samples in reached.values())
        limit = max(_total(samples, "store_limit_bytes") for samples in reached.values())
        return PipelineReading(
            documents=self._records.advance({each: _total(reached[each], "records_total") for each in reached}),
            alerts=self._alerts.advance({each: _total(reached[each], "alerts_total") for each in reached}),
            lag=round(sum(_total(each, "lag_records") for each in reached.values())),
            daemons=daemons,
            memory=StoreBody(round(used) or None, round(limit) or None),
        )

    def _daemon(self, target: Target, answer: Samples | ScrapeError) -> DaemonBody:
        if isinstance(answer, ScrapeError):
            return DaemonBody(target.name, reachable=False, waiting_for=None, last_error=str(answer))
        waiting_for = next(
            (sample.labels.get("what") for sample in answer.get("waiting", ()) if sample.value == 1), None
        )
        return DaemonBody(
            target.name,
            reachable=True,
            waiting_for=waiting_for,
            last_error=_present_error(answer) or self._errors[target].last_error(answer, self._now_ms()),
        )

    def close(self) -> None:
        """See ``PipelineSource.close``."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def targets_of(url: str) -> list[Target]:
    """Return a target for each address of a host name that has several; otherwise one for the host name itself.

    An IPv4 and an IPv6 address of one host count as one: only the addresses of the first family are taken.
    """
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError:
        return [Target(url)]  # the scrape reports the error
    addresses = sorted({str(address[0]) for family, _, _, _, address in found if family == found[0][0]})
    return [Target(url, address) for address in addresses] if len(addresses) > 1 else [Target(url)]


class _ErrorWatch:
    """The last error of one daemon: the last of its counters of errors that has increased between two scrapes."""

    def __init__(self) -> None:
        self._before: dict[str, float] | None = None
        self._last: str | None = None

    def last_error(self, samples: Samples, now_ms: float) -> str | None:
        """Return the last error that was seen, with the time at which it was seen."""
        totals: dict[str, float] = {}
        for sample in samples.get("dead_letters_total", ()):
            text = f"dead letter {sample.labels.get('code', '')}"
            totals[text] = totals.get(text, 0.0) + sample.value
        totals |= {"Kafka failed": _total(samples, "broker_errors_total")}
        totals |= {"Redis failed": _total(samples, "store_errors_total")}
        before, self._before = self._before, totals
        if before is not None:
            # A counter begins at zero with its process, so that it may have decreased.
            for text, total in totals.items():
                if total and total != before.get(text, 0.0):
                    self._last = f"{text}, seen at {rfc_3339(round(now_ms))}"
        return self._last


def _present_error(samples: Samples) -> str | None:
    """Return the problem that lasts: a halt, or a lost index."""
    if _total(samples, "halted"):
        return "halted after too many dead letters"
    for sample in samples.get("index_lost_timestamp_seconds", ()):
        if sample.value:
            since = rfc_3339(round(sample.value * 1000))
            return f"the index of profile {sample.labels.get('profile', '')} is lost since {since}"
    return None


def _total(samples: Samples, name: str) -> float:
    """Return the sum of a metric over its labels."""
    return sum(sample.value for sample in samples.get(name, ()))


def _scraped(target: Target) -> Samples | ScrapeError:
    try:
        return parse(scrape(target))
    except ScrapeError as error:
        return error


def scrape(target: Target, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return the body of an answer with status 200; redirects are not followed, and no proxy is used.

    Raises:
        ScrapeError: There is no such answer within the time, or it is too long.
    """
    parts = urlsplit(target.url)
    deadline = time.monotonic() + timeout_s
    body = bytearray()
    try:
        with closing(_connection(target, timeout_s)) as connection:
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            connection.request("GET", path, headers={"Accept": "text/plain"})
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise ScrapeError(f"answers with status {response.status}")
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ScrapeError(f"the answer is longer than {MAX_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise ScrapeError(f"no answer within {timeout_s:g} s")
            if response.length:
                raise ScrapeError("the answer ends early")
    except TimeoutError:
        raise ScrapeError(f"no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise ScrapeError(f"cannot be reached: {error.strerror or type(error).__name__}") from None
    except HTTPException as error:
        raise ScrapeError(f"does not speak HTTP: {type(error).__name__}") from None
    return bytes(body)


def _connection(target: Target, timeout_s: float) -> HTTPConnection:
    """Return a connection to a daemon, which is opened here where its host name has several addresses.

    Raises:
        OSError: The daemon cannot be reached.
    """
    parts = urlsplit(target.url)
    host, is_encrypted = parts.hostname or "", parts.scheme == "https"
    connection = (HTTPSConnection if is_encrypted else HTTPConnection)(host, parts.port, timeout=timeout_s)
    if target.address is not None:
        connection.sock = opened = socket.create_connection((target.address, connection.port), timeout_s)
        if is_encrypted:
            # Closes the socket where the handshake fails.
            connection.sock = ssl.create_default_context().wrap_socket(opened, server_hostname=host)
    return connection


def parse(body: bytes) -> Samples:
    """Return the samples of the metrics that are read.

    Raises:
        ScrapeError: The text has no metrics of a daemon.
    """
    lines = (line for line in body.decode(errors="replace").split("\n") if line.startswith(_WANTED_LINES))
    found: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    found.setdefault(sample.name.removeprefix(_PREFIX), []).append(sample)
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(f"the answer cannot be read as metrics: {type(error).__name__}") from None
    if "halted" not in found:
        raise ScrapeError("the answer has no metrics of a daemon")
    return found
