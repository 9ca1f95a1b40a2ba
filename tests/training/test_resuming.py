"""What may change between a run and its continuation: in its recipe, its data and its length."""

import contextlib
import gzip
import json
import os
import pathlib

import pytest

from bert_jax import jobs, recipes, storage, training
from bert_jax.errors import InputError
from bert_jax.jobs.setup import steps_of_epochs
from bert_jax.recipes.keys import KEYS
from bert_jax.tokenization import word_piece
from bert_jax.training.resuming import check_new_length, data_differences, differences, table
from bert_jax.training.workdir import Workdir

ROWS = [("the cat sat", "pos"), ("a dog", "neg"), ("old tree on the house", "pos"), ("fish", "neg"), ("a cat", "pos")]


@pytest.fixture
def place(tmp_path, tiny_tokenizer):
    tiny_tokenizer.save(tmp_path)
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.tsv", ROWS)
    return tmp_path


def write(path, rows, columns=("sentence", "label")):
    path.write_text("".join("\t".join(row) + "\n" for row in (columns, *rows)))


def recipe_of(place, **changes):
    c = recipes.classification()
    c.update_from_flattened_dict(
        {"tokenizer": str(place), "data.train": str(place / "train.tsv"), "data.dev": str(place / "dev.tsv"),
         "num_steps": 20, "model.size": "tiny", "global_batch_size": 2,
         "best_metric": "accuracy"} | changes
    )  # fmt: skip
    return recipes.resolve(c)


def begin(place, recipe):
    """Begins a run, as the loop does, or resumes it."""
    workdir = Workdir(storage.Path(place / "run"))
    workdir.path.mkdir(parents=True, exist_ok=True)
    workdir.check(recipe)
    job = jobs.build(recipe)
    return workdir.begin(recipe, job.data(), job.num_steps)


def begun(place, step=7, **changes):
    """A run that has a checkpoint."""
    recipe = recipe_of(place, **changes)
    begin(place, recipe)
    os.makedirs(place / "run" / "checkpoints" / str(step))
    return recipe


def swapped(rows):
    return [(text, {"pos": "neg", "neg": "pos"}[label]) for text, label in rows]


def rename(rows):
    return [(text, {"pos": "good", "neg": "bad"}[label]) for text, label in rows]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (rename(ROWS), "classes: the run began with neg, pos; PLACE/train.tsv now has bad, good"),
        (swapped(ROWS), "train: the run began with other labels of the 5 rows of PLACE/train.tsv"),
        (ROWS[:4], "train: the run began with 5 rows; PLACE/train.tsv now has 4"),
        ([*ROWS, ("new", "neg")], "train: the run began with 5 rows; PLACE/train.tsv now has 6"),
        (ROWS[::-1], "train: the run began with the same 5 rows in another order; PLACE/train.tsv was reordered"),
        ([("the bird", "pos"), *ROWS[1:]], "train: the run began with other texts in the 5 rows of PLACE/train.tsv"),
    ],
)
def test_training_rows_that_changed(place, rows, message):
    recipe = begun(place, **{"data.dev": "", "best_metric": ""})
    write(place / "train.tsv", rows)
    with pytest.raises(InputError) as error:
        begin(place, recipe)
    assert str(error.value).startswith(f"{place}/run: ") and message.replace("PLACE", str(place)) in str(error.value)
    assert "another --workdir" in str(error.value)


def test_columns_that_changed_places(place):
    alone = {"data.dev": "", "best_metric": ""}
    write(place / "train.tsv", [(text, text[::-1], label) for text, label in ROWS], ("sentence", "other", "label"))
    recipe = begun(place, **alone)
    write(place / "train.tsv", [(text[::-1], text, label) for text, label in ROWS], ("sentence", "other", "label"))
    with pytest.raises(InputError, match="train: the run began with other texts in the 5 rows"):
        begin(place, recipe)
    begin(place, recipe_of(place, **alone, **{"data.text_column": "other"}))  # the same texts under another name


def test_a_vocabulary_that_changed(place, tiny_vocab):
    recipe = begun(place)
    (place / "tokenizer").mkdir()
    word_piece((*tiny_vocab, "more"), lowercase=True).save(place / "tokenizer")
    with pytest.raises(InputError) as error:
        begin(place, recipe_of(place, tokenizer=str(place / "tokenizer")))
    now = len(tiny_vocab) + 1
    assert f"vocabulary: the run began with {now - 1} tokens; {place}/tokenizer now has {now}" in str(error.value)
    assert "train:" not in str(error.value)
    assert begin(place, recipe) == 20


def test_a_tokenizer_that_reads_the_same_texts_otherwise(place, tiny_vocab):
    write(place / "train.tsv", [(text.upper(), label) for text, label in ROWS])
    recipe = begun(place)
    (place / "cased").mkdir()
    word_piece(tiny_vocab, lowercase=False).save(place / "cased")
    with pytest.raises(InputError, match="train: the run began with other texts in the 5 rows"):
        begin(place, recipe_of(place, tokenizer=str(place / "cased")))
    assert begin(place, recipe) == 20


def test_another_dev_set_matters_where_it_chooses_the_model(place, caplog):
    recipe = begun(place)
    write(place / "dev.tsv", ROWS[:2])
    with pytest.raises(InputError, match=r"dev: the run began with 5 rows; \S+/dev.tsv now has 2"):
        begin(place, recipe)
    begin(place, recipe_of(place, best_metric=""))
    assert "dev.tsv now has 2; evaluations from here on cannot be compared" in caplog.text
    begin(place, recipe)  # which is what the run has now


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.max_seq_length": 16}, "data.max_seq_length was 128, is now 16"),
        ({"data.packing": 32}, "data.packing was 0, is now 32"),
        ({"data.length_buckets": (8,)}, r"data.length_buckets was \[\], is now \(8,\)"),
        ({"seed": 3}, "seed was 0, is now 3; use another --workdir, or set it back"),
    ],
)
def test_keys_that_shape_batches_are_named(place, changes, message):
    begun(place)
    with pytest.raises(InputError, match=message):
        begin(place, recipe_of(place, **changes))


def test_the_same_rows_elsewhere_and_otherwise_written_are_the_same(place):
    begun(place)
    (place / "moved").mkdir()
    rows = [{"text": text, "class": label} for text, label in ROWS]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (place / "moved" / "rows.jsonl.gz").write_bytes(gzip.compress(data))
    moved = {"data.train": str(place / "moved" / "rows.jsonl.gz"), "data.text_column": "text",
             "data.label_column": "class", "data.dev": ""}  # fmt: skip
    with pytest.raises(InputError) as error:  # the dev set alone is missing
        begin(place, recipe_of(place, **moved))
    assert "with: dev: the run began with 5 rows; now there are none; use" in str(error.value)
    begin(place, recipe_of(place, **moved, best_metric=""))


def test_a_directory_of_an_earlier_version_is_resumed_and_told_of_once(place, caplog):
    recipe = begun(place)
    (place / "run" / "data.json").unlink()
    with pytest.raises(InputError, match=r"data\.train was"):  # without content, names are all there is
        begin(place, recipe_of(place, **{"data.train": str(place / "dev.tsv")}))
    assert begin(place, recipe) is None
    assert "is of an earlier version" in caplog.text
    caplog.clear()
    begin(place, recipe)
    assert not caplog.text


def settings_of(place):
    """Return the changes of the recipe of the finished run."""
    return {"init_from": str(place / "first"), "tokenizer": "", "model.size": "", "num_steps": 2, "best_metric": "",
            "data.max_seq_length": 16}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory, write_small):
    """The directory of data and initial weights, and the recipe, of a finished run in its `run`."""
    place = tmp_path_factory.mktemp("finished")
    for name, seed in (("first", 0), ("second", 1)):
        write_small(place / name, hidden_size=8, num_attention_heads=1, intermediate_size=8, seed=seed)
    for name in ("train", "dev"):
        write(place / f"{name}.tsv", ROWS)
    recipe = recipe_of(place, **settings_of(place))
    training.train(recipe, place / "run", progress=False)
    return place, recipe


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("key", "rows", "message"),
    [
        ("data.train", [*ROWS, ("new", "neg")], "train: the run began with 5 rows; NEW now has 6"),
        ("data.train", swapped(ROWS), "train: the run began with other labels of the 5 rows of NEW"),
        ("data.train", ROWS[::-1], "train: the run began with the same 5 rows in another order; NEW was reordered"),
        ("data.dev", ROWS[:2], "dev: the run began with 5 rows; NEW now has 2"),
        ("init_from", None, "weights: the run began with other weights than those of NEW"),
    ],
)
def test_a_finished_run_does_not_answer_for_other_data(finished, tmp_path, key, rows, message):
    place, _ = finished
    new = place / "second" if rows is None else tmp_path / "new.tsv"
    if rows is not None:
        write(new, rows)
    before = {path: path.stat().st_mtime_ns for path in (place / "run").rglob("*")}
    with pytest.raises(InputError) as error:
        training.train(recipe_of(place, **settings_of(place) | {key: str(new)}), place / "run", progress=False)
    assert message.replace("NEW", str(new)) in str(error.value)
    assert {path: path.stat().st_mtime_ns for path in (place / "run").rglob("*")} == before


def test_a_finished_run_answers_for_the_same_data_elsewhere_and_for_data_that_are_gone(finished, tmp_path, caplog):
    place, recipe = finished
    scores = training.train(recipe, place / "run", progress=False)
    assert scores
    write(tmp_path / "moved.tsv", ROWS)
    moved = recipe_of(place, **settings_of(place), **{"data.train": str(tmp_path / "moved.tsv")})
    assert training.train(moved, place / "run", progress=False) == scores
    assert not caplog.text
    (place / "train.tsv").rename(tmp_path / "train.tsv")
    try:
        assert training.train(recipe, place / "run", progress=False) == scores
        assert "its data are not compared, as they cannot be read" in caplog.text
        lost = recipe_of(place, **settings_of(place), **{"data.train": str(tmp_path / "other.tsv")})
        with pytest.raises(InputError, match=r"other\.tsv"):
            training.train(lost, place / "run", progress=False)
    finally:
        (tmp_path / "train.tsv").rename(place / "train.tsv")


def test_a_run_with_other_initial_weights_is_refused(finished):
    place, recipe = finished
    data = jobs.build(recipe).data()
    other = jobs.build(recipe_of(place, **settings_of(place) | {"init_from": str(place / "second")})).data()
    assert data_differences(data, other, {}).keys() == {"weights"}
    del data["weights"]  # as in a record of an earlier version
    assert not data_differences(data, other, {})


def test_before_the_first_checkpoint_nothing_is_bound(place):
    recipe = recipe_of(place)
    begin(place, recipe)
    write(place / "train.tsv", ROWS[1:])
    begin(place, recipe)


def test_a_key_that_an_older_config_lacks_has_its_default(place):
    recipe = begun(place)
    config = place / "run" / "config.json"
    saved = json.loads(config.read_text())
    del saved["r_drop"], saved["optimizer"]["average_decay"]
    config.write_text(json.dumps(saved))
    begin(place, recipe)


@pytest.mark.parametrize(("keys", "resumes"), [({}, True), ({"quantization.mode": "int8"}, False)])
def test_other_defaults_of_a_newer_version_matter_where_they_are_used(place, keys, resumes):
    recipe = begun(place, **keys)
    config = place / "run" / "config.json"
    saved = json.loads(config.read_text())
    saved["quantization"]["keep"] = ["classifier/*"]
    config.write_text(json.dumps(saved))
    with contextlib.nullcontext() if resumes else pytest.raises(InputError, match=r"quantization\.keep was"):
        begin(place, recipe)


def test_a_run_saved_under_a_former_name_of_a_key_is_resumed(place):
    recipe = begun(place, **{"data.invalid_rows": "skip"})
    config = place / "run" / "config.json"
    saved = json.loads(config.read_text())
    saved["data"]["bad_rows"] = saved["data"].pop("invalid_rows")
    config.write_text(json.dumps(saved))
    begin(place, recipe)
    assert json.loads(config.read_text()) == json.loads(recipes.to_json(recipe))


def test_content_of_prepared_directories():
    one, other = {"examples": 10, "content": "a"}, {"examples": 10, "content": "b"}
    more = {"examples": 12, "content": "c"}
    places = {"prepared": "DIR"}

    def told(then, now):
        return data_differences({"prepared": then}, {"prepared": now}, places).get("prepared", "")

    assert told([one], [one]) == told([one], [one, other]) == ""  # a further stage
    assert told([one], [more]) == "prepared: the run began with 10 examples; DIR now has 12"
    assert told([one], [other]).startswith("prepared: the run began with other examples; DIR was prepared again")


def test_a_changed_architecture_is_named():
    then, now = {"hidden_dropout_prob": 0.1, "old": 1}, {"hidden_dropout_prob": 0.0, "new": 2}
    found = data_differences({"model": then}, {"model": now}, {})
    assert found == {"model": "model: hidden_dropout_prob was 0.1, is now 0.0"}
    assert data_differences({"model": {"a": 1}}, {"model": {"a": 1, "b": 2}}, {}) == {}


@pytest.mark.parametrize(
    ("before", "now", "done", "fits"),
    [
        ([[5, 24, 8]], [[9, 24, 8]], 5, True),  # longer
        ([[5, 24, 8]], [[9, 24, 8]], 3, True),
        ([[5, 24, 8]], [[5, 24, 8], [2, 32, 4]], 5, True),  # a further stage
        ([[5, 24, 8], [5, 32, 4]], [[5, 24, 8], [3, 32, 4]], 8, True),  # shorter, but not than what is done
        ([[5, 24, 8], [5, 32, 4]], [[5, 24, 8], [5, 40, 8]], 5, True),  # a stage that has not begun
        ([[5, 24, 8], [5, 32, 4]], [[5, 24, 8], [5, 40, 8]], 6, False),
        ([[5, 24, 8], [5, 32, 4]], [[6, 24, 8], [5, 32, 4]], 8, False),  # a stage that is over was changed
        ([[5, 24, 8]], [[5, 24, 4]], 3, False),  # another batch
        ([[5, 24, 8]], [], 3, False),
    ],
)
def test_stages_may_change_where_they_are_not_done(before, now, done, fits):
    recipe = recipes.pretraining().unlock()
    recipe.stages = tuple(map(tuple, now))
    steps = sum(stage[0] for stage in now) or 9
    if fits:
        check_new_length({"stages": before}, recipe, steps, done)
        return
    with pytest.raises(InputError, match=r"config\.stages: (expected the stages of the|the run has done) \d+ steps"):
        check_new_length({"stages": before}, recipe, steps, done)


@pytest.mark.parametrize(
    ("before", "now", "done", "fits"),
    [
        ([[1, 2], [1, 1]], [[1, 2], [5, 1]], 5, True),  # of a stage that has not begun
        ([[1, 2], [1, 1]], [[1, 2], [5, 1]], 6, False),
        ([[1, 2], [1, 1]], [[1, 3], [1, 1]], 1, False),
        ([1, 2], [[1, 2], [5, 1]], 5, True),
        ([], [1, 2], 5, False),
    ],
)
def test_the_mixture_may_change_in_stages_that_have_not_begun(before, now, done, fits):
    recipe = recipes.pretraining().unlock()
    recipe.stages, recipe.data.mixture_weights = ((5, 24, 8), (5, 32, 4)), now
    saved = {"stages": [[5, 24, 8], [5, 32, 4]], "data": {"mixture_weights": before}}
    if fits:
        check_new_length(saved, recipe, 10, done)
        return
    with pytest.raises(InputError, match=rf"config\.data\.mixture_weights: the run has done {done} steps"):
        check_new_length(saved, recipe, 10, done)


def test_a_run_cannot_become_shorter_than_it_is(place):
    begun(place, step=7)
    assert begin(place, recipe_of(place, num_steps=7)) == 20
    with pytest.raises(InputError, match="num_steps: expected at least the 7 steps that the run has done, found 6"):
        begin(place, recipe_of(place, num_steps=6))


def test_epochs_are_bounded():
    assert steps_of_epochs(2.5, 3) == 8
    for epochs in (1e12, 1e300, float("inf")):
        with pytest.raises(InputError, match=r"config.num_epochs: expected fewer than 2\.147e\+06"):
            steps_of_epochs(epochs, 1000)


def test_the_documented_table_is_that_of_the_code():
    page = pathlib.Path(__file__).parents[2] / "docs" / "resuming.md"
    assert page.read_text().endswith(table())


def test_every_key_is_either_in_the_table_or_compared():
    nested = recipes.resolve(recipes.classification()).to_dict() | {"seed": 1, "log_every": 3}
    changed = dict.fromkeys(recipes.flatten(nested), "other")
    told = {phrase.split()[0] for phrase in differences(changed, nested)}
    assert told == {name for name, key in KEYS["classification"].items() if not key.may_change}
