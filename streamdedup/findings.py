"""Results of checks: what is fine, what deserves a warning, and what keeps the daemon from working, each with its cure.

A check yields findings instead of raising, so that one failure does not hide the next. ``streamdedup check`` prints all
of them; ``streamdedup run`` raises the first failure and logs the warnings.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from streamdedup.errors import FatalError, StreamdedupError


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        check: Stable name of the check, such as ``topic_retention``.
        subject: What was checked: a topic, a server, a profile.
        level: How the check ended.
        text: A sentence for the operator; names the subject and, for a problem, what to change. Holds no secret.
        command: A command line that cures the problem and can be pasted into a shell, or None.
        error: What ``run`` raises for a failure; None for the other levels.
    """

    check: str
    subject: str
    level: Level
    text: str
    command: str | None = None
    error: type[StreamdedupError] | None = None

    @classmethod
    def ok(cls, check: str, subject: str, text: str) -> Self:
        """Return a finding without a problem."""
        return cls(check, subject, Level.OK, text)

    @classmethod
    def warning(cls, check: str, subject: str, text: str, command: str | None = None) -> Self:
        """Return a problem with which the daemon works."""
        return cls(check, subject, Level.WARNING, text, command)

    @classmethod
    def failure(cls, check: str, subject: str, error: StreamdedupError, command: str | None = None) -> Self:
        """Return a problem with which the daemon does not work, from the error that it ends with or waits for."""
        return cls(check, subject, Level.FAILED, str(error), command, type(error))

    @property
    def sentence(self) -> str:
        """Text and command as one line."""
        return self.text if self.command is None else f"{self.text}: {self.command}"


def warnings_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the warnings among findings.

    Raises:
        StreamdedupError: For failures: the error of one that no waiting cures, else of the first; a line for each.
    """
    found = list(findings)
    failures = [(finding.error, finding.sentence) for finding in found if finding.error is not None]
    if failures:
        final = [(error, text) for error, text in failures if issubclass(error, FatalError)]
        chosen = final or failures
        raise chosen[0][0]("\n".join(text for _, text in chosen))
    return [finding for finding in found if finding.level is Level.WARNING]
