"""The study file as a tree with places: what a preset does to it, and what YAML is refused."""

import json
import time

import pytest
import yaml

from clsweep.errors import StudyError
from clsweep.study.document import Document, parse_value
from clsweep.study.settings import apply_setting

TEXT = """\
# a comment
name: small
seeds: [0, 1, 2]
base:
  epochs: 6

  lr: 0.5
space:
  tau: {low: 0.05,
        high: 1.0}
presets:
  cpu:
    seeds: [7]
    base:
      lr: 0.25
      width: 8
    space: null
"""


def place(document, *keys):
    """The place of keys, without the folder."""
    return document.place(keys).rpartition("/")[2]


def refusal(read, *args, **options):
    with pytest.raises(StudyError) as caught:
        read(*args, **options)
    message = str(caught.value)
    return message[max(message.find("study.yaml"), 0) :]


# Lines.


def test_every_value_knows_its_line_and_a_missing_key_that_of_the_nearest_above(read):
    document = read()
    lines = {"name": 2, "seeds": 3, "base": 4, "base.epochs": 5, "base.lr": 7, "space.tau.low": 9}
    lines |= {"space.tau.high": 10, "base.warmup_epochs": 4, "objectives": 2}
    for keys, line in lines.items():
        assert place(document, *keys.split(".")) == f"study.yaml:{line}"
    assert place(document, "seeds", 2) == "study.yaml:3"


# Presets.


def test_a_preset_merges_mappings_replaces_lists_and_removes_nulls(read):
    tree = read(preset="cpu").tree
    assert tree == {"name": "small", "seeds": [7], "base": {"epochs": 6, "lr": 0.25, "width": 8}}


def test_places_point_into_the_preset_where_it_speaks(read):
    document = read(preset="cpu")
    assert place(document, "seeds", 0) == "study.yaml:13"
    assert place(document, "base", "lr") == "study.yaml:15"
    assert place(document, "base", "width") == "study.yaml:16"
    assert place(document, "base", "epochs") == "study.yaml:5"


def test_several_presets_are_laid_over_one_another(read):
    text = TEXT + "  long: {base: {epochs: 9, lr: 0.1}}\n"
    both, other = (read(text, preset=names).tree["base"] for names in ("cpu,long", "long,cpu"))
    assert both == {"epochs": 9, "lr": 0.1, "width": 8}
    assert other == {"epochs": 9, "lr": 0.25, "width": 8}
    assert "no preset 'lon'. Did you mean 'long'?" in refusal(read, text, preset="cpu,lon")


def test_a_preset_removes_what_is_there_or_was(read):
    text = TEXT + "  bare: {space: null, base: {lrr: null, epoch: null}, question: null}\n"
    there = "null removes a key, and none is there."
    assert refusal(read, text, preset="cpu,bare").splitlines()[0] == (
        f"study.yaml:18: presets.bare.base.lrr: {there} Did you mean 'lr'? There: epochs, lr, width"
    )
    lines = refusal(read, text, preset="bare").splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines[1:]] == [
        "presets.bare.base.epoch", "presets.bare.question"
    ]  # fmt: skip


def test_an_unknown_preset_names_the_nearest(read):
    expected = "no preset 'cpo'. Did you mean 'cpu'? Expected one of: cpu."
    assert refusal(read, preset="cpo") == f"study.yaml:11: presets: {expected}"


def test_a_preset_that_is_no_mapping_is_refused_even_if_another_is_asked_for(read):
    message = refusal(read, f"{TEXT}  broken: 3\n", preset="cpu")
    assert message == "study.yaml:18: presets.broken: expected a partial study, a mapping, given 3"


# Keys that stand twice, anchors, merge keys.


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", 3),
        ("b:\n  a: 1\n  'a': 1\n", 3),
        ("c: [{a: 1,\n     a: 2}]\n", 2),
        ("x: &x {k: 1}\na:\n  <<: *x\n  <<: *x\n", 4),
        (TEXT.replace("width: 8", "lr: 8"), 16),
    ],
)
def test_a_key_that_stands_twice_is_refused(read, text, line):
    message = refusal(read, text)
    assert message.startswith(f"study.yaml:{line}: the key '")
    assert message.endswith("' stands twice in one mapping.")


def test_an_alias_repeats_its_anchor_and_shares_no_later_change(read):
    document = read("a: &a {x: [1, 2]}\nb: *a\n")
    apply_setting(document, "b.x=2")
    assert document.tree == {"a": {"x": [1, 2]}, "b": {"x": 2}}


@pytest.mark.parametrize("text", ["x: 2, <<: *a", "<<: *a, x: 2"])
def test_own_keys_override_merged_ones(read, text):
    document = read(f"a: &a {{x: 1, y: 1}}\nb: {{{text}}}\n")
    assert document.tree["b"] == {"x": 2, "y": 1}
    assert place(document, "b", "x") == "study.yaml:2"
    assert place(document, "b", "y") == "study.yaml:1"


def test_merging_what_is_no_mapping_is_refused(read):
    message = refusal(read, "a: &a 1\nb:\n  <<: *a\n")
    assert message == "study.yaml:1: '<<' expects a mapping or a list of them, given 1."


# Scalars.


def test_numbers_with_an_exponent_are_numbers(read):
    given = read("a: [1e-3, 5E4, -2e+1, .5e1, 1.5, 64, '1e-3', 1e, e5, +one]\n").tree["a"]
    expected = [0.001, 50000.0, -20.0, 5.0, 1.5, 64, "1e-3", "1e", "e5", "+one"]
    assert given == expected
    assert [*map(type, given)] == [*map(type, expected)]


@pytest.mark.parametrize("text", ["2024-13-45", "!!bool maybe", "!!int ''"])
def test_a_scalar_that_yaml_cannot_convert_is_refused_with_its_line(read, text):
    message = refusal(read, f"a: 1\nb: {text}\n")
    assert message.startswith("study.yaml:2: not valid YAML: cannot read ")
    assert len(message) < 200


def test_a_mapping_as_key_is_refused(read):
    assert refusal(read, "a: 1\n? {b: 1}\n: 2\n") == "study.yaml:2: expected a plain word as key."


# What would never end.

LIST_BOMB = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize("text", [LIST_BOMB, MERGE_BOMB])
def test_an_alias_bomb_is_refused_soon(read, text):
    begin = time.process_time()
    assert "the file expands to more than 200,000 values" in refusal(read, text)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("text", ["a: &a {b: *a}\n", "a: &a [*a]\n", "a: &a\n  <<: *a\n"])
def test_endless_nesting_is_refused(read, text):
    assert refusal(read, text) == "study.yaml: not valid YAML: nested too deeply."


# Files.


def test_a_byte_order_mark_is_no_mistake(read):
    assert read("\ufeffname: small\n").tree == {"name": "small"}


@pytest.mark.parametrize(
    "text", ["12345678e9012345", "92e54", "1234567890123456", "0000000000000000", "0x1f", "1_000"]
)
def test_a_digest_that_looks_like_a_number_is_read_back_as_a_text(text):
    """By us and by any other reader of YAML, as a value, in a list and as a key."""
    tree = {"plugins": {"mine.py": text}, "files": [text], text: 1}
    written = Document("", tree).dump()
    assert parse_value(written, "") == tree
    assert yaml.safe_load(written) == tree
    assert json.loads(json.dumps(tree)) == tree
