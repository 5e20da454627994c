"""Texts that look equal, by similarity in shingles of 3 words: by the defaults, and with the key that makes them equal.

Characters that are easily mistaken for others are written as escapes.
"""

import pytest

from streamdedup.text.markup import has_html, html_warning, without_urls
from streamdedup.text.shingles import ShingleOptions, Shingler
from tests.unit import reference_shingles as reference

UKRAINIAN = "П'ятеро м'ясників з Кам'янця об'їхали сім'ю, здоров'я якої п'ять днів пам'ятали в ім'я"
GERMAN = "Hier gibt's was, wenn's regnet, geht's ins Haus, und ich hab's dir gleich gesagt"
GREEK = "δι' αυτού επ' ουδενί μετ' επιτάσεως παρ' όλα αυτά κατ' οίκον αφ' ενός"
PERSIAN = "کتاب های فارسی یکی از زیباترین یادگارهای این کشور کهن است که می‌خوانیم"
URDU = "یہ کتاب بہت اچھی ہے اور ہم نے اسے کل ہی پڑھی ہے کہ یہی کہانی ہے"
TURKISH = "Işıklı ırmağın kıyısında sıcak bir kış ısındı, kızıl balıklar ağır ağır yıkandı"
CITIES = "İstanbul'da İzmir'den İnci İpek ile İsmet İnan, İngiliz İşçi İdaresine İtiraz"
ROMANIAN = "Știrile și prețurile de la București, țara și orașul aștept soluții și înțelegeri în ședință"
MALAYALAM = "അവൻ പറഞ്ഞു അവർ വീട്ടിൽ നിന്നും വന്നു മഴ പെയ്തതിനാൽ യാത്ര വൈകി"
KOREAN = "한·중·일 정상회의 공동선언문 채택, 경제·통상·안보 협력 강화하기로"
AZERBAIJANI = "Əhali yeni qərarı dəstəkləyir, şəhərdə gələn həftə məktəblər bağlanır"
POLISH = "Łódź otwiera nowy ślub, żółty autobus jeździł całą sobotę z głównego placu"
FRENCH = "Le chœur et sa sœur ont l'œil sur un œuf de bœuf, au cœur des vœux"
ARABIC = "افتتح المعرض في 12 مايو 2026 بحضور 350 ضيفا من 27 دولة"
SPAM = "Buy cheap medicines here, no prescription, express delivery to each address, act soon"
SPANISH = "Una canción corta, un avión, un balcón"
SOURCE = "The council closes the old bridge for repairs until the end of May"

#: Texts that are equal by default, one for each kind of difference; `test_text` has all code points.
EQUAL = {
    "Ukrainian, U+02BC": (UKRAINIAN, UKRAINIAN.replace("'", "\u02bc")),
    "a letter with U+02BC": ("sy's \u0149 man se huis \u0149 ou huis", "sy's 'n man se huis 'n ou huis"),
    "German, U+00B4": (GERMAN, GERMAN.replace("'", "\u00b4")),
    "Greek dialytika and tonos, decomposed": (GREEK, GREEK.replace("'", "\u00a8\u0301")),
    "Turkish, I with a dot": (CITIES, CITIES.replace("İ", "i")),
    "Turkish, decomposed": (CITIES.replace("İ", "i"), CITIES.replace("İ", "I\u0307")),
    "Romanian, cedilla": (ROMANIAN, ROMANIAN.translate(str.maketrans("ȘșȚț", "\u015e\u015f\u0162\u0163"))),
    "Malayalam chillus": (MALAYALAM, MALAYALAM.translate({0xD7B: "ന്\u200d", 0xD7C: "ര്\u200d", 0xD7D: "ല്\u200d"})),
    "Korean middle dots": (KOREAN, KOREAN.replace("·", "\u318d")),
    "Azerbaijani, Cyrillic schwa": (AZERBAIJANI, AZERBAIJANI.translate({0x259: "\u04d9", 0x18F: "\u04d8"})),
}

ARABIC_KEYBOARD = str.maketrans("کیہھەۃ", "كيهههة")
CAPITALS = str.maketrans("BEHKMTOA", "\u0412\u0415\u041d\u041a\u041c\u0422\u039f\u0391")
LOOK_ALIKES = str.maketrans("aceopxy", "асеорху")

#: Texts, the key that makes them equal, and the similarity without it.
KEYED = {
    "Persian, Arabic keyboard": (PERSIAN, PERSIAN.translate(ARABIC_KEYBOARD), "fold_marks", 0.0),
    "Persian, yeh without dots": (PERSIAN, PERSIAN.replace("ی", "\u0649"), "fold_marks", 0.1),
    "Persian digits": ("سال ۱۴۰۴ و ۱۴۰۵ در ماه ۶", "سال ١٤٠٤ و ١٤٠٥ در ماه ٦", "fold_marks", 0.0),
    "Urdu, Arabic keyboard": (URDU, URDU.translate(ARABIC_KEYBOARD), "fold_marks", 0.0),
    "Kurdish, heh": ("ئەم کتێبە باشە", "ئه‌م كتێبه باشه", "fold_marks", 0.0),
    "Arabic, alef wasla": ("في ٱلكتاب وٱلقلم", "في الكتاب والقلم", "fold_marks", 0.0),
    "Turkish, no dotless i": (TURKISH, TURKISH.replace("ı", "i"), "fold_marks", 0.0),
    "Turkish capitals": (TURKISH, TURKISH.replace("i", "İ").upper(), "fold_marks", 0.0),
    "Turkish without diacritics": (CITIES, CITIES.replace("ş", "s").replace("ç", "c"), "fold_marks", 0.57),
    "Romanian without diacritics": (ROMANIAN, ROMANIAN.translate(str.maketrans("Șșțăî", "Sstai")), "fold_marks", 0.0),
    "Polish without diacritics": (POLISH, POLISH.translate(str.maketrans("Łłóźśż", "Llozsz")), "fold_marks", 0.0),
    "French without ligatures": (FRENCH, FRENCH.replace("œ", "oe"), "fold_marks", 0.0),
    "Arabic digits": (ARABIC, ARABIC.translate({48 + d: 0x660 + d for d in range(10)}), "fold_marks", 0.05),
    "Cyrillic letters in Latin words": (SPAM, SPAM.translate(LOOK_ALIKES), "fold_look_alikes", 0.0),
    "Cyrillic and Greek capitals": (SPAM, SPAM.upper().translate(CAPITALS), "fold_look_alikes", 0.0),
    "Greek letters with accents": (SPANISH, SPANISH.replace("ó", "\u03cc"), "fold_look_alikes", 0.0),
    "Latin letters in Russian words": (
        "скоро новая скидка на все товары",
        "cкopo нoвaя cкидкa нa вce тoвapы",
        "fold_look_alikes",
        0.0,
    ),
    "Ukrainian i and dotless i": (
        SPAM,
        SPAM.replace("i", "\u0456", 4).replace("i", "\u0131"),
        "fold_look_alikes",
        0.16,
    ),
}

LINKED = (
    "Read the full [report of the council]({}) on the repairs of the old bridge, which starts in June and ends in May"
)
PLAIN = LINKED.replace("({})", "")

#: Texts with a URL, and the similarity to the text without it.
LINKS = {
    "Markdown": (LINKED.format("https://example.org/a/b?c=d&e=f#g"), PLAIN, 0.56),
    "Markdown, with parentheses": (LINKED.format("https://example.org/wiki/Bridge_(old)"), PLAIN, 0.64),
    "Markdown, relative": (LINKED.format("/2026/05/bridge.html"), PLAIN, 0.69),
    "Markdown, other words after it": (f"{PLAIN} [1](HTTP://EXAMPLE.ORG/)and more", f"{PLAIN} [1] and more", 0.75),
    "in the text": ("The map is at https://example.org/map, near the bridge", "The map is at, near the bridge", 0.27),
    "www": ("The map is at www.example.org/map. It is new", "The map is at. It is new", 0.27),
    "www in capitals": ("The map is at Www.Example.org/map. It is new", "The map is at. It is new", 0.27),
    "ftp, in brackets": ("The map <ftp://example.org/map> of the bridge", "The map of the bridge", 0.25),
    "HTML": ('The <a href="https://example.org/">map</a> is here now', 'The <a href="">map</a> is here now', 0.36),
    "Chinese, without spaces": (
        "\u5730\u56fehttps://example.org/map\uff0c\u65b0\u6865\u5f88\u957f",
        "\u5730\u56fe\uff0c\u65b0\u6865\u5f88\u957f",
        0.2,
    ),
}


def similarity(one, other, **options):
    batch = Shingler(ShingleOptions(**options)).shingle([one, other])
    shingles = [set(batch.hashes[: batch.offsets[1]].tolist()), set(batch.hashes[batch.offsets[1] :].tolist())]
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_texts_that_look_equal_are_equal(one, other):
    assert one != other
    assert similarity(one, other) == 1.0
    assert reference.tokens(one) == reference.tokens(other)


@pytest.mark.parametrize(("one", "other", "key", "without"), KEYED.values(), ids=KEYED)
def test_a_key_makes_further_texts_that_look_equal_equal(one, other, key, without):
    assert similarity(one, other) == pytest.approx(without, abs=0.01)
    assert similarity(one, other, **{key: True}) == 1.0
    assert reference.tokens(one, **{key: True}) == reference.tokens(other, **{key: True})


@pytest.mark.parametrize(("linked", "plain", "kept"), LINKS.values(), ids=LINKS)
def test_a_text_with_a_url_equals_the_text_without_it_if_urls_are_left_out(linked, plain, kept):
    assert similarity(linked, plain) == pytest.approx(kept, abs=0.01)
    assert similarity(linked, plain, keep_urls=False) == 1.0
    shingler = Shingler(ShingleOptions(keep_urls=False))
    assert set(shingler.in_order(linked).hashes.tolist()) == set(shingler.shingle([plain]).hashes.tolist())
    before = shingler.shingle(["one two three"])
    gained = [shingler.appended(before.tails, text, is_first=False).hashes.tolist() for text in (linked, plain)]
    assert gained[0] == gained[1]


@pytest.mark.parametrize("text", ["a://b", "see(www) or www", "[1] (see note)", "f(x)[y]", "http and https", "wwww.a"])
def test_a_text_without_a_url_is_kept_whole(text):
    assert without_urls(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://" + "(a" * 500_000, " " + "(a" * 500_000),
        ("http://" * 150_000, " "),
        ("](" * 500_000, "](" * 500_000),
        ("](a" * 300_000, "](a" * 300_000),
        ("www.(" * 200_000, " (" * 200_000),
    ],
)
def test_any_text_is_searched_for_urls_in_linear_time(text, left):
    assert without_urls(text) == left


#: Texts with HTML, and the similarity to the plain text: nothing removes HTML.
HTML = {
    "entities": (
        "The council&#8217;s bridge &amp; the road &nbsp; are closed",
        "The council\u2019s bridge & the road are closed",
    ),
    "tags": (
        "The council closes <b>the</b> bridge<br>and the <a href='x'>road</a>",
        "The council closes the bridge and the road",
    ),
    "paragraphs": ("<p>The council closes the bridge</p>", "The council closes the bridge"),
}


@pytest.mark.parametrize(("html", "plain"), HTML.values(), ids=HTML)
def test_html_is_compared_as_it_is_and_found_for_a_warning(html, plain):
    assert similarity(html, plain) < 0.8
    assert has_html(html)
    assert not has_html(plain)


@pytest.mark.parametrize(
    "text", ["AT&T; R & D;", "a < b > c", "by <john@example.org>", "<year> <owner>", "&&; <>", "x<y"]
)
def test_angle_brackets_and_ampersands_alone_are_no_html(text):
    assert not has_html(text)


def test_the_warning_begins_at_a_hundredth_of_the_documents():
    assert html_warning(9, 1_000) is None
    assert html_warning(0, 0) is None
    assert html_warning(10, 1_000).startswith("1.0% of the documents have entities or tags of HTML")
