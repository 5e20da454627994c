"""Tokens of texts in each script, spelt out; invisible characters do not hide a copy.

The texts were written for these tests. Characters that are easily mistaken for others are written as escapes.
"""

import unicodedata

import pytest

from streamdedup.text.shingles import ShingleOptions, Shingler
from tests.folded_text import folded_text
from tests.unit import reference_shingles as reference

#: Text and tokens; spaces between tokens.
TOKENS = {
    "Han": ("今天天气很好，我们去公园。", "今 天 天 气 很 好 我 们 去 公 园"),
    "Han beyond the first plane": ("𠮷野家", "𠮷 野 家"),
    "Hiragana and Kanji": ("猫は窓のそばで寝ている。", "猫 は 窓 の そ ば で 寝 て い る"),
    "Katakana": ("コーヒー・カップ", "コ ー ヒ ー カ ッ プ"),
    "Katakana of half width": ("ｺｰﾋｰ ｶﾞｽ", "コ ー ヒ ー ガ ス"),
    "kana with a separate voicing mark": ("か\u3099く は\u309aん", "が く ぱ ん"),
    "Hangul": ("오늘은 날씨가 좋다.", "오늘은 날씨가 좋다"),
    "Hangul in jamo": (unicodedata.normalize("NFD", "오늘은 날씨가"), "오늘은 날씨가"),
    "Thai": ("แมวนั่งบนเก้าอี้", "แ ม ว นั่ ง บ น เ ก้ า อี้"),
    "Thai with sara am": ("น้ำ", "น้\u0e4d า"),
    "Lao": ("ແມວນອນຢູ່", "ແ ມ ວ ນ ອ ນ ຢູ່"),
    "Khmer": ("ឆ្មាដេក", "ឆ្ មា ដេ ក"),
    "Burmese": ("ကြောင်အိပ်", "ကြော င် အိ ပ်"),
    "Arabic": ("القطة تنام على الكرسي، وحدها.", "القطة تنام على الكرسي وحدها"),
    "Arabic with vowel signs": ("كَتَبَ الطَّالِبُ", "كَتَبَ الطَّالِبُ"),
    "Arabic presentation forms": ("\ufee3\ufeae\ufea3\ufe92\ufe8e \ufefb", "مرحبا لا"),
    "Persian, a joiner withheld": ("می\u200cروم", "میروم"),
    "Hebrew": ("חתול ישן על כיסא", "חתול ישן על כיסא"),
    "Devanagari": ("बिल्ली कुर्सी पर सो रही है।", "बिल्ली कुर्सी पर सो रही है"),
    "Devanagari, a letter written in two ways": ("\u0958लम \u0915\u093cलम", "\u0915\u093cलम \u0915\u093cलम"),
    "Bengali, a vowel sign in two parts": ("ক\u09c7\u09be", "কো"),
    "Tamil": ("பூனை தூங்குகிறது", "பூனை தூங்குகிறது"),
    "Amharic": ("ድመቷ ወንበር ላይ ተኝታለች።", "ድመቷ ወንበር ላይ ተኝታለች"),
    "Amharic, words parted by their own sign": ("ድመት፡ቤት፡ውስጥ", "ድመት ቤት ውስጥ"),
    "Cyrillic": ("Кошка спит на стуле, её зовут Мурка.", "кошка спит на стуле её зовут мурка"),
    "Cyrillic with separate marks": ("Чи\u0306и\u0306 е\u0308лка", "чйй ёлка"),
    "Georgian": ("კატა სკამზე ძინავს", "კატა სკამზე ძინავს"),
    "Armenian, a ligature": ("ԿԱՏՈՒ և", "կատու եւ"),
    "Greek polytonic": ("Ἡ γάτα κοιμᾶται ᾳ", "ἡ γάτα κοιμᾶται αι"),
    "Greek, a sigma at the end": ("ΛΌΓΟΣ λόγος", "λόγοσ λόγοσ"),
    "Turkish": ("Iğdır İstanbul", "iğdır istanbul"),
    "Vietnamese with separate marks": (unicodedata.normalize("NFD", "Mèo ngủ trên ghế"), "mèo ngủ trên ghế"),
    "German": ("Straße GROẞ", "strasse gross"),
    "Tibetan, syllables parted by their own sign": ("ཞི་མི", "ཞི མི"),
    "emoji": ("tea 🍵👍🏽👩\u200d👩\u200d👧 time", "tea time"),
    "a flag and a heart": ("one🇪🇹two ❤\ufe0f three", "one two three"),
    "digits of full width": ("ＡＢＣ１２３", "abc123"),
    "compatibility forms": ("① ½ ﬁne ㎏ ℡", "1 1 2 fine kg tel"),
    "Arabic digits": ("عام ٢٠٢٤", "عام ٢٠٢٤"),
    "mixed": ("iPhoneを2台買った buy2", "iphone を 2 台 買 っ た buy2"),
    "scripts in one word": ("COVIDワクチンstop", "covid ワ ク チ ン stop"),
}


@pytest.mark.parametrize("script", TOKENS)
def test_tokens_of_a_text(script):
    text, expected = TOKENS[script]
    tokens = expected.split()
    assert reference.tokens(text) == tokens
    batch = Shingler(ShingleOptions(size=1)).shingle([text, " ".join(tokens)])
    assert batch.token_counts.tolist() == [len(tokens)] * 2
    words = sorted({reference.shingle_hash((token,), "word") for token in tokens})
    assert batch.hashes[: batch.offsets[1]].tolist() == words == batch.hashes[batch.offsets[1] :].tolist()


@pytest.mark.parametrize("unit", ["word", "char"])
def test_all_scripts_in_one_batch_have_the_shingles_of_the_reference(unit):
    texts = [text for text, _ in TOKENS.values()]
    texts.append(" ".join(texts))
    batch = Shingler(ShingleOptions(unit=unit, size=3)).shingle(texts)
    for at, text in enumerate(texts):
        own = batch.hashes[batch.offsets[at] : batch.offsets[at + 1]].tolist()
        assert own == reference.shingle_hashes(text, unit=unit, size=3)


#: Invisible characters between two characters of a word.
UNSEEN = {
    "soft hyphen": "\u00ad",
    "zero width space": "\u200b",
    "zero width non-joiner": "\u200c",
    "zero width joiner": "\u200d",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "left-to-right mark": "\u200e",
    "right-to-left mark": "\u200f",
    "Arabic letter mark": "\u061c",
    "embedding": "\u202b\u202c",
    "override": "\u202e\u202c",
    "isolate": "\u2067\u2069",
    "variation selector": "\ufe0f",
    "variation selector beyond the first plane": "\U000e0101",
    "Mongolian variation selector": "\u180b",
    "grapheme joiner": "\u034f",
    "Hangul filler": "\u3164",
    "invisible times": "\u2062",
    "tag": "\U000e0041",
    "tatweel": "\u0640",
}
COPIED = [
    "Cedar planks, cut to size.",
    "القطة تنام على الكرسي",
    "כיסא גדול",
    "Кошка спит",
    "我们去公园",
    "बिल्ली सो रही",
]


@pytest.mark.parametrize("unseen", UNSEEN.values(), ids=UNSEEN)
def test_an_invisible_character_does_not_hide_a_copy(unseen):
    for text in COPIED:
        hidden = unseen.join(text)
        for options in (ShingleOptions(), ShingleOptions(unit="char", size=5)):
            batch = Shingler(options).shingle([text, hidden])
            assert batch.hashes[: batch.offsets[1]].tolist() == batch.hashes[batch.offsets[1] :].tolist(), text


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_the_form_in_which_a_text_is_stored_makes_no_difference(form):
    for text, _ in TOKENS.values():
        assert folded_text(unicodedata.normalize(form, text)) == folded_text(text), text


@pytest.mark.parametrize(
    ("full", "plain"),
    [
        ("كَتَبَ الطَّالِبُ الدَّرْسَ", "كتب الطالب الدرس"),
        ("أحمد القرآن مسؤول", "احمد القران مسوول"),
        ("חָתוּל יָשֵׁן", "חתול ישן"),
        ("ܫܠܳܡܳܐ", "ܫܠܡܐ"),
        ("Ἡ γάτα κοιμᾶται τῷ", "Η γατα κοιμαται τω"),
        ("Crème brûlée, naïve façade", "Creme brulee, naive facade"),
        ("Mèo ngủ trên ghế", "Meo ngu tren ghe"),
        ("Ещё ёлка, мой йод", "Еще елка, мои иод"),
    ],
)
def test_with_folded_marks_a_text_with_and_without_them_is_the_same(full, plain):
    assert folded_text(full) != folded_text(plain)
    assert folded_text(full, fold_marks=True) == folded_text(plain, fold_marks=True) == folded_text(plain)
    assert reference.normalise(full, fold_marks=True) == folded_text(plain)
    batch = Shingler(ShingleOptions(size=2, fold_marks=True)).shingle([full, plain, unicodedata.normalize("NFD", full)])
    assert len({tuple(part) for part in batch.hashes.reshape(3, -1).tolist()}) == 1


@pytest.mark.parametrize("text", ["がぎぱ", "नी नि कि की", "นั่ง นิ่ง", "កូ កុ", "க் கி", "각", "မြန်မာ"])
def test_marks_that_make_the_word_are_never_folded(text):
    assert folded_text(text, fold_marks=True) == folded_text(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("國際經濟與貿易", "国际经济与贸易"),  # traditional, simplified
        ("臺灣的裏面爲了羣衆", "台灣的裡面為了群眾"),  # OpenCC's standard forms, those of Taiwan
        ("線衛說閱稅", "綫衞説閲税"),  # OpenCC's standard forms, those of Hong Kong
        ("廣澤驛變圖書館讀賣", "広沢駅変図書館読売"),  # Japanese, before and after 1946
        ("\uf9d0", "类"),  # a compatibility ideograph of a traditional character
    ],
)
def test_with_folded_variants_all_forms_of_a_han_character_are_the_same(one, other):
    assert folded_text(one) != folded_text(other)
    assert folded_text(one, fold_variants=True) == folded_text(other, fold_variants=True)
    assert reference.normalise(one, fold_variants=True) == folded_text(other, fold_variants=True)


def test_a_simplified_character_that_is_also_a_new_japanese_form_of_another_is_kept():
    assert folded_text("芸", fold_variants=True) == "芸"


def test_folded_variants_change_no_text_without_han():
    text = "Crème がぎぱ 각하 кот นั่ง كَتَبَ"
    assert folded_text(text, fold_variants=True) == folded_text(text)


def test_letters_that_only_resemble_each_other_stay_different():
    assert folded_text("кот ухо") != folded_text("kot yxo")
    assert folded_text("ø ł đ ٥") == "ø ł đ ٥"
    assert folded_text("ø ł đ ٥", fold_marks=True) == "o l d 5"
