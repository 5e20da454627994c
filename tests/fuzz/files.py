"""Files that users write: settings and corpora, damaged. Documented errors only, and no secret in them."""

import gzip
import io
import json
import random
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

from streamdedup.corpora import Columns, CorpusReader
from streamdedup.errors import CorpusError, SettingsError
from streamdedup.position import Position
from streamdedup.settings import Profile, Settings, show
from streamdedup.settings.schema import SECTIONS
from streamdedup.wire import Decoder
from tests.fuzz.messages import WORDS
from tests.fuzz.mutation import mutated
from tests.fuzz.stored import Undocumented

#: Stands where secrets stand; never in a message.
SECRET = "kestrel-7-canary"
VALID = f"""
[kafka]
bootstrap_servers = ["one:9092", "two:9092"]
group_id = "streamdedup"
delivery = "exactly-once"
batch_records = 500
session_timeout = "45s"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "daemon"
sasl_password = "{SECRET}"

[redis]
url = "redis://user:{SECRET}@localhost:6379/0"
timeout = "2s"
shards = 1

[service]
metrics_port = 9464
dead_letter_limit = "none"
log_format = "json"

[profiles.articles]
topics = ["articles"]
shingle_unit = "word"
shingle_size = 3
threshold = 0.8
min_recall = 0.99
bands = 9
rows = 4
retention = "30d"
exact_limit = 512
stop_words = "english"

[profiles.reviews]
topics = "reviews, more"
shingle_unit = "char"
text_fields = ["title", "text"]
bucket_cap = "none"
"""
_VALUES = (
    '""',
    '"none"',
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "9" * 30,
    "0.5",
    "true",
    "[]",
    "[1, {}]",
    "{}",
    '{ a = "b" }',
    '"30d"',
    '"1e9d"',
    '"٣d"',
    '"999999999999999d"',
    '"\\u0000"',
    '"a\\nb"',
    "1979-05-27T07:32:00Z",
    "07:32:00",
    '"localhost:99999"',
    '["a", "a"]',
    '"english"',
    '"redis://[::1"',
    '"redis://h:x/0"',
    '"rediss://u:p@h/99"',
    '"unix:///s?db=x"',
    '"' + "x" * 3_000 + '"',
)
_FIELDS = "id,text,source,published_at"


def fuzz_settings(seed: str, count: int, folder: Path) -> Counter[str]:
    """Load ``count`` damaged settings.

    Returns:
        How many were refused, and how many taken.

    Raises:
        Undocumented: One did neither, or a message was wrong.
    """
    rng = random.Random(seed)
    path = folder / "streamdedup.toml"
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        data = _settings(rng)
        path.write_bytes(data)
        outcomes[f"settings {_load(path, _environment(rng), data)}"] += 1
    return outcomes


def _load(path: Path, environ: dict[str, str], data: bytes) -> str:
    try:
        loaded = Settings.load(path, environ=environ)
        list(loaded.hints())
        text = "\n".join(map(str, show(loaded)))
        outcome = "taken"
    except SettingsError as error:
        text = str(error)
        outcome = "refused"
        if not text.strip() or "Traceback" in text or "pydantic" in text:
            raise Undocumented("settings", data, f"the message says nothing: {text!r} {environ}") from error
    except Exception as error:
        raise Undocumented("settings", data, f"{type(error).__name__} {error} {environ}") from error
    # The damage may move the secret to where none is expected; only whole lines that still stand are looked at.
    if SECRET in text and _stands_whole(data):
        raise Undocumented("settings", data, f"a secret is shown: {text}")
    return outcome


def _stands_whole(data: bytes) -> bool:
    lines = VALID.encode().splitlines()
    secret = [line for line in data.splitlines() if SECRET.encode() in line]
    return all(line in lines for line in secret)


def _settings(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return mutated(rng, VALID.encode())
    if kind == 1:
        return _toml(_tree(rng, 3)).encode()
    lines = VALID.splitlines()
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(lines))
        name, equals, _ = lines[at].partition(" = ")
        change = rng.randrange(4)
        if change == 0 and equals:
            lines[at] = f"{name} = {rng.choice(_VALUES)}"
        elif change == 1 and equals:
            lines[at] = f"{rng.choice(_keys())} = {rng.choice(_VALUES)}"
        elif change == 2:
            del lines[at]
        else:
            lines.insert(at, f"{rng.choice(_keys())} = {rng.choice(_VALUES)}")
    return "\n".join(lines).encode()


def _keys() -> list[str]:
    sections = [*SECTIONS.values(), Profile]
    return [key for section in sections for key in section.model_fields] + ["bogus", '"a.b"', '""', "kafka", "profiles"]


def _environment(rng: random.Random) -> dict[str, str]:
    if rng.random() < 0.6:
        return {}
    names = (
        "STREAMDEDUP_KAFKA__GROUP_ID",
        "STREAMDEDUP_REDIS__URL",
        "STREAMDEDUP_PROFILES__ARTICLES__THRESHOLD",
        "STREAMDEDUP_",
        "STREAMDEDUP_PROFILES__X__TOPICS",
        "STREAMDEDUP_KAFKA",
        "STREAMDEDUP_PROFILES",
        "STREAMDEDUP_PROFILES__",
        "STREAMDEDUP___",
        "STREAMDEDUP_REDIS__PASSWORD_FILE",
        "STREAMDEDUP_SERVICE__METRICS_PORT__X",
        "STREAMDEDUP_KAFKA__SASL_PASSWORD_FILE",
    )
    return {rng.choice(names): rng.choice(_VALUES).strip('"') for _ in range(rng.choice((1, 3)))}


def _tree(rng: random.Random, depth: int) -> dict[str, Any]:
    names = ("kafka", "redis", "service", "profiles", "articles", *rng.sample(_keys(), 4))
    return {
        name.strip('"'): _tree(rng, depth - 1) if depth and rng.random() < 0.6 else rng.choice(_VALUES)
        for name in rng.sample(names, rng.randrange(1, 6))
    }


def _toml(tree: dict[str, Any]) -> str:
    return "\n".join(f"{json.dumps(name)} = {_inline(value)}" for name, value in tree.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_inline(inner)}" for name, inner in value.items()) + "}"
    return str(value)


# Corpora


def _jsonl(rng: random.Random) -> bytes:
    documents = ({"id": f"d{n}", "text": " ".join(rng.choices(WORDS, k=8))} for n in range(5))
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in documents)


def _table(rng: random.Random, mark: str) -> bytes:
    rows = [_FIELDS.replace(",", mark)]
    rows += [mark.join((f"d{n}", '"a ""b""\nc"', "", " ".join(rng.choices(WORDS, k=3)))) for n in range(5)]
    return "\r\n".join(rows).encode()


def _sgml(rng: random.Random) -> bytes:
    articles = "".join(
        f'<REUTERS TOPICS="YES" OLDID="{n}" NEWID="{n + 7}">\n<DATE>26-FEB-1987</DATE>\n'
        "<TEXT>&#2;\n<TITLE>A &lt;b></TITLE>\n"
        f"<BODY>{' '.join(rng.choices(WORDS, k=8))}&#3;</BODY></TEXT>\n</REUTERS>\n"
        for n in range(3)
    )
    return f'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n{articles}'.encode()


def _tar(rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("reut2-000.sgm", "notes.txt", "reut2-001.sgm"):
            content = _sgml(rng)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


CORPORA = {
    "corpus.jsonl": _jsonl,
    "corpus.csv": lambda rng: _table(rng, ","),
    "corpus.tsv": lambda rng: _table(rng, "\t"),
    "corpus.txt": lambda rng: b"\n".join(" ".join(rng.choices(WORDS, k=6)).encode() for _ in range(5)),
    "corpus.sgm": _sgml,
    "corpus.tar": _tar,
}
_FORMATS = (*("auto",) * 15, "jsonl", "csv", "tsv", "text", "reuters")


def fuzz_corpora(seed: str, count: int, folder: Path) -> Counter[str]:
    """Read ``count`` damaged files of each format.

    Returns:
        By format, how many were refused, and how many read; and how many of their entries were no documents.

    Raises:
        Undocumented: Another error, or an entry that is neither a document nor a problem.
    """
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for name, make in CORPORA.items():
        examples = [make(rng) for _ in range(5)]
        for _ in range(count):
            data = mutated(rng, rng.choice(examples), examples) if rng.random() < 0.8 else rng.choice(examples)
            if rng.random() < 0.4:
                data = gzip.compress(data, 1, mtime=0)
                data = mutated(rng, data, [data]) if rng.random() < 0.7 else data
            path = folder / name
            path.write_bytes(data)
            outcomes.update(_read_corpus(rng, path, data))
    return outcomes


def _read_corpus(rng: random.Random, path: Path, data: bytes) -> Counter[str]:
    options: dict[str, Any] = {
        "format": rng.choice(_FORMATS),
        "on_bad": rng.choice(("raise", "pass")),
        "columns": rng.choice((Columns(), Columns(), Columns(text=("source",)), Columns(id="text"))),
    }
    kind = path.suffix
    try:
        entries = list(CorpusReader(path, **options))
    except CorpusError as error:
        if str(path) not in str(error) or "\n" in str(error):
            raise Undocumented(
                kind, data, f"the message does not name the file in one line: {error} {options}"
            ) from error
        return Counter({f"corpus {kind} refused": 1})
    except Exception as error:
        raise Undocumented(kind, data, f"{type(error).__name__} {error} {options}") from error
    for entry in entries:
        if entry.problem is None:
            # What is sent for it is a document again, or is refused with a reason when it was no document's line.
            assert entry.key is not None
            document = Decoder().decode(Position("corpus", 0, 0), 0, entry.key, entry.value())
            if (document.id, document.text) != (entry.id, entry.text if entry.op != "delete" else ""):
                raise Undocumented(kind, data, f"{entry} is sent as {document}")
        elif entry.text or entry.code is None:
            raise Undocumented(kind, data, f"{entry} is neither a document nor none")
    problems = sum(entry.problem is not None for entry in entries)
    return Counter(
        {f"corpus {kind} read": 1, "corpus entries with a problem": problems, "corpus entries": len(entries)}
    )
