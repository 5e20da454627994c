"""The work of ``streamdedup tune``: study a sample, recommend settings, and measure them on a server."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from streamdedup.cli.output import steps
from streamdedup.cli.tune_server import TuneServer
from streamdedup.cli.tune_settings import SERVERS, settings_section, tuned_profile
from streamdedup.cli.tune_texts import shown_pair, study_texts
from streamdedup.errors import SettingsError
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.indexes import detector_options
from streamdedup.position import Partition
from streamdedup.settings import Profile, Redis
from streamdedup.similarity.measures import MEASURES
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.advice import Recommendation, recommend, warnings
from streamdedup.tuning.capped import StormLimits
from streamdedup.tuning.memory import EntryForm, Measurement, MemoryForecast, contents_of
from streamdedup.tuning.pair_change import BINS
from streamdedup.tuning.plan import DAY_S, LOAD
from streamdedup.tuning.rows import LIMIT_FACTORS, Basis, TuningRow, Workload, rows_of
from streamdedup.tuning.sample import Sample, chosen_documents
from streamdedup.tuning.study import Study

#: Buckets and pairs in the report.
_SHOWN: Final = 10
#: Least size of a sample whose indexing time counts; with fewer, connections and caches take too much of it.
_TIMED_FROM: Final = 2_000
#: Exact limits whose memory is forecast, beside that of the profile.
_EXACT_LIMITS: Final[tuple[int | None, ...]] = (0, 512, None)
#: Bins of similarity for which the recall is drawn.
_CURVE_BINS: Final = 40
#: Most values of a signature that the settings allow.
LARGEST_SIGNATURE: Final = 1_024
#: Most values of a signature that are tried, unless the profile has more or an option says otherwise.
MOST_PERMUTATIONS: Final = 512
#: Pairs that are shown for each threshold.
_PAIRS: Final = 3


@dataclass(frozen=True, slots=True)
class Question:
    """The options of ``tune``.

    Attributes:
        name: Name of the profile.
        profile: Settings that do not vary.
        kinds: Kinds of shingles to try.
        thresholds: Each above 0, at most 1.
        recalls: Minimum recalls, each above 0, below 1.
        documents_per_day: Documents a day.
        basis: Where the recall must be reached.
        redis: Section of the settings about the index.
        arguments: Arguments of the command line that name the corpus and the profile.
        most_permutations: Most values of a signature to try.
        has_servers: The settings file of the profile names the servers.
    """

    name: str
    profile: Profile
    kinds: tuple[ShingleOptions, ...]
    thresholds: tuple[float, ...]
    recalls: tuple[float, ...]
    documents_per_day: float
    basis: Basis
    redis: Redis
    arguments: tuple[str, ...]
    most_permutations: int
    has_servers: bool

    @property
    def threshold(self) -> float:
        """The threshold that is nearest to that of the profile."""
        return min(self.thresholds, key=lambda one: abs(one - self.profile.threshold))

    @property
    def documents_kept(self) -> float:
        """Documents in the index in the steady state."""
        return self.documents_per_day * (self.profile.retention_s + self.profile.retention_slack_s) / DAY_S


class Tuning:
    """Studies a sample, recommends a row, and measures it on the server, if there is one.

    Args:
        question: The options.
        sample: The sample, not empty.
        server: Server for memory and speed; None leaves them out.

    Raises:
        SettingsError: No bands reach any of the recalls.
        StoreUnavailable: The server does not answer.
    """

    def __init__(self, question: Question, sample: Sample, server: TuneServer | None) -> None:
        self._question = question
        self._profile = profile = question.profile
        self._sample = sample
        self._workload = Workload(
            documents=question.documents_kept,
            collection=sample.read_count,
            share=sample.share,
            permutations=profile.permutations,
            most_permutations=question.most_permutations,
            limits=StormLimits(profile.bucket_cap, profile.max_candidates),
            basis=question.basis,
        )
        self._documents = chosen_documents(sample.texts, {kind.unit for kind in question.kinds})
        limits = {*_EXACT_LIMITS, profile.exact_limit}
        self._exact_limits = sorted(limits, key=lambda limit: math.inf if limit is None else limit)
        self._studies = [self._study(kind) for kind in question.kinds]
        self._rows = [(row, study) for study in self._studies for row in self._rows_of(study)]
        self._best = self._recommended()
        self._forecast: MemoryForecast | None = None
        self._measured: dict[str, Any] | None = None
        self._warnings: list[str] = []
        if server is not None:
            self._measure(server)

    def _study(self, kind: ShingleOptions) -> Study:
        rule = self._profile.containment_rule()
        floors = [*self._question.thresholds, *([] if rule is None else [rule.min_similarity])]
        with steps(f"{kind.unit} {kind.size}: pairs", len(self._sample.texts)) as step:
            return Study(
                kind,
                self._sample.texts,
                HashFamily(self._question.most_permutations, self._profile.seed),
                floor=min(floors),
                rule=rule,
                documents=self._documents,
                min_words=self._profile.min_words,
                progress=step,
            )

    def _rows_of(self, study: Study) -> list[TuningRow]:
        question, kind = self._question, study.options
        with steps(f"{kind.unit} {kind.size}: bands", question.most_permutations) as step:
            return rows_of(study, self._workload, question.thresholds, question.recalls, step)

    def _recommended(self) -> Recommendation:
        """Recommend one of the rows at the threshold and the minimum recall that are nearest to those of the profile.

        Raises:
            SettingsError: No such row reaches the minimum recall; the text names remedies.
        """
        own, question = self._profile, self._question
        threshold = question.threshold
        recall = min(question.recalls, key=lambda one: abs(one - own.min_recall))
        rows = [one for one in self._rows if (one[0].threshold, one[0].min_recall) == (threshold, recall)]
        reached = [one for one in rows if one[0].reached]
        if not reached:
            raise SettingsError(self._refusal(threshold, recall, [row for row, _ in rows]))
        return recommend(reached, own.shingle_options())

    def _refusal(self, threshold: float, recall: float, rows: Sequence[TuningRow]) -> str:
        """Return the reason why no row is recommended, with the remedies."""
        most = self._question.most_permutations
        least = self._studies[0].least_similarity(threshold)
        where = f"threshold {threshold:g}" if least == threshold else f"similarity {least:g} of containment"
        reason = f"no bands within {most} permutations reach a recall of {recall:g} at the {where}"
        cure = f"raise --threshold, lower --min-recall, or allow more with --permutations (at most {LARGEST_SIGNATURE})"
        if not rows:
            return f"{reason}: {cure}"
        best = max(rows, key=lambda row: row.found)
        documents = self._workload.judged_documents(self._studies[0])
        return (
            f"{reason} in an index of {documents:,.0f} documents, with bucket_cap and max_candidates up to "
            f"{LIMIT_FACTORS[-1]} times those of the profile; the best, {best.options.unit} {best.options.size} in "
            f"{best.banding}, reach {best.found:.4f}: {cure}; or try longer shingles with --size, leave boilerplate "
            'out with streamdedup stop-shingles, or set both limits to "none" in the settings file of --config'
        )

    def _measure(self, server: TuneServer) -> None:
        """Measure the parts of the recommended index, and an index of the sample."""
        row, study, _ = self._best
        question, profile = self._question, self._profile
        options = replace(
            detector_options(question.name, tuned_profile(profile, row)), shingles=row.options, banding=row.banding
        )
        measurement = Measurement(server, options, self._sample, Partition(profile.topics[0], 0))
        forms = [EntryForm(row.options, limit) for limit in self._exact_limits]
        forms += [EntryForm(kind, profile.exact_limit) for kind in question.kinds if kind != row.options]
        with steps("on a server", len(LAYOUTS) + len(forms) + 1) as step:
            costs, members = {}, study.buckets(row.banding, row.limits.bucket_cap).members
            contents = contents_of(study, self._workload, row, self._workload.documents)
            for layout in LAYOUTS:
                costs[layout] = measurement.costs(contents, members, layout)
                step(1)
            entry_bytes = measurement.entry_bytes(forms, step)
            self._forecast = MemoryForecast(self._workload, costs, entry_bytes, measurement.form)
            indexed = server.index_sample(options, self._sample, question.redis.bucket_layout, row.limits.bucket_cap)
            step(1)
        forecast_bytes = self._bytes(row, study, filled_with=float(indexed.documents))
        assert forecast_bytes is not None
        self._measured = {
            "server": server.name,
            "allocator": server.allocator,
            "private": server.private,
            "documents": indexed.documents,
            "measured_bytes": indexed.used_bytes,
            "forecast_bytes": forecast_bytes,
            "forecast_error": forecast_bytes / indexed.used_bytes - 1 if indexed.used_bytes > 0 else None,
            "bytes_per_document": indexed.used_bytes / indexed.documents,
            "documents_per_s": indexed.documents / indexed.seconds,
            "limits": asdict(indexed.limits),
        }
        if reached := indexed.limits.sentence():
            self._warnings.append(f"in an index of the sample {reached}")

    def _bytes(self, row: TuningRow, study: Study, *, filled_with: float | None = None) -> float | None:
        """Return the forecast memory with bucket layout and exact limit of the settings; None without a server."""
        if self._forecast is None:
            return None
        layout, limit = self._question.redis.bucket_layout, self._profile.exact_limit
        return self._forecast.total(study, row, layout, limit, filled_with)

    def results(self) -> dict[str, Any]:
        """Return all results as plain values, for tables, report and ``--json``; None for unknown values."""
        question, profile, sample = self._question, self._profile, self._sample
        row, study, _ = self._best
        words = self._studies[0].sets.token_counts
        texts = study_texts(sample, row.options, row.threshold, profile, question.arguments)
        return {
            "sample": {
                "documents": len(sample.ids),
                "read": sample.read_count,
                "sampling": sample.method,
                "median_words": int(np.median(words)) if words.size else 0,
                "looked_at": {f"{one.options.unit} {one.options.size}": one.documents_count for one in self._studies},
            },
            "demand": {
                "documents_per_day": question.documents_per_day,
                "retention_s": profile.retention_s,
                "retention_slack_s": profile.retention_slack_s,
                "documents_kept": question.documents_kept,
                "basis": question.basis,
            },
            "rows": [self._row(*one) for one in self._rows],
            "thresholds": list(self._thresholds()),
            "recommendation": self._recommendation(),
            "measured": self._measured,
            "memory_server": None if self._measured is None else self._measured["server"],
            "exact_limits": [self._exact_limit(limit) for limit in self._exact_limits],
            "warnings": [
                *warnings(row, study, texts.boilerplate, question.documents_kept, exact_limit=profile.exact_limit),
                *texts.warnings,
                *self._warnings,
            ],
            "similarities": [
                {"from": at / BINS, "to": (at + 1) / BINS, "pairs": round(float(count))}
                for at, count in enumerate(study.histogram)
                if (at + 1) / BINS > min(question.thresholds) + 1e-9
            ],
            "curve": [
                {"similarity": middle, "found": rate.hits, "pairs": rate.total}
                for middle, rate in study.found_by_similarity(row.banding, _CURVE_BINS)
            ],
            **texts.results,
            **self._examples(),
        }

    def _row(self, row: TuningRow, study: Study) -> dict[str, Any]:
        candidates, documents = row.candidates, self._workload.documents
        size = self._bytes(row, study)
        return {
            "unit": row.options.unit,
            "size": row.options.size,
            "threshold": row.threshold,
            "min_recall": row.min_recall,
            "reached": row.basis,
            "bands": row.banding.bands,
            "rows": row.banding.rows,
            "least_similarity": study.least_similarity(row.threshold),
            "probability_at_threshold": row.banding.probability(study.least_similarity(row.threshold)),
            "pairs": round(row.recall.pairs),
            "expected_recall": row.recall.expected,
            "measured_recall": row.recall.measured,
            "permutations": row.permutations,
            **row.limits._asdict(),
            "found_at_threshold": row.found,
            "found_recall": row.found_share,
            "recall_reached": row.reached,
            "edited_pairs": row.recall.edited.total,
            "edited_pairs_found": row.recall.edited.hits,
            "edited_recall_bounds": row.recall.edited.bounds(),
            "candidates_per_document": _finite(candidates.at(study.documents_count)),
            "candidates_that_stay": _finite(candidates.unrelated.near + candidates.related.at(candidates.collection)),
            "candidates_that_grow_per_million": _finite(candidates.unrelated.per_document * 1e6),
            "candidates_forecast": _finite(candidates.at(documents)),
            "false_candidates_forecast": _finite(candidates.false_at(documents)),
            "bytes_per_document": None if size is None else size / documents,
            "memory_bytes": size,
            "memory_bytes_when_first_filled": self._bytes(row, study, filled_with=documents),
            "documents_per_s": row.documents_per_s,
            "prepare_us": row.prepare_us,
        }

    def _recommendation(self) -> dict[str, Any]:
        (row, study, reason), question, forecast = self._best, self._question, self._forecast
        section = settings_section(question.name, self._profile, row)
        is_timed = self._measured is not None and self._measured["documents"] >= _TIMED_FROM
        if self._measured is not None and is_timed:
            row = row._replace(index_us=max(1e6 / self._measured["documents_per_s"] - row.prepare_us, 0.0))
        return {
            **self._row(row, study),
            "reason": reason,
            "documents_per_s_measured": is_timed,
            "daemons": max(1, math.ceil(question.documents_per_day / DAY_S / (LOAD * row.documents_per_s))),
            "bucket_layout": question.redis.bucket_layout,
            "memory_bytes_by_layout": {
                layout: None if forecast is None else forecast.total(study, row, layout, self._profile.exact_limit)
                for layout in LAYOUTS
            },
            "toml": section,
            "settings_file": section if question.has_servers else f"{SERVERS}\n{section}",
        }

    def _exact_limit(self, limit: int | None) -> dict[str, Any]:
        row, study, _ = self._best
        layout, forecast = self._question.redis.bucket_layout, self._forecast
        size = None if forecast is None else forecast.total(study, row, layout, limit)
        measure = MEASURES[self._profile.similarity]
        return {
            "exact_limit": "none" if limit is None else limit,
            "exact_share": study.exact_share(limit),
            "standard_error": 0.0 if limit is None else measure.standard_error(row.threshold, row.permutations),
            "bytes_per_document": None if size is None else size / self._workload.documents,
            "memory_bytes": size,
        }

    def _thresholds(self) -> Iterator[dict[str, Any]]:
        """Yield each threshold, the highest first, with the pairs that it adds, for the recommended shingles."""
        study, copies = self._best.study, float(self._best.study.distinct.copy_pairs()[0])
        weights = study.counts[:, 0]
        before = 0
        higher = math.inf
        similar = study.pairs.similarities
        for threshold in sorted(self._question.thresholds, reverse=True):
            wanted = study.wanted(threshold)
            pairs = round(copies + float(weights[wanted].sum()))
            added = np.flatnonzero((similar >= threshold) & (similar < higher))
            nearest = added[np.argsort(similar[added], kind="stable")][:_PAIRS].tolist()
            yield {
                "threshold": threshold,
                "pairs": pairs,
                "added": pairs - before,
                "by_containment": round(float(weights[wanted & (similar < threshold)].sum())),
                "examples": [self._example(study, at) for at in nearest],
            }
            before, higher = pairs, threshold

    def _example(self, study: Study, at: int) -> dict[str, Any]:
        """Return a pair of different texts, cut to the words around the first difference."""
        one, other = (int(study.documents[study.distinct.first[side[at]]]) for side in (study.pairs[0], study.pairs[1]))
        similarity = float(study.pairs.similarities[at])
        ids, texts = self._sample.ids, self._sample.texts
        return {"similarity": similarity, **shown_pair(ids[one], texts[one], ids[other], texts[other])}

    def _examples(self) -> dict[str, list[dict[str, Any]]]:
        """Return the largest buckets, and the pairs of different texts nearest to the threshold."""
        row, study, _ = self._best
        ids = [self._sample.ids[number] for number in study.documents[study.distinct.first].tolist()]
        nearest = np.argsort(np.abs(study.pairs.similarities - row.threshold), kind="stable")[:_SHOWN]
        return {
            "buckets": [
                {"band": one.band, "documents": one.documents, "example": ids[one.example]}
                for one in study.largest_buckets(row.banding, _SHOWN)
                if one.documents > 1
            ],
            "borderline": [
                {"left": ids[left], "right": ids[right], "similarity": similarity}
                for left, right, similarity in zip(*(column[nearest].tolist() for column in study.pairs), strict=True)
            ],
        }


def _finite(value: float) -> float | None:
    """Return a number that JSON can represent."""
    return value if math.isfinite(value) else None
