"""Writes the tables and the vectors of docs/format.md, and its example.

    .venv/bin/python -m tests.format_vectors

The vectors have only characters that Unicode 13 has, so that every implementation of today has their properties: drawn
characters are those of Unicode 3.2, which Python knows beside its own version; `LATER` has the others.
"""

import json
import random
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np

from streamdedup.detection.model import Skip
from streamdedup.detection.preparation import Preparer
from streamdedup.index.entries import encode_entries
from streamdedup.index.redis.keys import Keys
from streamdedup.index.sketch_codec import encode_sketches
from streamdedup.indexes import detector_options
from streamdedup.position import Position
from streamdedup.settings.validation import read_profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.folding import FoldOptions, compatible, replacements
from streamdedup.text.markup import without_urls
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_words import ENGLISH_STOP_WORDS
from streamdedup.text.tokens import ElementReader
from streamdedup.text.unicode_ranges import APOSTROPHE_RANGES, FOLDED_MARKS_RANGES, IGNORED_RANGES, SOLO_RANGES
from streamdedup.wire import Document
from tests.folded_text import folded_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "format.md"
TABLES = ROOT / "streamdedup" / "sample" / "format_tables.txt"
VECTORS = ROOT / "streamdedup" / "sample" / "vectors.jsonl"
EXAMPLE = re.compile(r"(<!-- example -->\n\n```text\n).*?(```\n)", re.DOTALL)

PROFILE, TOPIC, PARTITION, TIME_MS, PREFIX = "articles", "articles", 3, 1_767_225_600_000, "sd"

# The tables.

HEAD = """\
# Tables of docs/format.md. Code points are hexadecimal; FIRST LAST is a range with both ends.
# unicode = {version}
# Derived from the Unicode Character Database, Copyright 1991-2026 Unicode, Inc., SPDX-License-Identifier: Unicode-3.0,
# see LICENSE-UNICODE."""


def tables():
    """Return the content of the file of tables, for the Unicode of the running Python."""
    kinds = [unicodedata.category(chr(point)) for point in range(0x110000)]
    apostrophes = points_of(APOSTROPHE_RANGES)
    replaced = replacements(FoldOptions())
    simplified = {old: new for old, new in replacements(FoldOptions(marks=True)).items() if old not in replaced}
    classes = {
        "letter": {point for point, kind in enumerate(kinds) if kind[0] == "L"} - apostrophes,
        "mark": {point for point, kind in enumerate(kinds) if kind[0] == "M"},
        "number": {point for point, kind in enumerate(kinds) if kind[0] == "N"},
        "ignored": {point for point, kind in enumerate(kinds) if kind == "Cf"} | points_of(IGNORED_RANGES),
        "folded_mark": {point for point in points_of(FOLDED_MARKS_RANGES) if kinds[point][0] == "M"},
        "spaced": {point for point in range(0x10000) if compatible(chr(point)) == " "} - {0x20},
        "solo": points_of(SOLO_RANGES),
    }
    casefold = {c: folded for c in map(chr, range(0x110000)) if (folded := c.casefold()) != c}
    lines = [HEAD.format(version=unicodedata.unidata_version)]
    lines += [f"{name} {first:04X} {last:04X}" for name, points in classes.items() for first, last in ranges_of(points)]
    for name, mapping in {"casefold": casefold, "replaced": replaced, "simplified": simplified}.items():
        lines += [" ".join([name, *(f"{ord(c):04X}" for c in old + new)]) for old, new in mapping.items()]
    return "\n".join([*lines, *(f"stop_word {word}" for word in sorted(ENGLISH_STOP_WORDS))]) + "\n"


def points_of(ranges):
    return {point for first, last in ranges for point in range(first, last + 1)}


def ranges_of(points):
    ordered = sorted(points)
    firsts = [point for point in ordered if point - 1 not in points]
    return zip(firsts, [point for point in ordered if point + 1 not in points], strict=True)


# The values of a text.


def values(keys, identifier, text, *, scope=None, shards=1, offset=0):
    """Return the value of each step for a text, by the code of the daemon; nothing is shortened."""
    keys = {"bands": 9, "rows": 4} | keys  # the choice for the default recall, which takes longer than all steps
    stops = frozenset(int(stop, 16) for stop in keys.pop("stop_shingles", ()))
    profile = read_profile(keys | ({"scope_field": "scope"} if scope else {}) | {"label_bytes": 0}, set(ALLOWED))
    options = detector_options(PROFILE, profile)
    options = replace(options, shingles=replace(options.shingles, stop_shingles=stops))
    preparer = Preparer(options)
    document = Document(identifier, text, Position(TOPIC, PARTITION, offset), TIME_MS + offset, scope=scope)
    prepared = preparer.prepare([document])
    (entry,), band_keys = prepared.entries, prepared.band_keys
    hashes = preparer.shingler.shingle([text]).hashes
    index_keys = Keys(f"{PREFIX}:{PROFILE}", options.banding.bands, shards)
    slots = [slot for slot, _, _ in index_keys.split_band_keys(band_keys)]
    return text_values(options.shingles, text) | {
        "token_count": entry.content.token_count,
        "element_count": entry.content.element_count,
        "shingles": hexadecimal(hashes),
        "signature": hexadecimal(preparer.sketcher.family.sign(hashes, np.array([0, len(hashes)]))[0]),
        "band_keys": hexadecimal(band_keys[0]),
        "slots": slots,
        "skipped": {Skip.EMPTY: "empty", Skip.TOO_SHORT: "too_short", None: None}[prepared.skips.get(0)],
        "number": str(entry.number),
        "digest": entry.digest.hex(),
        "sketch": encode_sketches([entry.content.sketch])[0].hex(),
        "entry": encode_entries([entry])[0].hex(),
        "entry_key": index_keys.entry(entry.number).hex(),
    }


ALLOWED = (
    *("shingle_unit", "shingle_size", "letters_only", "fold_marks", "fold_variants", "fold_look_alikes", "keep_urls"),
    *("stop_words", "keep_white_space", "similarity", "short_texts", "permutations", "bands", "rows", "seed"),
    *("exact_limit", "scope_field", "label_bytes"),
)


def text_values(shingles, text):
    """Return the steps that a batch keeps no trace of: folded text, tokens and hashes of the elements."""
    text = text if shingles.keep_urls else without_urls(text)
    folding = FoldOptions(shingles.fold_marks, shingles.fold_variants, shingles.fold_look_alikes)
    reader = ElementReader(shingles.unit, shingles.letters_only, shingles.keep_white_space, folding)
    elements = reader.read([text], ascii_only=text.isascii())
    folded = folded_text(
        text,
        letters_only=shingles.letters_only,
        fold_marks=shingles.fold_marks,
        fold_variants=shingles.fold_variants,
        fold_look_alikes=shingles.fold_look_alikes,
    )
    written, spans = replace(reader, unit="word").spans(text)
    hashes = [f"{value:016x}" for value in elements.hashes.tolist()]
    return {"folded": folded, "tokens": [written[start:end] for start, end in spans], "elements": hashes}


def hexadecimal(numbers):
    return [f"{number:08x}" for number in numbers.tolist()]


#: Longest values that are written as they are: list items, code points, hexadecimal digits.
LONGEST_LIST, LONGEST_TEXT, LONGEST_HEX = 12, 200, 256
#: Values that are bytes in hexadecimal.
BYTES = {"digest", "sketch", "entry", "entry_key"}


def shortened(name, value):
    """Return a value as a vector has it: a long one as its size and CRC-32."""
    if isinstance(value, list) and len(value) > LONGEST_LIST and name != "slots":
        data = "\n".join(value).encode() if name == "tokens" else b"".join(bytes.fromhex(x)[::-1] for x in value)
        return {"count": len(value), "first": value[0], "crc32": f"{crc32(data):08x}"}
    if name in BYTES and len(value) > LONGEST_HEX:
        return {"count": len(value) // 2, "crc32": f"{crc32(bytes.fromhex(value)):08x}"}
    if name == "folded" and len(value) > LONGEST_TEXT:
        return {"count": len(value), "crc32": f"{crc32(value.encode()):08x}"}
    return value


# The texts.

#: Sentences by script.
SENTENCES = {
    "Latin": "The ferry to Kestrel Bay didn't run in May: 35 minutes, £4.50, and a café on deck 2.",
    "German": "Straßenbahnen, Fähren und Züge: größer, öfter, später? „Gibt´s heute nicht“, sagt die Wärterin.",
    "Turkish": "İstanbul'da IŞIK sönünce kıyıdaki İNCİ balıkçılar ağlarını topladı.",
    "Vietnamese": "Chuyến phà cuối cùng rời bến lúc nửa đêm, trời mưa rất to và gió thổi mạnh.",
    "Romanian": "Știri și prețuri: țara așteaptă vapoare noi în județul Constanța.",
    "Greek": "Το ΠΛΟΙΟ φεύγει από τον Πειραιά στις ὀκτὼ τὸ πρωΐ· κόστος 12€, ὁδὸς Ἀθηνᾶς.",
    "Cyrillic": "Паром відходить о п'ятій, а м’яка погода обіцяє їм спокійний шлях ёлка ЙОД.",
    "Armenian": "Նավը մեկնում է առավոտյան ժամը ութին և վերադառնում է երեկոյան։",
    "Georgian": "გემი დილით ცხრა საათზე გადის და საღამოს ბრუნდება ნავსადგურში.",
    "Hebrew": "הַסְּפִינָה יוֹצֵאת מן הנמל בשעה 8 וחוזרת בערב, אם הים שקט.",
    "Arabic": "تُبحِرُ السَّفينة في الثامنة صباحًا، وتعود مســاءً عند هدوء البحر ١٢ مرة لأن الأمواج عالية.",
    "Persian": "کشتی ساعت ۸ صبح از بندر می‌رود و شب برمی‌گردد، این بار با یک کتابِ تازه.",
    "Syriac": "ܐܠܦܐ ܢܦܩܐ ܒܨܦܪܐ ܘܗܦܟܐ ܒܪܡܫܐ ܠܡܐܢܐ.",
    "Thaana": "ބޯޓު ހެނދުނު ފުރާނެއެވެ އަދި ރޭގަނޑު އަންނާނެއެވެ.",
    "Devanagari": "नाव सुबह आठ बजे चलती है और शाम को लौटती है; किराया १२ रुपये, ज़रूर आइए।",
    "Bengali": "নৌকাটি সকাল আটটায় ছাড়ে এবং সন্ধ্যায় ফিরে আসে, ভাড়া ৫ টাকা।",
    "Gurmukhi": "ਬੇੜੀ ਸਵੇਰੇ ਅੱਠ ਵਜੇ ਚੱਲਦੀ ਹੈ ਅਤੇ ਸ਼ਾਮ ਨੂੰ ਮੁੜਦੀ ਹੈ।",
    "Tamil": "படகு காலை எட்டு மணிக்குப் புறப்பட்டு மாலையில் திரும்புகிறது.",
    "Telugu": "పడవ ఉదయం ఎనిమిది గంటలకు బయలుదేరి సాయంత్రం తిరిగి వస్తుంది.",
    "Malayalam": "വള്ളം രാവിലെ എട്ടിന് പുറപ്പെട്ട് വൈകിട്ട് മടങ്ങിവരും.",
    "Sinhala": "බෝට්ටුව උදේ අටට පිටත් වී සවසට ආපසු එයි.",
    "Thai": "เรือออกจากท่าเวลาแปดโมงเช้า และกลับมาตอนเย็น ค่าโดยสาร ๒๐ บาท น้ำขึ้นสูง",
    "Lao": "ເຮືອອອກຈາກທ່າຕອນເຊົ້າ ແລະກັບມາຕອນແລງ ນ້ຳຂຶ້ນ",
    "Khmer": "ទូកចេញដំណើរនៅម៉ោងប្រាំបីព្រឹក ហើយត្រឡប់មកវិញនៅពេលល្ងាច។",
    "Burmese": "လှေသည် နံနက်ရှစ်နာရီတွင် ထွက်ခွာပြီး ညနေတွင် ပြန်လာသည်။",
    "Tibetan": "གྲུ་གཟིངས་ཞོགས་པ་ཆུ་ཚོད་བརྒྱད་པར་ཐོན་འགྲོ།",
    "Ethiopic": "ጀልባው፡ከጠዋቱ፡ሁለት፡ሰዓት፡ይነሳል፡እና ማታ ይመለሳል።",
    "Hangul": "배는 아침 여덟 시에 떠나서 저녁에 돌아온다. 요금은 3,000원이다.",
    "Han": "渡輪早上八點開，圖書館旁的码头晚上關閉。票价〇〇七元。",
    "Japanese": "フェリーは朝八時に出て、夕方に戻る。切符はﾊﾟｿｺﾝで２枚買った、コーヒーも。",
    "Mongolian": "ᠤᠰᠤᠨ ᠣᠩᠭᠣᠴᠠ ᠥᠭᠯᠦᠭᠡ ᠭᠠᠷᠤᠨ᠎ᠠ᠃",
    "Cherokee": "ᎠᎹᏱ ᏥᏳ ᏑᎾᎴᎢ ᎠᏂᎩ ᎤᏒᎯ ᎠᎾᎷᎩ.",
}
#: Characters that came after Unicode 3.2, and up to 13.
LATER = {
    "Adlam": "𞤀𞤣𞤤𞤢𞤥 𞤆𞤵𞤤𞤢𞤪 𞤁𞤫𞤪𞤮𞥐",
    "Nko": "ߒߞߏ ߸ ߖߎ߬ߟߊ߲ߘߐߞߏ ߊߟߎ߫ ߴߕߋ ߺߺ ߓߊ",
    "Tangut and Nushu": "𗼇𗟲𖿡𛅰𛅱 𘠀",
    "Tai Tham and Tai Viet": "ᨲ᩠ᩅᩫ ᨾᩮᩬᩥᨦ ꪼꪕ ꪣꪴꪒ",
    "Mtavruli and new Cherokee": "ᲒᲔᲛᲘ გემი ꭰꮉᏹ ᎠᎹᏱ ꭳ",
    "Han beyond the first plane": "𠀀𠮷野家 𪚥 𫠝 𰀀 你",
    "letters of the second plane": "𝐅𝖊𝓇𝕣𝚢 𐐀𐐨 𐓀𐓨 𑣂 𞹏 𝟏𝟚 🅰 😀 👩‍🚀",
    "mixed": "iPhoneを2台 買った😀の件 (A4)ก่อน 中a文 ́x",
}

#: Characters at whose neighbours a folding by character goes wrong.
TRICKY = (
    "eEoOiIaAnN19 .-\n\u0301\u0300\u0323\u0327\u0308\u0345\u0338\u034f\u0316\u20e3\u3099"
    "\u00df\u0130\u0131\u0307\u0149\u0390\u03b0\u1fb3\u03c2\u00b4\u00a8\u00bd\u2026\ufb03\u2460\ufdfa\u0385\u1fbd\u203e"
    "\u1100\u1161\u11a8\uac00\u314b\u3160\uffa0\u1160\u4e2d\u56fd\u306f\u30cf\u30fc\uff8a\uff9e\uff0c\u3002\u3007"
    "\U00020000\U0002f800\u0e40\u0e01\u0e33\u0e34\u0eb3\u1780\u17b4\u1000\u102d\u0915\u093c\u0958\u09c7\u09be\u094d"
    "\u200d\u200c\u00ad\ufe0f\ufeff\u0628\u064e\u0651\u0653\u0627\u0640\ufefb\ufc5e\u05d0\u05b8\ufb1d\u1ebd\u00e9"
    "\u02bc\u02bb\u0219\u021b\u015f\u0456\u043e\u0451\u06cc\u06d5\u06f4\u06a9\u00b5\u212a\u2126\u1e9b\u01c4\u00aa"
)
#: Profiles by turns, for the drawn texts.
PROFILES = (
    {},
    {"shingle_unit": "char"},
    {"shingle_size": 1, "fold_marks": True},
    {"shingle_unit": "char", "shingle_size": 2, "fold_marks": True, "keep_white_space": False},
    {"shingle_size": 2, "fold_variants": True, "fold_look_alikes": True},
    {"shingle_size": 2, "similarity": "bag", "letters_only": True},
    {"shingle_unit": "char", "shingle_size": 3, "fold_look_alikes": True, "fold_marks": True, "fold_variants": True},
)
ALL_FOLDINGS = {"fold_marks": True, "fold_variants": True, "fold_look_alikes": True}
LONG = {"words": 10_000}
LINKS = (
    "See https://example.org/a_(b)?q=1&x=ü#top and WWW.example.org, or [the page](../docs/a-b.md) (not this), "
    "ftp://h/x; xhttp://no mailto:a@b.c"
)
# ruff: noqa: E501  a text a line
#: Name, profile and further fields of the texts with a purpose of their own.
SPECIAL = (
    ("empty", {}, {"text": ""}),
    ("no token", {}, {"text": " .,;!? 😀 \u00ad\u200b\n"}),
    ("no token, characters", {"shingle_unit": "char"}, {"text": "…—"}),
    ("a token", {}, {"text": "Ferry"}),
    ("a token, skipped", {"short_texts": "skip"}, {"text": "Ferry!"}),
    ("a token, whole", {"shingle_unit": "char", "shingle_size": 9}, {"text": " Ferry "}),
    ("two tokens of three, skipped", {"short_texts": "skip"}, {"text": "Ferry boat"}),
    ("tokens of 7, 8, 9, 16, 17 and 70 bytes", {"shingle_size": 1}, {"text": " ".join("x" * n for n in (7, 8, 9, 16, 17, 70))}),
    ("wide tokens of 3, 4, 5, 8, 9 and 60 units", {"shingle_size": 1}, {"text": " ".join("é" * n for n in (3, 4, 5, 8, 9, 60))}),
    ("an ASCII token that folds", {"shingle_size": 1}, {"text": "ﬁne FINE ｆｉｎｅ Kelvin \u212aelvin"}),
    ("set", {"shingle_size": 1}, {"text": "a a a b"}),
    ("bag", {"shingle_size": 1, "similarity": "bag"}, {"text": "a a a b"}),
    ("bag of characters", {"shingle_unit": "char", "shingle_size": 2, "similarity": "bag"}, {"text": "banana banana"}),
    ("bag of words", {"shingle_size": 2, "similarity": "bag"}, {"text": "to be or not to be to be to be"}),
    ("stop words", {"stop_words": "english"}, {"text": "This is the boat that you're to take, and it isn't THE last of them."}),
    ("stop words only", {"stop_words": "english"}, {"text": "and so on, and so on"}),
    ("stop shingles", {"shingle_size": 1, "stop_shingles": ["61aec984"]}, {"text": "a a a b"}),
    ("stop shingles, bag", {"shingle_size": 1, "similarity": "bag", "stop_shingles": ["61aec984"]}, {"text": "a a a b b"}),
    ("stop shingles only", {"shingle_size": 1, "stop_shingles": ["61aec984"]}, {"text": "A a"}),
    ("digits", {}, {"text": "Gate 12, 7 May 2026, 3.5 hours, ② ½ Ⅷ ٣"}),
    ("digits left out", {"letters_only": True}, {"text": "Gate 12, 7 May 2026, 3.5 hours, ② ½ Ⅷ ٣ a1b"}),
    ("digits left out, characters", {"letters_only": True, "shingle_unit": "char"}, {"text": "Gate 12b 一2三〇"}),
    ("links", {}, {"text": LINKS}),
    ("links left out", {"keep_urls": False}, {"text": LINKS}),
    ("links left out, characters", {"keep_urls": False, "shingle_unit": "char"}, {"text": LINKS}),
    ("a link only", {"keep_urls": False}, {"text": "https://example.org/"}),
    ("apostrophes", {}, {"text": "м’ята мʼята м'ята Hawaiʻi Hawaiʼi O‘zbek \u0149 l\u02b9 \ua78c"}),
    ("separators with marks", {}, {"text": "gibt´s gibt's a¨b a\u00a8\u0301b a‾b a¯b a\u00a0b ゛か 한ㆍ중"}),
    ("final consonants", {}, {"text": "അവൻ അവന്\u200d പകൽ ൻ\u0d3c হঠাৎ হঠাত্\u200d \u0259 \u04d8 \u018e ș ş"}),
    ("strokes and digits folded", {"fold_marks": True}, {"text": "Łódź Ørsted Đà cœur Æ Ħ ŧ ٢٠٢٦ २०२६ ۱۴۰۵ ๑๒ Ⅷ"}),
    ("marks kept", {}, {"text": "côte coté IŞIK ışık κοιμᾶται τῷ ﬁ ى ٱ ک"}),
    ("marks folded", {"fold_marks": True}, {"text": "côte coté IŞIK ışık κοιμᾶται τῷ ﬁ ى ٱ ک أ آ が ở"}),
    ("Han variants", {"fold_variants": True, "shingle_size": 1}, {"text": "圖書館 图书馆 図書館 臺台 芸藝"}),
    ("look-alikes", {"fold_look_alikes": True, "shingle_size": 1}, {"text": "раураl ΡΑΥΡΑL ᏢᎪᎩ ѐё νν ﬁ"}),
    ("all foldings", {**ALL_FOLDINGS, "shingle_size": 1}, {"text": "Ёлка圖ΐ ϊ\u0301 ӑ\u0306 ка́к ｶﾞ臺 ѝ"}),
    ("all foldings, characters", {**ALL_FOLDINGS, "shingle_unit": "char"}, {"text": "Ёлка圖ΐ ϊ\u0301 ӑ\u0306 ка́к ｶﾞ臺 ѝ"}),
    ("decomposed", {}, {"text": "e\u0301 o\u0302\u0323 s\u0323\u0307 \u1100\u1161\u11a8 が \u0928\u093c \u01c4"}),
    ("marks in the wrong order", {}, {"text": "a\u0301\u0323 \u0628\u064e\u0651 q\u0307\u0323 x\u0345\u0301"}),
    ("characters without white space", {"shingle_unit": "char", "keep_white_space": False}, {"text": "a b  c, d-e f g"}),
    ("characters with white space", {"shingle_unit": "char"}, {"text": " a b  c, d-e f g "}),
    ("surrogate pairs", {"shingle_unit": "char", "shingle_size": 1}, {"text": "𝐅 𐐀 𠀀 😀 𞤀"}),
    ("63 shingles", {"shingle_size": 1}, {"words": 63}),
    ("64 shingles", {"shingle_size": 1}, {"words": 64}),
    ("65 shingles, estimated", {"shingle_size": 1, "exact_limit": 64}, {"words": 65}),
    ("estimated without hashes", {"exact_limit": 0}, {"text": "five words in this text"}),
    ("empty, estimated without hashes", {"exact_limit": 0}, {"text": "?"}),
    ("5,000 words", {}, {"words": 5_000}),
    ("10,000 words", {}, LONG),
    ("10,000 words, characters", {"shingle_unit": "char"}, LONG),
    ("10,000 words, bag", {"similarity": "bag", "shingle_size": 1}, LONG),
    ("70,000 words", {"exact_limit": "none", "shingle_size": 2}, {"words": 70_000}),
    ("another seed", {"seed": 0}, {"text": SENTENCES["Latin"]}),
    ("the largest seed", {"seed": 2**63 - 1, "permutations": 5, "bands": 5, "rows": 1}, {"text": SENTENCES["Latin"]}),
    ("16 x 6 bands", {"bands": 16, "rows": 6}, {"text": SENTENCES["Latin"]}),
    ("a band", {"bands": 1, "rows": 128}, {"text": SENTENCES["Latin"]}),
    ("shards", {}, {"text": SENTENCES["Latin"], "shards": 8}),
    ("a scope", {}, {"text": SENTENCES["Latin"], "scope": "acme"}),
    ("a scope, wide", {"shingle_unit": "char"}, {"text": SENTENCES["Han"], "scope": "租户-7", "shards": 3}),
    ("an id in Thai", {}, {"text": SENTENCES["Thai"], "id": "เรือ/7"}),
    ("an id with a surrogate pair", {}, {"text": SENTENCES["Latin"], "id": "😀"}),
    ("a shingle of 64", {"shingle_size": 64}, {"words": 100}),
    ("a shingle of a character", {"shingle_unit": "char", "shingle_size": 1}, {"text": SENTENCES["Greek"]}),
)  # fmt: skip


def generated(count):
    """Return the text of so many words that a vector describes by its number of words."""
    return " ".join(f"w{number * number % 9973}" for number in range(count))


def inputs():
    """Return name, profile and further fields of 200 texts."""
    draw = random.Random(7)
    texts = list(SPECIAL)
    for script, sentence in (SENTENCES | LATER).items():
        texts.append((script, {}, {"text": sentence}))
        texts.append((f"{script}, characters", {"shingle_unit": "char"}, {"text": sentence}))
        changed = unicodedata.normalize("NFD", sentence).upper().replace("A", "A\u00ad").replace(" ", " \u200b\u200e")
        texts.append((f"{script}, changed", {**ALL_FOLDINGS, "shingle_size": 2}, {"text": changed}))
    while len(texts) < 200:
        number = len(texts)
        block = draw.choice(list(SENTENCES.values())) if number % 2 else ""
        drawn = "".join(draw.choice(TRICKY + block) for _ in range(draw.randrange(10, 40)))
        texts.append((f"drawn {number}", PROFILES[number % len(PROFILES)], {"text": drawn}))
    assert len(texts) == 200
    return texts


def vectors():
    """Return the content of the file of vectors."""
    lines = []
    for offset, (name, keys, fields) in enumerate(inputs()):
        vector = {"name": name, "profile": keys, "id": f"doc-{offset}", **fields}
        text = vector.get("text", generated(vector.get("words", 0)))
        steps = values(
            keys, vector["id"], text, scope=vector.get("scope"), shards=vector.get("shards", 1), offset=offset
        )
        vector |= {step: shortened(step, value) for step, value in steps.items() if value is not None}
        lines.append(json.dumps(vector, ensure_ascii=False, separators=(",", ":")))
    return "\n".join(lines) + "\n"


# The example of the page.


def example():
    """Return the lines of the example: every step of a text with short values."""
    keys = {"shingle_size": 2, "permutations": 4, "bands": 2, "rows": 2}
    text, identifier = "Straße 7, 東京 straße 7", "doc-1"
    steps = values(keys, identifier, text, offset=17)
    family = HashFamily(4)
    a_first, b_first = ([f"{value:08x}" for value in numbers.tolist()] for numbers in (family.a, family.b))
    in_order = Shingler(ShingleOptions(size=2)).in_order(text)
    number = int(steps["number"]).to_bytes(8, "big", signed=True)
    lines = [
        f"text       {text}",
        f"folded     {steps['folded']}",
        *(f"token      {element}  {token}" for token, element in zip(steps["tokens"], steps["elements"], strict=True)),
        *(f"shingle    {value:08x}  {in_order.text(at, at + 1)}" for at, value in enumerate(in_order.hashes.tolist())),
        f"set        {' '.join(steps['shingles'])}",
        *(f"a, b       {a} {b}  k = {k}" for k, (a, b) in enumerate(zip(a_first, b_first, strict=True))),
        f"signature  {' '.join(steps['signature'])}",
        f"band keys  {' '.join(steps['band_keys'])}",
        f"number     {steps['number']} = {number.hex()} for the id {identifier}",
        f"digest     {steps['digest']}",
        f"sketch     {steps['sketch']}",
        *(f"{'entry' if not at else '':11}{steps['entry'][at : at + 64]}" for at in range(0, len(steps["entry"]), 64)),
        f"entry at   {{sd:articles:{int(steps['number']) % 2}}}r + bytes {number.hex()}",
        *(f"bucket at  {{sd:articles:{band}}}b + bytes {key}" for band, key in enumerate(steps["band_keys"])),
        f"member     {steps['number']}",
    ]
    assert bytes.fromhex(steps["entry_key"]) == b"{sd:articles:%d}r" % (int(steps["number"]) % 2) + number
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render(page):
    """Return the page with the present example."""
    return EXAMPLE.sub(lambda match: match[1] + example() + match[2], page)


def main():
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    TABLES.write_text(tables(), encoding="utf-8")
    VECTORS.write_text(vectors(), encoding="utf-8")


if __name__ == "__main__":
    main()
