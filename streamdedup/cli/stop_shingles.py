"""``streamdedup stop-shingles``: learn boilerplate shingles from a sample, and write them to a file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Final

import typer

from streamdedup.cli.collection import first_of_each_id
from streamdedup.cli.options import OutputOption, ShingleSettings, chosen_profile, with_options
from streamdedup.cli.output import output_to, tell
from streamdedup.cli.rendering.safe_text import printable
from streamdedup.cli.settings_options import load_settings, parse_since
from streamdedup.cli.topic_reading import newest_documents
from streamdedup.corpora import Entry
from streamdedup.counts import counted
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.settings import Profile
from streamdedup.text.shingles import ShingleOptions
from streamdedup.text.stop_learning import DEFAULT_SHARE, Learnt, learn_stop_shingles
from streamdedup.tuning.passages import frequent_passages
from streamdedup.tuning.sample import BoundedTexts

_SHOWN: Final = 20  # most passages of stop shingles that are shown
_SHOWN_CHARS: Final = 90  # most characters of a shown passage
#: Most characters of the texts that are kept to find passages in them; the stop shingles are learnt from all texts.
_MOST_CHARACTERS: Final = 10_000_000


@dataclass(frozen=True)
class LearningOptions(ShingleSettings):
    """Document and shingle options; ``files`` may be empty, for ``--from-topic``."""

    files: Annotated[
        list[str], typer.Argument(default_factory=list, show_default=False, help="Corpora, as of scan; - for stdin.")
    ]


@dataclass(frozen=True)
class TopicOptions:
    """Which records of the input topics to learn from, instead of files."""

    from_topic: Annotated[
        bool, typer.Option("--from-topic", help="Read the input topics of the profile in --config, not files.")
    ] = False
    since: Annotated[str, typer.Option(metavar="TIME", help="With --from-topic: records since 7d, or 2026-05-01.")] = (
        "7d"
    )
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="With --from-topic: at most so many of the newest records.")
    ] = 100_000


@with_options
def stop_shingles(
    options: LearningOptions,
    topic_options: TopicOptions,
    output: OutputOption = None,
    share: Annotated[
        float, typer.Option(help="Least share of the documents that contain a stop shingle, above 0 up to 1.")
    ] = DEFAULT_SHARE,
) -> None:
    """Learn from a sample which shingles are boilerplate that many texts share.

    A stop shingle occurs in at least --share of all documents, or of those of one source. Writes a file for the key
    stop_shingles of a profile, and shows the most frequent passages on standard error.

    Example:  streamdedup stop-shingles sample.jsonl.gz --share 0.05 --output boilerplate.txt

    Example:  streamdedup stop-shingles --from-topic --since 2d --config streamdedup.toml --output boilerplate.txt
    """
    # The profile may already name the output file. A missing one is no mistake, and old stop shingles are learnt again.
    profile = chosen_profile(options, stop_shingles="none")
    shingles = profile.shingle_options()
    texts = BoundedTexts(_MOST_CHARACTERS)  # filled while the documents are read
    documents = _tee_texts(texts, _documents(options, topic_options, profile))
    with output_to(output, options.inputs(profile)) as target:
        try:
            learnt = learn_stop_shingles(documents, shingles, share)
        except ValueError as error:  # only of a share that is out of range or too small
            raise SettingsError(f"--share {share:g}: {error}") from None
        if not learnt.stops.documents_count:
            advice = "; an earlier --since may find some" if topic_options.from_topic else ""
            raise CorpusError(f"{', '.join(options.files or profile.topics)}: no document to learn from{advice}")
        target.write(learnt.stops.encoded())
    tell(_summary(learnt), err=True)
    if learnt.stops.counts:
        tell(_passages_text(texts.texts, learnt.stops.counts, shingles), err=True)


def _documents(
    options: LearningOptions, topic_options: TopicOptions, profile: Profile
) -> Iterator[tuple[str, str | None]]:
    """Return texts and sources from the files or topics; of several documents with one id, the earliest counts."""
    if not topic_options.from_topic:
        if not options.files:
            raise SettingsError("name files, or --from-topic")
        entries: Iterable[Entry] = options.entries(profile, "stop-shingles")
        return ((entry.text, entry.source) for entry in first_of_each_id(entries))
    if options.files:
        raise SettingsError(f"--from-topic reads no files: {', '.join(options.files)}")
    if options.config is None:
        raise SettingsError("--from-topic needs --config, with brokers and a profile")
    since_s = parse_since(topic_options.since)
    # As above: the profile may name the output file.
    no_stops = {f"profiles.{options.profile_name}.stop_shingles": "none"}
    settings = load_settings(options.config, overrides=no_stops)
    documents = newest_documents(settings, profile, since_s, topic_options.limit)
    return ((document.text, document.source) for document in first_of_each_id(documents))


def _tee_texts(texts: BoundedTexts, documents: Iterable[tuple[str, str | None]]) -> Iterator[tuple[str, str | None]]:
    """Yield the documents unchanged, and add each text to ``texts``, which keeps a bounded part."""
    for text, source in documents:
        texts.add(text)
        yield text, source


def _summary(learnt: Learnt) -> str:
    all_documents, *sources = learnt.groups  # the first group is all documents, each further one a source
    stops = counted(len(learnt.stops.counts), "stop shingle")
    documents = counted(all_documents.documents_count, "different document")
    if sources:
        in_all = len(all_documents.counts)
        text = (
            f"{stops}: {in_all:,} in at least {learnt.stops.share:.3g} of all {documents}, "
            f"{len(learnt.stops.counts) - in_all:,} only in at least this share of the documents of one of "
            f"{counted(len(sources), 'source')}"
        )
    else:
        text = f"{stops}, each in at least {learnt.stops.least_documents:,} of {documents}"
    few = f"{counted(learnt.small_sources, 'source')} of fewer than {learnt.least_source_documents:,} documents"
    return f"{text}; {few} passed over" if learnt.small_sources else text


def _passages_text(texts: Sequence[str], counts: Mapping[int, int], options: ShingleOptions) -> str:
    # One passage more than is shown, for the last line. Passages come the most frequent first.
    passages = list(islice(frequent_passages(texts, counts, options), _SHOWN + 1))
    lines = []
    for passage in passages[:_SHOWN]:
        text = passage.text if len(passage.text) <= _SHOWN_CHARS else f"{passage.text[:_SHOWN_CHARS]}..."
        lines.append(f"in {counted(passage.documents, 'document')}: {printable(text)}")
    if len(passages) > _SHOWN:
        lines.append(f"others: in {counted(passages[-1].documents, 'document')} or fewer")
    return "\n".join(lines)
