"""The results of ``streamdedup plan``: each number with its origin as text and JSON, and the table of several rates."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from streamdedup.cli.rendering.terminal import printable, size_text
from streamdedup.settings.units import format_duration
from streamdedup.tuning.machine import Machine
from streamdedup.tuning.plan import (
    COPIES,
    DEAD_LETTER_DAYS,
    DEAD_LETTER_SHARE,
    HTTP_US,
    LOAD,
    MEMORY_FILL,
    MOST_MASTERS,
    PARTITION_BYTES_PER_S,
    PARTITIONS_PER_DAEMON,
    Layout,
    LayoutPlan,
    Plan,
)

#: Width of the columns of names and values, in characters.
_NAME_WIDTH, _VALUE_WIDTH = 30, 13
#: Records that are so many times larger or smaller than the measured ones cost something else.
SIZE_FACTOR: Final = 2.0
#: Columns of the table of several rates.
_COLUMNS: Final = (
    *("documents a minute", "partitions", "daemons"),
    *("Redis masters, `sets`", "memory, `sets`", "Redis masters, `packed`", "memory, `packed`", "`serve` replicas"),
)


class Line(NamedTuple):
    """A number.

    Attributes:
        key: Key in JSON.
        title: Noun phrase.
        value: The number.
        unit: Unit in JSON; empty for a count.
        origin: Formula or measurement.
    """

    key: str
    title: str
    value: float
    unit: str
    origin: str

    @property
    def text(self) -> str:
        """The value with its unit."""
        if self.unit == "bytes":
            return size_text(self.value)
        if self.unit == "bytes/s":
            return f"{size_text(self.value)}/s"
        number = f"{self.value:,.0f}" if self.value == round(self.value) or self.value >= 100 else f"{self.value:.3g}"
        return f"{number} {self.unit}".rstrip()


def sections_of(plan: Plan, machine: Machine, layout: Layout) -> dict[str, list[Line]]:
    """Return all numbers of a plan by title; ``layout``: bucket layout of the settings."""
    chosen = plan.layouts[layout]
    return {
        "Demand": list(_demand(plan)),
        f"Processor time of a document, bucket layout {layout}": list(_stages(plan, chosen)),
        "Processes and servers": list(_processes(plan, machine, chosen)),
        "Memory of the index in Redis": list(_memory(plan, machine)),
        "Network in the busiest hour": list(_network(plan, machine, layout)),
        f"Topics in Kafka, uncompressed, {COPIES} copies": list(_topics(plan, machine)),
    }


def _demand(plan: Plan) -> Iterator[Line]:
    demand = plan.demand
    kept = format_duration(demand.retention_s + demand.retention_slack_s)
    yield Line("documents_per_day", "documents a day", demand.documents_per_day, "", "--documents-per-day")
    yield Line(
        "documents_per_s",
        "documents/s, busiest hour",
        demand.documents_per_s,
        "/s",
        f"documents a day / 86,400 s x peak {demand.peak:g}",
    )
    yield Line(
        "documents_kept", "documents in the index", demand.documents_kept, "", f"documents a day x {kept} (and slack)"
    )
    yield Line("document_bytes", "bytes of a record", demand.document_bytes, "bytes", "--document-bytes, or the sample")
    yield Line("alerts_share", "alerts for each document", demand.alerts_share, "", "--alerts-share, or the sample")
    yield Line("lookups_per_s", "look-ups/s, busiest hour", demand.lookups_per_s, "/s", "--lookups-per-second")


def _stages(plan: Plan, chosen: LayoutPlan) -> Iterator[Line]:
    for stage in chosen.stages:
        limit = "; the limiting stage" if stage == chosen.limiting_stage else ""
        key = f"{stage.name.lower().replace(' ', '_')}_us"
        yield Line(key, stage.name, stage.us, "µs", f"{stage.origin}{limit}")
    yield Line("document_us", "together", chosen.document_us, "µs", "the sum: a daemon waits while Redis works for it")
    cores = plan.demand.documents_per_s * chosen.document_us / 1e6
    yield Line("cores", "cores, busiest hour", cores, "", "documents/s x the sum / 10^6")


def _processes(plan: Plan, machine: Machine, chosen: LayoutPlan) -> Iterator[Line]:
    masters, stages = chosen.masters, machine.stages
    yield Line(
        "partitions",
        "partitions of the input",
        chosen.partitions,
        "",
        f"the larger of {PARTITIONS_PER_DAEMON} x daemons and bytes/s / {size_text(PARTITION_BYTES_PER_S)}/s",
    )
    yield Line("daemons", "daemons", chosen.daemons, "", f"documents/s x the sum / 10^6 / load {LOAD:g}")
    fullest = f"fullest one: {masters.share:.3g} of the index" if masters.count > 1 else "a single server"
    yield Line(
        "redis_masters",
        "Redis masters",
        masters.count,
        "",
        f"by {masters.limit}: load {LOAD:g}, {MEMORY_FILL:.0%} of {size_text(plan.demand.server_bytes)}; {fullest}",
    )
    yield Line("redis_shards", "redis.shards", masters.shards, "", "slots for each band; 1 on a single server")
    look_up_us = HTTP_US + stages.lookup_us + stages.lookup_redis_us
    yield Line(
        "serve_replicas",
        "serve replicas",
        plan.replicas,
        "",
        f"look-ups/s x {look_up_us:,.0f} µs ({HTTP_US:g} HTTP, {stages.lookup_us:.0f} look-up, "
        f"{stages.lookup_redis_us:.0f} Redis) / 10^6 / load {LOAD:g}",
    )


def _memory(plan: Plan, machine: Machine) -> Iterator[Line]:
    kept = plan.demand.documents_kept
    for layout, one in plan.layouts.items():
        bytes_each = one.memory_bytes / kept
        yield Line(
            f"memory_{layout}",
            layout,
            one.memory_bytes,
            "bytes",
            f"{bytes_each:,.0f} bytes a document: entry, {machine.sample.members:.3g} buckets and claims, measured",
        )
        yield Line(
            f"redis_masters_{layout}",
            f"Redis masters with {layout}",
            one.masters.count,
            "",
            f"as above; by {one.masters.limit}",
        )


def _network(plan: Plan, machine: Machine, layout: Layout) -> Iterator[Line]:
    demand, costs = plan.demand, machine.layouts[layout]
    yield Line(
        "kafka_to_daemons", "Kafka to daemons", plan.input_bytes_per_s, "bytes/s", "documents/s x bytes of a record"
    )
    yield Line(
        "daemons_to_kafka",
        "daemons to Kafka",
        plan.alert_bytes_per_s,
        "bytes/s",
        f"documents/s x {demand.alerts_share:.3g} x {machine.sample.alert_bytes:,.0f} bytes of an alert",
    )
    yield Line(
        "between_brokers",
        "between brokers",
        plan.copied_bytes_per_s,
        "bytes/s",
        f"input and alerts x {COPIES - 1} further copies",
    )
    yield Line(
        "daemons_and_redis",
        "daemons and Redis",
        plan.redis_bytes_per_s[layout],
        "bytes/s",
        f"documents/s x ({costs.sent_bytes:,.0f} sent + {costs.received_bytes:,.0f} received) bytes, measured",
    )


def _topics(plan: Plan, machine: Machine) -> Iterator[Line]:
    days = f"{plan.demand.days:g} days"
    yield Line("input_topics", "input", plan.input_topic_bytes, "bytes", f"{days} of records, for a rebuild")
    yield Line(
        "duplicates_topic",
        "duplicates",
        plan.duplicates_topic_bytes,
        "bytes",
        f"{days} of alerts of {machine.sample.alert_bytes:,.0f} bytes, for a rebuild",
    )
    yield Line(
        "dead_letter_topic",
        "dead letters",
        plan.dead_letter_topic_bytes,
        "bytes",
        f"{DEAD_LETTER_DAYS:g} days, if {DEAD_LETTER_SHARE:.1%} of the records fail (an assumption)",
    )


def warnings_of(plan: Plan, machine: Machine) -> list[str]:
    """Warn about records of another size than the measured ones, and about too many masters for one cluster."""
    warnings = []
    given, measured = plan.demand.document_bytes, machine.sample.document_bytes
    if max(given, measured) >= SIZE_FACTOR * min(given, measured):
        sizes = f"{size_text(measured)}, not {size_text(given)}"
        warnings.append(
            f"times and memory of the index are those of records of {sizes}: measure a sample of your records"
        )
    for layout, one in plan.layouts.items():
        if one.masters.count > MOST_MASTERS:
            warnings.append(
                f"{one.masters.count:,} masters with {layout} are more than one Redis Cluster of {MOST_MASTERS:,}: "
                "keep documents for a shorter time (--retention), or divide them among several installations"
            )
    return warnings


def measured_text(machine: Machine) -> str:
    """Return a sentence about the measurement."""
    sample, profile, versions = machine.sample, machine.profile, machine.versions
    return printable(
        f"Measured {machine.measured_at} on {machine.processor}, {machine.cores} cores, {versions.get('server', '')}, "
        f"streamdedup {versions.get('streamdedup', '')}: {sample.documents:,} documents of {sample.name}, "
        f"{profile.shingles}-shingles, {profile.bands} x {profile.rows} bands."
    )


def headroom_text(plan: Plan) -> str:
    """Return a sentence about the room that the numbers leave."""
    return (
        f"Headroom: the busiest hour has {plan.demand.peak:g} times the documents of a mean hour; each process is busy "
        f"for at most {LOAD:.0%} of it, and the index fills at most {MEMORY_FILL:.0%} of a server. Add one of each "
        "process, and a replica of each master, to survive the loss of a machine."
    )


def plan_text(plan: Plan, machine: Machine, layout: Layout) -> str:
    """Return a plan for a terminal."""
    blocks = [f"{measured_text(machine)}\n{headroom_text(plan)}\n"]
    for title, numbers in sections_of(plan, machine, layout).items():
        lines = [f"  {line.title:<{_NAME_WIDTH}}{line.text:>{_VALUE_WIDTH}}  {line.origin}\n" for line in numbers]
        blocks.append(f"{title}\n{''.join(lines)}")
    blocks += [f"Warning: {warning}\n" for warning in warnings_of(plan, machine)]
    return "\n".join(blocks)


def plan_json(plan: Plan, machine: Machine, layout: Layout) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "measured": measured_text(machine),
        "headroom": {"peak": plan.demand.peak, "load": LOAD, "memory_fill": MEMORY_FILL},
        "bucket_layout": layout,
        "limiting_stage": plan.layouts[layout].limiting_stage.name,
        "numbers": {
            line.key: {"value": line.value, "unit": line.unit, "origin": line.origin}
            for numbers in sections_of(plan, machine, layout).values()
            for line in numbers
        },
        "warnings": warnings_of(plan, machine),
    }


def table_rows(plans: Sequence[Plan], layout: Layout) -> list[list[str]]:
    """Return a row for each plan, with the cells of ``_COLUMNS``."""
    rows = []
    for plan in plans:
        sets, packed, chosen = plan.layouts["sets"], plan.layouts["packed"], plan.layouts[layout]
        rows.append(
            [
                f"{plan.demand.documents_per_day / 1_440:,.0f}",
                f"{chosen.partitions:,}",
                f"{chosen.daemons:,}",
                f"{sets.masters.count:,}",
                size_text(sets.memory_bytes),
                f"{packed.masters.count:,}",
                size_text(packed.memory_bytes),
                f"{plan.replicas:,}",
            ]
        )
    return rows


def table_text(plans: Sequence[Plan], machine: Machine, layout: Layout) -> str:
    """Return the table of several rates, in Markdown, which is readable on a terminal too."""
    demand = plans[0].demand
    rule = ["--:"] * len(_COLUMNS)
    rows = [list(_COLUMNS), rule, *table_rows(plans, layout)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows]
    kept = format_duration(demand.retention_s + demand.retention_slack_s)
    caption = (
        f"Documents of {demand.document_bytes:,.0f} bytes, kept for {kept}; alerts for {demand.alerts_share:.1%} of "
        f"them; servers of {size_text(demand.server_bytes)}. Partitions and daemons with {layout}. "
        f"{headroom_text(plans[0])}"
    )
    found = dict.fromkeys(warning for plan in plans for warning in warnings_of(plan, machine))
    warnings = [f"\n{warning[0].upper()}{warning[1:]}." for warning in found]
    return "\n".join([*lines, "", caption, "", measured_text(machine), *warnings, ""])
