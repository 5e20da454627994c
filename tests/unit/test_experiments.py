"""The experiments: their arithmetic, their edits, and all of them in the small, so that they cannot rot."""

import itertools
import json
import random
import re
import xml.etree.ElementTree as ET
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import __main__ as command
from experiments import constructed, edits, glyphs, page, places, source, spinning, worked
from experiments.exact import all_pairs
from experiments.findings import Scale
from experiments.trials import Judge
from streamdedup.cli.scan import find_pairs
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.index.memory import MemoryIndex
from streamdedup.indexes import detector_options
from streamdedup.similarity.lsh import Banding
from tests.made_corpus import WORDS
from tests.thoroughness import examples

FERRY = "Port Alder will have a ferry to Kestrel Bay again. Crossings take half an hour, and run six times a day."
TOOLS = edits.Tools(random.Random(1), ["un deux trois quatre cinq sept huit neuf dix onze"])
EDITS = {edit.name: edit for edit in edits.EDITS}


class TestWorkedExamples:
    def test_all_of_them_have_their_known_answers(self):
        rows = worked.run(Scale(None)).tables["examples"].rows
        assert len(rows) > 20
        assert all(computed == known for _, computed, known in rows)

    def test_one_that_differs_ends_the_run(self, monkeypatch):
        monkeypatch.setattr(worked, "bands", lambda: [("a band", "1", "2")])
        with pytest.raises(ArithmeticError, match="a band"):
            worked.run(Scale(None))


class TestSource:
    def test_only_letters_are_kept(self):
        assert source.words_of("U.S. rates rose 2.5 pct,\nFed's Volcker") == [
            *("u", "s", "rates", "rose", "pct", "fed", "s", "volcker")
        ]

    def test_a_text_shorter_than_a_shingle_is_one_as_a_whole(self):
        assert source.shingles_of(["a", "b"], 3) == {"a b"}
        assert source.shingles_of(list("abcab"), 2) == {"a b", "b c", "c a"}

    @pytest.mark.parametrize(
        ("number", "prime"), [(1, 2), (2, 3), (13, 17), (24, 29), (7918, 7919), (1_354_267, 1_354_289)]
    )
    def test_the_first_prime_above_a_number(self, number, prime):
        assert source.first_prime_above(number) == prime

    def test_factors_and_summands_are_drawn_without_replacement_up_to_the_number_of_shingles(self):
        family = source.draw_family(50, 60, 1)
        assert len(set(family.a.tolist())) == len(set(family.b.tolist())) == 50
        assert {*family.a.tolist(), *family.b.tolist()} <= set(range(1, 61))
        assert family.c == 61

    @settings(max_examples=examples(50))
    @given(
        st.lists(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=9), min_size=1, max_size=5),
        st.integers(2, 3_000_000_000),
    )
    def test_a_signature_is_that_of_integers_without_overflow(self, sets, distinct):
        family = source.draw_family(2, distinct, 7)
        offsets = np.cumsum([0, *map(len, sets)])
        hashes = np.array([value for one in sets for value in one], np.int64)
        expected = [
            [
                min((a * x + b) % family.c for x in one)
                for a, b in zip(family.a.tolist(), family.b.tolist(), strict=True)
            ]
            for one in sets
        ]
        assert source.sign(family, hashes, offsets).tolist() == expected

    def test_a_modulus_whose_square_overflows_is_refused(self):
        family = source.Family(np.array([1]), np.array([1]), source.MAX_MODULUS + 1)
        with pytest.raises(ValueError, match="64 bits"):
            source.sign(family, np.array([1]), np.array([0, 1]))

    def test_bands_shared_are_counted_for_each_pair_that_shares_one(self):
        keys = source.band_keys(np.array([[1, 2, 3, 4], [1, 2, 3, 5], [9, 9, 3, 4], [1, 2, 3, 4]]), 2, 2)
        assert source.shared_bands(keys) == {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 3): 1, (2, 3): 1}

    def test_candidates_are_compared_by_signature_and_by_original(self):
        signatures = np.array([[1, 2, 3, 4], [1, 2, 3, 5]])
        assert source.by_signature(signatures, [(0, 1)]).tolist() == [0.75]
        assert source.by_original([frozenset("abc"), frozenset("bcd")], [(0, 1)]).tolist() == [0.5]


class TestExactPairs:
    @given(st.lists(st.sets(st.integers(0, 12), max_size=8), max_size=12), st.sampled_from([0.1, 0.5, 0.6, 0.8, 1.0]))
    def test_they_are_those_of_comparing_every_pair(self, sets, least):
        hashes = np.array([value for one in sets for value in one], np.int64)
        pairs = all_pairs(hashes, np.cumsum([0, *map(len, sets)]), least)
        expected = {
            (one, other): len(sets[one] & sets[other]) / len(sets[one] | sets[other])
            for one, other in itertools.combinations(range(len(sets)), 2)
            if sets[one] & sets[other] and len(sets[one] & sets[other]) / len(sets[one] | sets[other]) >= least
        }
        columns = (column.tolist() for column in pairs)
        assert {(one, other): found for one, other, found in zip(*columns, strict=True)} == expected


class TestConstructedPairs:
    @pytest.mark.parametrize("similarity", [0.05, 0.5, 0.8, 0.95, 1.0])
    def test_each_has_the_similarity_that_was_asked_for(self, similarity):
        sets = constructed.pairs(similarity, 3, seed=1)
        members = [set(sets.hashes[a:b].tolist()) for a, b in itertools.pairwise(sets.offsets.tolist())]
        assert [len(a & b) / len(a | b) for a, b in zip(members[::2], members[1::2], strict=True)] == [similarity] * 3

    def test_chance_allows_what_the_binomial_distribution_allows(self):
        # Tables: of 100 throws of a coin 40 to 60 are heads in 96.5 % of all cases, 41 to 59 in 94.3 %.
        assert constructed.chance(0.5, 100) == (0.4, 0.6)
        assert constructed.chance(0.0, 100) == (0.0, 0.0)
        assert constructed.chance(1.0, 100) == (1.0, 1.0)


class TestEdits:
    @pytest.mark.parametrize("edit", edits.EDITS, ids=lambda edit: edit.name)
    def test_every_strength_of_every_edit_is_drawn_by_its_seed_alone(self, edit):
        for _, strength in edit.strengths:
            first, second = (edit.apply(FERRY, strength, TOOLS._replace(chance=random.Random(2))) for _ in range(2))
            assert first == second
        assert first != FERRY

    @pytest.mark.parametrize(
        ("name", "strength", "copy"),
        [
            ("end cut off", 0.9, "Port Alder"),
            ("words of others in front", 0.1, "un deux\n" + FERRY),
            (
                "sentences reordered",
                0,
                " ".join(reversed(FERRY.split(". ", 1))).replace("day. Port", "day. Port") + ".",
            ),
            ("capitals", 1.0, FERRY.upper()),
            ("punctuation left out", 1, re.sub("[.,]", "", FERRY)),
            ("spaces left out", 1.0, FERRY.replace(" ", "")),
        ],
    )
    def test_an_edit_changes_the_text_visibly(self, name, strength, copy):
        assert EDITS[name].apply(FERRY, strength, TOOLS) == copy

    def test_a_quotation_has_the_quoted_part_between_as_many_words_of_others(self):
        words = EDITS["part quoted in as many words of others"].apply(FERRY, 0.5, TOOLS).split()
        own = FERRY.split()
        assert len(words) == len(own) + round(0.5 * len(own))
        quoted = [word for word in words if word not in TOOLS.others[0].split()]
        assert " ".join(quoted) in FERRY

    def test_a_text_without_spaces_is_cut_into_characters(self):
        text = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u6563\u6b65\u5427\u3002"
        assert edits.parts_of(text) == (list(text), "")
        assert EDITS["end cut off"].apply(text, 0.5, TOOLS) == text[:8]

    @pytest.mark.parametrize("name", ["unseen characters behind letters", "full-width letters"])
    @pytest.mark.parametrize("kind", ["articles", "reviews"])
    def test_invisible_characters_hide_no_copy(self, kind, name):
        copy = EDITS[name].apply(FERRY, 1.0, TOOLS)
        verdicts = Judge(kind).judge([FERRY], [copy])
        assert copy != FERRY
        assert verdicts.similarities.tolist() == [1.0]
        assert verdicts.found.tolist() == [True]

    def test_a_look_alike_looks_alike_and_is_another_letter(self):
        copy = EDITS["Cyrillic look-alikes of letters"].apply("Peace", 1.0, TOOLS)
        assert copy == "\u0420\u0435\u0430\u0441\u0435"
        assert glyphs.fold(copy) == "Peace"

    def test_folding_leaves_words_of_another_script_alone_unless_all_letters_are_alike(self):
        russian = "\u0412\u043e\u0442 \u0432\u043e\u0442"
        assert glyphs.fold_mixed(russian) == russian
        upper, lower = glyphs.fold(russian).split()
        assert upper.casefold() == lower.casefold()
        assert glyphs.fold_mixed("p\u0435ace") == "peace"

    @pytest.mark.parametrize("pattern", spinning.PATTERNS.values(), ids=list(spinning.PATTERNS))
    def test_a_spun_text_is_one_of_those_that_the_pattern_allows(self, pattern):
        fixed = spinning.spin(pattern, 0, random.Random(1))
        spun = spinning.spin(pattern, 1, random.Random(1))
        assert fixed != spun
        assert not re.search(r"[\[\]|]", fixed + spun)
        allowed = "".join(
            "(?:" + part[1:-1].replace(" ", r"\s") + ")" if part.startswith("[") else re.escape(part)
            for part in re.split(r"(\[[^\]]+\])", re.sub(r"\s+", " ", pattern.strip()))
        )
        assert re.fullmatch(allowed, re.sub(r"\s+", " ", spun))


class TestJudge:
    def test_a_pair_below_the_threshold_is_not_found_and_a_copy_is(self):
        verdicts = Judge("articles").judge([FERRY, FERRY, FERRY], [FERRY, FERRY[:60], "Something else entirely."])
        assert verdicts.found.tolist() == [True, False, False]
        assert verdicts.similarities[0] == 1
        assert 0 < verdicts.similarities[1] < 0.8
        assert verdicts.similarities[2] == 0

    @pytest.mark.parametrize("kind", ["articles", "reviews"])
    def test_a_pair_is_found_exactly_when_scan_reports_it(self, kind):
        judge = Judge(kind)
        originals = [entry.text for entry in places.sample(kind)[::6]]
        copies = [EDITS["words replaced"].apply(text, 0.05, TOOLS) for text in originals]
        reported = []
        for texts in zip(originals, copies, strict=True):
            documents = [document_at(at, str(at), text) for at, text in enumerate(texts)]
            store = MemoryIndex()
            store.open(judge.profile.fingerprint())
            run = DetectorRun(
                detector_options("scan", judge.profile.model_copy(update={"max_candidates": None})), store
            )
            reported.append(bool(list(find_pairs(run, documents))))
        assert judge.judge(originals, copies).found.tolist() == reported
        assert set(reported) == {True, False}


def made_texts(count, seed):
    """Return texts of which every third is an edit of the one before, and every fourth of these a copy."""
    chance = random.Random(seed)
    texts = []
    for number in range(count):
        words = chance.choices(WORDS, k=chance.randint(12, 40))
        if number % 3 == 2:
            words = texts[-1].split()
            if number % 4:
                words[chance.randrange(len(words))] = "other"
        texts.append(" ".join(words))
    return texts


#: Sets of reviews and news that the experiments read, besides Reuters.
SETS = (
    *("playstore_reviews", "zh_shopping_reviews", "ar_reviews", "bbc_news", "masakhane_news", "fnc1_bodies"),
    *("spdx_licenses", "udhr", "sms_spam", "ota_pga", "wiki_bips"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder like that of the open sets, with made-up texts."""
    folder = tmp_path_factory.mktemp("data")
    articles = [
        f'<REUTERS OLDID="{number}" NEWID="{number}"><TEXT><TITLE>A</TITLE>'
        f"{f'<BODY>{text} 1987</BODY>' if number % 10 else ''}</TEXT></REUTERS>\n"
        for number, text in enumerate(made_texts(50, 1))
    ]
    short = '<REUTERS OLDID="90" NEWID="90"><TEXT><BODY>Too short 1 2 3 4 5 6 7</BODY></TEXT></REUTERS>\n'
    (folder / "reuters21578").mkdir()
    content = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n' + "".join(articles) + short
    (folder / "reuters21578" / "reut2-000.sgm").write_text(content)
    for seed, name in enumerate(SETS):
        lines = (json.dumps({"id": str(at), "text": text}) for at, text in enumerate(made_texts(30, seed)))
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def findings(data):
    """Return what all experiments find in the small."""
    scale = Scale(data, trials=40, seeds=2, sizes=(2, 3))
    return {name: import_module(f"experiments.{name}").run(scale) for name in command.NAMES + command.OTHERS}


@pytest.mark.long
class TestRun:
    def test_articles_are_counted_at_each_step(self, findings):
        counted = {row[0]: row[1] for row in findings["reuters"].tables["articles"].rows}
        assert list(counted.values()) == ["51", "5", "46", "1", "45"]

    def test_every_pair_of_equal_articles_is_found(self, findings):
        rows = findings["reuters"].tables["bands"].rows
        assert {row[2] for row in rows} == {"1", "2"}
        generous = next(row for row in rows if row[0] == "25 x 4")
        assert generous[-2] == "100.0 %"

    def test_neighbours_of_an_article_are_shown_with_both_similarities(self, findings):
        rows = {row[0]: row for row in findings["reuters"].tables["neighbours"].rows}
        assert re.fullmatch(r"\d+: [01]\.\d{3} \([01]\.\d{2}\)", rows["one"][3])
        assert rows["none"][3] == "none"

    def test_measured_shares_keep_to_theory(self, findings):
        rows = dict(findings["curve"].tables["within"].rows)
        assert int(rows["within the 95 % that chance allows"]) > 0.8 * int(rows["points"])

    def test_errors_of_estimates_are_those_of_theory(self, findings):
        for _, _, theory, product, plain, *_ in findings["estimates"].tables["errors"].rows:
            # 40 pairs give a standard deviation to some 11 per cent.
            assert float(product) == pytest.approx(float(theory), rel=0.5)
            assert float(plain) == pytest.approx(float(theory), rel=0.5)

    def test_a_row_for_each_edit_and_strength(self, findings):
        rows = findings["robustness"].tables["sample"].rows
        assert len(rows) == sum(len(edit.strengths) for edit in edits.EDITS)
        assert all(re.fullmatch(r"[01]\.\d\d, \d+ %|-", cell) for row in rows for cell in row[2:])

    def test_pictures_are_drawn_the_same_each_time_without_a_date(self, findings, data):
        again = import_module("experiments.estimates").run(Scale(data, trials=40))
        assert again.pictures == findings["estimates"].pictures
        for found in findings.values():
            for picture in found.pictures.values():
                tree = ET.fromstring(picture)
                assert tree.find(".//{http://purl.org/dc/elements/1.1/}title").text
                assert tree.find(".//{http://purl.org/dc/elements/1.1/}date") is None

    def test_the_pages_show_nothing_that_no_experiment_makes_and_leave_nothing_out(self, findings):
        pages = [path.read_text("utf-8") for path in page.PAGES]
        shown = {match.groups()[1:3] for text in pages for match in page.BLOCK.finditer(text)}
        assert shown == {(name, one) for name, found in findings.items() for one in found.tables}
        pictures = {f"{name}.svg" for found in findings.values() for name in found.pictures}
        assert {name for text in pages for name in page.PICTURE.findall(text)} == pictures
        for text in pages:
            assert text.count("<!-- experiment: ") == len(page.BLOCK.findall(text))
            assert all("| --- |" in match[0] for match in page.BLOCK.finditer(text))

    def test_a_table_is_written_anew_and_the_rest_left_alone(self, findings, tmp_path):
        findings["worked"].write(tmp_path)
        tables = json.loads((tmp_path / "worked.json").read_text("utf-8"))
        before = "Before\n<!-- experiment: worked.examples -->\nold\n<!-- end of experiment -->\nafter"
        written = page.render(before, {"worked": tables}.__getitem__)
        assert written == before.replace("old\n", f"\n{findings['worked'].tables['examples'].markdown()}\n")

    def test_absent_sets_are_named_and_the_other_experiments_run(self, tmp_path, capsys):
        assert command.run(["reuters", "worked"], Scale(tmp_path / "nowhere"), tmp_path) == 1
        said = capsys.readouterr()
        assert "reuters21578 is not in" in said.err
        assert "EXPERIMENTS_DATA=" in said.err
        assert "556eecce" in said.out
        assert (tmp_path / "worked.json").exists()

    def test_the_bands_of_the_curve_are_those_of_the_default_settings(self):
        assert import_module("experiments.curve").BANDINGS[0] == Judge("articles").profile.banding() == Banding(9, 4)
