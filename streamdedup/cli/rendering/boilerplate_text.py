"""The ``streamdedup stop-shingles`` report: templates, and the pairs that they cause."""

from collections.abc import Sequence
from typing import Final

from streamdedup.cli.rendering.terminal import printable
from streamdedup.settings.units import counted
from streamdedup.tuning.boilerplate import Boilerplate, BoilerplateStudy

#: Characters of a template.
_TEMPLATE_CHARS: Final = 90
#: Sources of a template that are named.
_SOURCES_COUNT: Final = 3


def boilerplate_text(study: BoilerplateStudy, threshold: float, read_count: int, shown_count: int) -> str:
    """Return a report about boilerplate: pairs before and after, and at most so many templates.

    Args:
        study: The boilerplate.
        threshold: Least pair similarity.
        read_count: Documents that were read for the sample.
        shown_count: Templates to show.
    """
    change = study.change
    sampled = f"{study.documents:,} of {read_count:,} documents" if study.documents < read_count else "all documents"
    before = f"pairs with similarity of at least {threshold:g} in {sampled}: {change.before:,}"
    after = f"without the stop shingles {change.after:,}: {change.lost:,} fewer, {change.gained:,} more"
    lines = [f"{before}; {after}; they are {study.removed_share:.1%} of all shingles"]
    lines += [template_text(template) for template in study.templates[:shown_count]]
    if len(study.templates) > shown_count:
        rest = study.templates[shown_count:]
        lines.append(f"further templates: {len(rest):,}, of {counted(rest[0].pairs, 'pair')} or fewer each")
    if study.unexplained:
        lines.append(f"pairs that only several templates together, or further ones, cause: {study.unexplained:,}")
    return "\n".join(lines)


def template_text(template: Boilerplate) -> str:
    """Return a line about a template."""
    text = template.text if len(template.text) <= _TEMPLATE_CHARS else f"{template.text[:_TEMPLATE_CHARS]}..."
    documents = f"{counted(template.documents, 'document')}, {template.share:.1%} of {sources_text(template.sources)}"
    return f"template: causes {counted(template.pairs, 'pair')}; in {documents}: {printable(text)}"


def sources_text(sources: Sequence[str]) -> str:
    """Return source names, only the first of many; all documents where there is none."""
    shown = ", ".join(sources[:_SOURCES_COUNT]) or "all documents"
    return printable(shown if len(sources) <= _SOURCES_COUNT else f"{shown} and {len(sources) - _SOURCES_COUNT} more")
