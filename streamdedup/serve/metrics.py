"""The metrics of the HTTP service."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

#: Bucket bounds of durations, in seconds.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: Bucket bounds of the number of texts in a pass.
_TEXTS = (1, 2, 5, 10, 20, 50, 100, 200)


class ServeMetrics:
    """Metrics of one process, in a registry of their own.

    Attributes:
        registry: The registry.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.build = Info("streamdedup_serve_build", "Version of the service.", registry=registry)
        self.requests = Counter(
            "streamdedup_serve_requests", "Requests that were answered.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "streamdedup_serve_request_seconds",
            "Time from the headers of a request to the end of the answer; of a stream, to its beginning.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("streamdedup_serve_in_flight", "Requests in progress.", registry=registry)
        self.texts = Counter("streamdedup_serve_texts", "Texts that were looked up.", ["profile"], registry=registry)
        self.pass_texts = Histogram(
            "streamdedup_serve_pass_texts", "Texts that were looked up together.", buckets=_TEXTS, registry=registry
        )
        self.pass_seconds = Histogram(
            "streamdedup_serve_pass_seconds",
            "Time of a look-up of texts together.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.store_errors = Counter(
            "streamdedup_serve_store_errors", "Look-ups that failed because of Redis.", ["profile"], registry=registry
        )
        self.subscribers = Gauge(
            "streamdedup_serve_subscribers", "Open streams: alerts, dead-letters.", ["stream"], registry=registry
        )
        self.events = Counter(
            "streamdedup_serve_events", "Events that were sent to subscribers.", ["event"], registry=registry
        )
        self.cluster_members = Gauge(
            "streamdedup_serve_cluster_members", "Members of clusters that are kept in memory.", registry=registry
        )
        self.unreadable_records = Counter(
            "streamdedup_serve_unreadable_records",
            "Records of the topic of a stream that have another form; passed over.",
            ["stream"],
            registry=registry,
        )
        for stream in ("alerts", "dead-letters"):
            self.subscribers.labels(stream)
            self.unreadable_records.labels(stream)
        ProcessCollector(registry=registry)
