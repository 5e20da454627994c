"""Options that several commands have in common."""

import dataclasses
import os
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from streamdedup.cli.main import main
from streamdedup.cli.options import ComparisonOptions, CorpusOptions, chosen_profile, with_options
from streamdedup.settings import Profile


@dataclasses.dataclass(frozen=True)
class Group:
    names: Annotated[list[str], typer.Argument()]
    depth: Annotated[int, typer.Option("--depth", "-d")] = 1


def test_the_fields_of_a_data_class_are_options_of_the_command():
    called = []

    def show(shout: Annotated[bool, typer.Option()], group: Group, also: Annotated[str, typer.Option()] = "x") -> None:
        """Show something."""
        called.append((shout, group, also))

    app = typer.Typer()
    app.command()(with_options(show))
    run = CliRunner().invoke(app, ["a", "b", "--shout", "-d", "3"])
    assert run.exit_code == 0, run.output
    assert called == [(True, Group(["a", "b"], 3), "x")]
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Show something." in shown
    assert "--group" not in shown


def test_every_option_of_a_comparison_is_a_setting_of_a_profile():
    names, corpus_names = (
        {field.name for field in dataclasses.fields(group)} for group in (ComparisonOptions, CorpusOptions)
    )
    assert names - corpus_names <= Profile.model_fields.keys()


def test_options_override_the_settings_file_and_what_is_not_given_does_not(tmp_path):
    config = tmp_path / "streamdedup.toml"
    config.write_text(
        '[kafka]\nbootstrap_servers = "k:9092"\n[redis]\nurl = "redis://r:6379/0"\n[profiles.own]\ntopics = ["t"]\n'
        'threshold = 0.6\nmin_words = 7\ntext_fields = ["title", "body"]\n',
        encoding="utf-8",
    )
    given = {"profile": "own", "id_field": "key", "text_fields": None, "shingle_size": 4, "threshold": 0.9}
    chosen = chosen_profile(ComparisonOptions(["-"], config=config, **given), retention="2d")
    assert (chosen.threshold, chosen.min_words, chosen.shingle_size) == (0.9, 7, 4)
    assert (chosen.id_field, chosen.text_fields) == ("key", ("title", "body"))
    assert chosen.retention_s == 2 * 86_400


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["config", "check", "--config", "{file}"], "is not TOML"),
        (["scan", "{file}", "--config", "{file}"], "is not TOML"),
        (["evaluate", "{file}", "--truth", "{file}"], ":1: not a pair"),
        (["tune", "{file}", "--report", "{file}"], "the command reads or writes this file"),
        (["tune", "{file}", "--report", "-"], "--report -: standard output has the tables; name a file"),
    ],
)
def test_whether_a_file_can_be_read_is_found_out_by_its_reader(command, said, tmp_path, monkeypatch, capsys):
    file = tmp_path / "texts.jsonl"
    file.write_text('{"id": "a", "text": "one two three four"}\n', encoding="utf-8")
    # As for a file without permission; the check of typer would refuse the command as wrong use.
    monkeypatch.setattr(os, "access", lambda *_arguments, **_options: False)
    with pytest.raises(SystemExit):
        main([part.format(file=file) for part in command])
    assert said in capsys.readouterr().err
