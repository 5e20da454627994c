"""Folders and pages of the benchmarks."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: Results of the benchmarks, as NAME.json.
RESULTS = REPOSITORY / "build" / "bench"
#: The page that shows most of them.
PAGE = REPOSITORY / "docs" / "performance.md"
#: The page that shows those of `benchmarks.quality`.
QUALITY_PAGE = REPOSITORY / "docs" / "quality.md"
#: The page that has the programs of `benchmarks.library`, and shows its results.
LIBRARY_PAGE = REPOSITORY / "docs" / "library.md"
