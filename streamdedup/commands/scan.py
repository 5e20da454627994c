"""``streamdedup scan``: all near-duplicate pairs of files, without any server."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from streamdedup.commands.assembly import decoder_of, detector_options
from streamdedup.commands.completion import profile_names
from streamdedup.commands.output import Output, output_to
from streamdedup.commands.progress import batches, read_with_progress
from streamdedup.corpora import Columns, CorpusReader, Entry
from streamdedup.corpora.detection import Format
from streamdedup.detections import Outcome
from streamdedup.detector import Detector
from streamdedup.errors import SettingsError
from streamdedup.messages import Document
from streamdedup.position import Partition, Position
from streamdedup.settings import Profile, Settings
from streamdedup.settings.units import counted
from streamdedup.store.memory import MemoryBucketStore

#: Documents that are worked on at once.
_BATCH_DOCUMENTS = 500
#: The one partition that all documents of a scan stand in.
_PARTITION = Partition("scan", 0)
#: What a settings file would say for the profiles that need no file.
_PRESETS: dict[str, dict[str, object]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
}


class Pair(NamedTuple):
    """A near-duplicate pair; the ids are sorted."""

    id1: str
    id2: str
    similarity: float
    method: str
    shared_bands: int


class Scan:
    """Finds the pairs of a stream of documents in memory.

    Args:
        profile: How to compare.
        bucket_cap: Most documents in a bucket; None for no limit.
        max_candidates: Most candidates to compare a document with; None for no limit.
    """

    def __init__(self, profile: Profile, *, bucket_cap: int | None = None, max_candidates: int | None = None) -> None:
        capped = profile.model_copy(update={"max_candidates": max_candidates})
        self._store = MemoryBucketStore(bucket_cap=bucket_cap)
        self._store.open(profile.fingerprint())
        self._fence = self._store.fence(_PARTITION, 0, 0)
        self._detector = Detector(detector_options("scan", capped), self._store)
        self.documents_count = 0
        self.skipped: Counter[str] = Counter()

    def pairs(self, documents: Iterable[Document]) -> Iterator[Pair]:
        """Yield the pairs as they are found."""
        for batch in batches(documents, _BATCH_DOCUMENTS):
            outcome = self._detector.index(self._detector.prepare(batch), {_PARTITION: self._fence})
            # Nothing is replayed here, so what was saved for a replay can go.
            self._store.finish({}, outcome.saved_positions, [self._fence])
            self.documents_count += len(batch)
            self.skipped.update(reason.value for _, reason in outcome.skipped)
            yield from _pairs_of(outcome)


def _pairs_of(outcome: Outcome) -> Iterator[Pair]:
    for detection in outcome.detections:
        for match in detection.matches:
            id1, id2 = sorted((detection.document.id, match.id))
            yield Pair(id1, id2, match.similarity, match.method, match.shared_bands)


def scan_profile(config: Path | None, name: str, overrides: dict[str, Any]) -> Profile:
    """Return the profile to scan with: one of a settings file, or a preset, changed by what the command line says.

    Raises:
        SettingsError: There is no such profile, or an override is wrong.
    """
    given = {f"profiles.{name}.{key}": value for key, value in overrides.items() if value is not None}
    if config is not None:
        settings = Settings.load(config, given)
        if name not in settings.profiles:
            raise SettingsError(f"{config} has no profile {name}; it has {', '.join(sorted(settings.profiles))}")
        return settings.profiles[name]
    if name not in _PRESETS:
        raise SettingsError(f"--profile {name}: without --config it is one of {', '.join(_PRESETS)}")
    preset = {f"profiles.{name}.{key}": value for key, value in _PRESETS[name].items()}
    servers = {"kafka.bootstrap_servers": "localhost:9092", "redis.url": "redis://localhost:6379/0"}
    needed = servers | {f"profiles.{name}.topics": "scan"}
    return Settings.load(None, needed | preset | given, environ={}).profiles[name]


def _documents(
    files: list[str], profile: Profile, corpus_format: Format, columns: Columns, *, skip_unreadable: bool
) -> Iterator[Document]:
    offset = 0
    for file in files:
        reader = CorpusReader(
            file,
            format=corpus_format,
            on_bad="pass" if skip_unreadable else "raise",
            decoder=decoder_of(profile),
            columns=columns,
        )
        for entry in read_with_progress(reader, file):
            if entry.problem is not None:
                typer.echo(f"{entry.file}:{entry.line}: {entry.problem}", err=True)
            elif entry.op != "upsert":
                typer.echo(f"{entry.file}:{entry.line}: op {entry.op} is passed over by scan", err=True)
            else:
                yield _document(entry, offset)
                offset += 1


def _document(entry: Entry, offset: int) -> Document:
    return Document(entry.id, entry.text, Position(*_PARTITION, offset), 0)


def write_pairs(pairs: Iterable[Pair], output: Output, *, as_json: bool) -> None:
    """Write pairs sorted by their ids, one a line."""
    for pair in sorted(pairs):
        line = (
            msgspec.json.encode(pair._asdict()).decode()
            if as_json
            else f"{pair.id1}\t{pair.id2}\t{pair.similarity:.6f}"
        )
        output.write(line + "\n")


def scan(  # noqa: PLR0913  a command line has as many options as it has
    files: Annotated[
        list[str], typer.Argument(help="Corpora: JSON lines, CSV, TSV, plain text, Reuters-21578; - for stdin.")
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write the pairs; standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON lines instead of tab-separated values.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Take the profile from this settings file.")
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            help="articles (words), reviews (characters), or one of --config.",
            autocompletion=profile_names,
        ),
    ] = "articles",
    threshold: Annotated[
        float | None, typer.Option("--threshold", "-t", help="Least similarity, above 0 up to 1.")
    ] = None,
    min_recall: Annotated[float | None, typer.Option(help="Least share of the pairs at the threshold to find.")] = None,
    unit: Annotated[str | None, typer.Option(help="Shingles of: word, char.")] = None,
    size: Annotated[int | None, typer.Option(help="Words or characters in a shingle.")] = None,
    similarity: Annotated[str | None, typer.Option(help="Jaccard similarity of: set, bag.")] = None,
    exact_limit: Annotated[
        str | None, typer.Option(help="Distinct shingles up to which texts are compared exactly, or none.")
    ] = None,
    min_words: Annotated[int | None, typer.Option(help="Skip texts with fewer words.")] = None,
    short_texts: Annotated[str | None, typer.Option(help="Texts shorter than a shingle: whole, skip.")] = None,
    letters_only: Annotated[
        bool | None, typer.Option("--letters-only/--keep-digits", help="Drop digits, or keep them.")
    ] = None,
    stop_words: Annotated[str | None, typer.Option(help="Words to leave out: none, english, or a file.")] = None,
    id_field: Annotated[
        str | None, typer.Option("--id-field", "--id-column", help="Field or column of the id.")
    ] = None,
    text_field: Annotated[
        list[str] | None,
        typer.Option("--text-field", "--text-column", help="Field or column of the text; may be repeated."),
    ] = None,
    corpus_format: Annotated[Format, typer.Option("--format", help="What the files hold.")] = "auto",
    skip_unreadable: Annotated[bool, typer.Option(help="Report lines that cannot be read and go on.")] = False,
) -> None:
    """Find all near-duplicate pairs of files; needs no server.

    Writes a line for each pair, sorted: id, id, similarity, separated by tabs. A summary goes to standard error.

    Example:  streamdedup scan articles.jsonl.gz --threshold 0.7 --output pairs.tsv
    """
    overrides = {
        "threshold": threshold,
        "min_recall": min_recall,
        "shingle_unit": unit,
        "shingle_size": size,
        "similarity": similarity,
        "exact_limit": exact_limit if exact_limit in (None, "none") else _whole("--exact-limit", exact_limit),
        "min_words": min_words,
        "short_texts": short_texts,
        "letters_only": letters_only,
        "stop_words": stop_words,
        "id_field": id_field,
        "text_fields": text_field or None,
    }
    chosen = scan_profile(config, profile, overrides)
    caps = {"bucket_cap": chosen.bucket_cap, "max_candidates": chosen.max_candidates} if config is not None else {}
    started = time.perf_counter()
    with output_to(output) as target:
        work = Scan(chosen, **caps)
        columns = Columns(id_field, tuple(text_field or ()), tables_only=False)
        documents = _documents(files, chosen, corpus_format, columns, skip_unreadable=skip_unreadable)
        pairs = list(work.pairs(documents))
        write_pairs(pairs, target, as_json=as_json)
    _summarise(work, len(pairs), chosen, time.perf_counter() - started)


def _whole(option: str, text: str | None) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise SettingsError(f"{option} {text}: must be a whole number or none") from None


def _summarise(work: Scan, pairs_count: int, profile: Profile, seconds: float) -> None:
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in sorted(work.skipped.items())) or "none"
    typer.echo(
        f"{counted(work.documents_count, 'document')}, skipped: {skipped}; {counted(pairs_count, 'pair')} with "
        f"similarity of at least {profile.threshold:g}; {profile.banding()}; {seconds:.1f} s",
        err=True,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(scan)
