"""``Finding``: the result of a check: ok, a warning, or a failure that keeps the daemon from working.

The checks of ``cli.checks``, ``kafka.admin`` and ``index.redis.checks`` yield findings instead of raising, so that a
failure does not hide the next. ``streamdedup check`` prints all; ``streamdedup run`` raises one error for the failures
(``warnings_or_raise``) and logs the warnings.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from streamdedup.errors import FatalError, SettingsError, StreamdedupError


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    ``text`` is a sentence for the operator, which names the object and, for a problem, the cure; it has no secret.
    ``command`` is a command line that cures the problem, for a shell. ``error`` is what ``run`` raises for a failure.
    """

    check: str
    level: Level
    text: str
    command: str | None = None
    error: type[StreamdedupError] | None = None

    @classmethod
    def ok(cls, check: str, text: str) -> Self:
        return cls(check, Level.OK, text)

    @classmethod
    def warning(cls, check: str, text: str, command: str | None = None) -> Self:
        """Return a finding for a problem that lets the daemon work."""
        return cls(check, Level.WARNING, text, command)

    @classmethod
    def failure(cls, check: str, error: StreamdedupError, command: str | None = None) -> Self:
        """Return a finding for a problem that keeps the daemon from working, from its error."""
        return cls(check, Level.FAILED, str(error), command, type(error))

    @property
    def sentence(self) -> str:
        return self.text if self.command is None else f"{self.text}: {self.command}"


def warnings_or_raise(findings: Iterable[Finding]) -> list[Finding]:
    """Return the warnings among findings; if there are failures, raise one error for them instead.

    The error has a line for each lasting failure; if all failures are temporary, for each of them. Its class is that of
    the first line.
    """
    findings = list(findings)
    failures = [(finding.error, finding.sentence) for finding in findings if finding.error is not None]
    if failures:
        lasting = [(error, text) for error, text in failures if issubclass(error, FatalError | SettingsError)]
        worst = lasting or failures
        error_class, _ = worst[0]
        raise error_class("\n".join(text for _, text in worst))
    return [finding for finding in findings if finding.level is Level.WARNING]
