"""Metrics of the HTTP service: kind, meaning, action of the operator, labels; a new one goes to ``docs/http.md``."""

from prometheus_client import Counter, Gauge, Histogram, Info

from streamdedup.metrics import DeclaredMetric, MetricSet

#: Bucket bounds of durations, in seconds.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_TEXTS = (1, 2, 5, 10, 20, 50, 100, 200)  # bucket bounds of the number of texts in a pass


class ServeMetrics(MetricSet):
    prefix = "streamdedup_serve_"

    build = DeclaredMetric(Info, "Version of the service.", "No action.")
    requests = DeclaredMetric(
        Counter,
        "Answered requests.",
        "Status 429 or 503 again and again: more processes. 500: a defect; the log has it.",
        "route",
        "status",
    )
    request_seconds = DeclaredMetric(
        Histogram,
        "Time from the headers of a request until its answer is ready; of a stream, to its beginning.",
        "Rises with `pass_seconds`: Redis is slow. Rises alone: more processes.",
        "route",
        buckets=_SECONDS,
    )
    # 256 is `access.Limits.max_requests`; 128, below, is `feed.MAX_SUBSCRIBERS`.
    in_flight = DeclaredMetric(Gauge, "Requests in progress.", "Near 256, the [limit](#limits): more processes.")
    texts = DeclaredMetric(Counter, "Texts looked up.", "No action: the base of rates.", "profile")
    pass_texts = DeclaredMetric(
        Histogram,
        "Texts in a pass: one call of the index, for texts of several requests.",
        "No action: rises under load.",
        buckets=_TEXTS,
    )
    pass_seconds = DeclaredMetric(Histogram, "Time of a pass.", "Rises: look at Redis.", buckets=_SECONDS)
    store_errors = DeclaredMetric(
        Counter, "Failed calls: no answer of Redis, or no usable index.", "Rises: the log has the reason.", "profile"
    )
    subscribers = DeclaredMetric(
        Gauge, "Open streams: alerts, dead-letters.", "Near 128, the [limit](#limits): more processes.", "stream"
    )
    events = DeclaredMetric(Counter, "Events sent to subscribers.", "No action.", "event")
    unreadable_records = DeclaredMetric(
        Counter,
        "Records of a stream's topic that are no alert or dead letter; they are passed over.",
        "Above 0: another program writes to the topic.",
        "stream",
    )

    def __init__(self) -> None:
        super().__init__()
        # `labels` creates a series with the value zero, or its first increase would be invisible (also `IndexThread`).
        for stream in ("alerts", "dead-letters"):
            self.subscribers.labels(stream)
            self.unreadable_records.labels(stream)
