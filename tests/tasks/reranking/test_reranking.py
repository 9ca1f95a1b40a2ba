"""Rerankers: the losses beside sentence-transformers, learning through the loop, and the finished model."""

import json
import pathlib

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.ranked_passages import MISSING, encode_ranked_passages, read_ranked_passages
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.reranking.losses import LAMBDA_WEIGHTINGS, RERANKING_LOSSES
from bert_jax.tasks.reranking.task import RerankingTask
from bert_jax.training.loop import train

NOUNS = ("cat", "dog", "bird", "fish", "house", "tree", "river", "stone")
COUNTS = (4, 2, 3, 4, 1)  # passages of each query


class GivenLogits:
    """A model whose logits are its parameters."""

    def apply(self, params, *inputs, **options):
        return type("Output", (), {"logits": params.reshape(-1, 1)})


def given():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (len(COUNTS), max(COUNTS)))
    labels = rng.integers(0, 3, logits.shape).astype(float)
    labels[:, 0] = 2
    for row, count in enumerate(COUNTS):
        labels[row, count:] = MISSING
    return logits, labels


def loss_and_gradients(name, logits, labels, real=None, **options):
    batch = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), np.zeros((*logits.shape, 4), np.int32))
    batch |= {"labels": labels, "example_weights": np.ones(len(logits), np.float32) if real is None else real}
    task = RerankingTask(GivenLogits(), name, **options)
    run = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    (loss, found), grads = run(logits, batch, None, task.weights(batch))
    return float(loss), np.asarray(grads), {key: float(total / count) for key, (total, count) in found.items()}


def theirs(name, logits, labels, weighting="", temperatures=(1.0, 1.0)):
    """The loss and gradients of sentence-transformers for logits and labels `[B, K]`, in float64."""
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")
    leaf = torch.tensor(logits, requires_grad=True)

    class Model(torch.nn.Module):
        num_labels, device = 1, torch.device("cpu")

        def preprocess(self, pairs, **options):
            return {"place": torch.tensor([[int(n) for n in passage.split(",")] for _, passage in pairs])}

        def forward(self, tokens):
            return {"scores": leaf[tokens["place"][:, 0], tokens["place"][:, 1]][:, None]}

    def unchecked(cls, **attributes):
        loss = cls.__new__(cls)
        torch.nn.Module.__init__(loss)
        loss.__dict__.update(activation_fn=torch.nn.Identity(), **attributes)
        return loss

    counts = (labels > MISSING).sum(1)
    queries, passages = ["q"] * len(labels), [[f"{i},{j}" for j in range(n)] for i, n in enumerate(counts)]
    relevance = [torch.tensor(row[:n]) for row, n in zip(labels, counts, strict=True)]
    pairs = [passage for row in passages for passage in row]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)  # the losses convert to float32
        torch.set_default_dtype(torch.float64)
        try:
            match name:
                case "binary_cross_entropy":
                    bce = torch.nn.BCEWithLogitsLoss()
                    loss = unchecked(losses.BinaryCrossEntropyLoss, model=Model(), bce_with_logits_loss=bce)
                    value = loss([["q"] * len(pairs), pairs], torch.cat(relevance))
                case "mse":
                    loss = unchecked(losses.MSELoss, model=Model(), loss_fct=torch.nn.MSELoss())
                    value = loss([["q"] * len(pairs), pairs], torch.cat(relevance))
                case "margin_mse":
                    loss = unchecked(losses.MarginMSELoss, model=Model(), loss_fct=torch.nn.MSELoss())
                    columns = [[row[i] for row in passages] for i in range(len(passages[0]))]
                    value = loss([queries, *columns], torch.tensor(labels))
                case "kl_divergence":
                    kl = pytest.importorskip("sentence_transformers.sentence_transformer.losses").DistillKLDivLoss
                    names = ("student_temperature", "teacher_temperature")
                    given = kl(None, lambda query, other: other, **dict(zip(names, temperatures, strict=True)))
                    value = given.compute_loss_from_embeddings([leaf[:, 0], *leaf.T], torch.tensor(labels))
                case "contrastive":
                    loss = unchecked(losses.MultipleNegativesRankingLoss, scale=None)
                    loss.activation_fn, loss.cross_entropy_loss = None, torch.nn.CrossEntropyLoss()
                    value = loss.calculate_loss(list(leaf.T), len(labels))
                case "lambda":
                    schemes = pytest.importorskip("sentence_transformers.cross_encoder.losses.lambda_loss")
                    names = {"ndcg_loss2": "NDCGLoss2Scheme", "ndcg_loss1": "NDCGLoss1Scheme",
                             "lambdarank": "LambdaRankScheme"}  # fmt: skip
                    scheme = getattr(schemes, names.get(weighting, "NDCGLoss2PPScheme"))()
                    value = losses.LambdaLoss(Model(), scheme)([queries, passages], relevance)
                case "list_mle" | "p_list_mle":
                    cls = losses.ListMLELoss if name == "list_mle" else losses.PListMLELoss
                    value = cls(Model(), respect_input_order=False)([queries, passages], relevance)
                case _:
                    cls = {"list_net": losses.ListNetLoss, "rank_net": losses.RankNetLoss,
                           "adr_mse": losses.ADRMSELoss}[name]  # fmt: skip
                    value = cls(Model())([queries, passages], relevance)
            value.backward()
        finally:
            torch.set_default_dtype(torch.float32)
    return float(value.detach()), leaf.grad.numpy()


@pytest.mark.oracle
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in RERANKING_LOSSES]
    + [("lambda", {"weighting": weighting}) for weighting in LAMBDA_WEIGHTINGS[1:]]
    + [("kl_divergence", {"temperature": 2.0, "teacher_temperature": 0.5})],
)
def test_the_losses_are_those_of_sentence_transformers(name, options):
    logits, labels = given()
    if name == "binary_cross_entropy":
        labels = np.where(labels > MISSING, labels / 2, labels)
    if name == "contrastive":
        labels = np.zeros_like(labels)
        labels[:, 0] = 1
    if name in ("margin_mse", "kl_divergence"):  # theirs have no padding
        labels = np.random.default_rng(1).normal(0, 3, logits.shape)
    if name in ("list_mle", "p_list_mle"):  # their order of ties is not stable
        labels = np.where(labels > MISSING, labels + np.random.default_rng(1).normal(size=labels.shape), labels)
    own = {"weighting": options["weighting"]} if "weighting" in options else {}
    if "temperature" in options:
        own["temperatures"] = (options["temperature"], options["teacher_temperature"])
    expected, wanted = theirs(name, logits, labels, **own)
    with jax.enable_x64():
        loss, grads, found = loss_and_gradients(name, logits, labels, **options)
    assert loss == pytest.approx(expected, rel=1e-9) and found[f"{name}_loss"] == pytest.approx(loss)
    np.testing.assert_allclose(grads, wanted, rtol=1e-7, atol=1e-10)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RERANKING_LOSSES)
def test_degenerate_rows_have_finite_gradients(name):
    """Equal scores and labels, one passage, and padding alone."""
    labels = np.array([[1, 1, 1], [1, MISSING, MISSING], [0, 0, 0]], np.float32)
    real = np.array([1, 1, 0], np.float32)
    for logits in (np.zeros((3, 3), np.float32), np.full((3, 3), 40, np.float32)):
        loss, grads, _ = loss_and_gradients(name, logits, labels, real)
        assert np.isfinite(loss) and np.isfinite(grads).all() and not grads[2].any()


def test_a_long_row_has_finite_weights_of_positions():
    labels = np.arange(300, dtype=np.float32)[None]
    loss, grads, _ = loss_and_gradients("p_list_mle", np.zeros((1, 300), np.float32), labels)
    assert np.isfinite(loss) and np.isfinite(grads).all() and grads[0, -1] < 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RERANKING_LOSSES)
def test_padded_rows_count_for_nothing(name):
    logits, labels = (values.astype(np.float32) for values in given())
    labels = np.where(labels > MISSING, labels / 2, labels)
    real = np.array([1, 0, 1, 1, 0], np.float32)
    padded = np.where(real[:, None] > 0, labels, 0)
    loss, grads, found = loss_and_gradients(name, logits, padded, real)
    kept = real > 0
    expected, wanted, metrics = loss_and_gradients(name, logits[kept], labels[kept])
    assert loss == pytest.approx(expected, rel=1e-6) and found == pytest.approx(metrics)
    np.testing.assert_allclose(grads[kept], wanted, atol=1e-6)
    assert not grads[~kept].any()


@pytest.mark.slow
def test_a_batch_has_one_loss_on_any_mesh_and_in_any_number_of_parts(on_eight_devices):
    found = on_eight_devices(pathlib.Path(__file__).with_name("reranking_meshes.py"))
    assert found.keys() == set(RERANKING_LOSSES)
    for name, (values, apart) in found.items():
        assert values == pytest.approx([values[0]] * len(values), rel=1e-5), name
        assert max(apart) < 1e-4, name


# Learning


def write_rows(path, rows, seed):
    """Queries, relevant passages, which have a number in them, and others."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(rows):
        nouns = rng.permutation(NOUNS)[:4].tolist()
        words = [rng.choice(("one", "two")), *rng.choice(("red", "blue", "old"), 3)]
        about = [f"the {word} {noun} sat" for word, noun in zip(words, nouns, strict=True)]
        line = {"query": f"a {nouns[0]} is", "positive": about[0]}
        line |= {f"negative_{i}": text for i, text in enumerate(about[1:], 1)}
        alike = int(rng.integers(2))
        line |= {"passage": about[0 if alike else 1], "label": alike}
        count = int(rng.integers(2, 5))
        lines.append(line | {"passages": about[:count], "relevance": [1.0] + [0.0] * (count - 1)})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("reranking")
    write_rows(root / "train.jsonl", 256, seed=0)
    write_rows(root / "dev.jsonl", 40, seed=1)
    write_small(root / "encoder", num_hidden_layers=2)
    return root


NEGATIVES = {"data.pair_column": "positive", "data.negative_columns": ("negative_1", "negative_2", "negative_3"),
             "data.label_column": ""}  # fmt: skip
LISTS = {"data.passages_column": "passages", "data.label_column": "relevance"}


def recipe(place, loss, **changes):
    c = recipes.reranking()
    c.init_from = str(place / "encoder")
    c.data.train, c.data.dev = str(place / "train.jsonl"), str(place / "dev.jsonl")
    c.data.loss, c.data.max_seq_length, c.data.length_buckets = loss, 24, (24,)
    c.global_batch_size, c.num_epochs, c.optimizer.learning_rate = 32, 4.0, 3e-3
    c.update_from_flattened_dict(changes)
    return c


def job(place, loss, **changes):
    return jobs.build(recipes.resolve(recipe(place, loss, **changes)))


@pytest.fixture(scope="module")
def tuned(place):
    results = train(recipe(place, "contrastive", **NEGATIVES), place / "run", progress=False)
    return results, place / "run" / "model"


def test_relevance_is_learned(tuned):
    results, _ = tuned
    assert results["eval/mrr"] > 0.9 and results["eval/ndcg"] > 0.9 and results["eval/map"] > 0.9


@pytest.mark.slow
def test_relevance_of_single_passages_is_learned(place, tmp_path):
    results = train(recipe(place, "binary_cross_entropy"), tmp_path / "run", progress=False)
    assert results["eval/average_precision"] > 0.9 and {"eval/accuracy", "eval/f1"} <= results.keys()


def test_cross_encoder_opens_the_finished_model(place, tuned):
    theirs = pytest.importorskip("sentence_transformers").CrossEncoder(str(tuned[1]), device="cpu")
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    pairs = [(row["query"], row["passage"]) for row in rows]
    ours = pipeline("rerank", tuned[1])
    np.testing.assert_allclose(theirs.predict(pairs), ours.predict(pairs), atol=1e-5)
    best = ours(rows[0]["query"], rows[0]["passages"])[0]
    assert best["text"] == rows[0]["positive"] and 0 < best["score"] < 1


def test_lists_of_different_lengths(place):
    made = job(place, "lambda", **LISTS, accumulation_steps=2)
    batch = made.train_source.batch(0)
    assert batch["input_ids"].shape == (32, 4, 24) and batch["labels"].shape == (32, 4)
    assert (batch["labels"] == MISSING).any() and made.task.metrics == ("mrr", "ndcg", "map")
    abstract = jobs.abstract_task(recipes.resolve(recipe(place, "lambda", **LISTS)))
    assert abstract.stages[0].batch["labels"].shape == (32, 4)
    c = recipes.reranking()
    c.num_steps = 5
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    assert stage.batch["input_ids"].shape == (32, 1, 128)


def test_a_query_is_on_one_side_of_the_split(place, tmp_path):
    rows = [json.dumps({"query": f"the {NOUNS[i % 8]}", "passage": f"a {i}", "label": i % 2}) for i in range(64)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    made = job(place, "binary_cross_entropy", **{"data.train": str(tmp_path / "rows.jsonl"), "data.dev": "",
                                                 "data.validation_split": 0.25, "global_batch_size": 8})  # fmt: skip
    held = made.eval_source.batch(0)["input_ids"][:, 0, :4].tolist()
    assert not {tuple(row) for row in held} & {
        tuple(row) for step in range(6) for row in made.train_source.batch(step)["input_ids"][:, 0, :4].tolist()
    }


def test_the_prompt_is_before_the_query(tiny_tokenizer):
    (row,) = read_ranked_passages([{"q": "the cat", "p": "a dog", "l": 1}], Columns("q", "p", "l"))
    rows = encode_ranked_passages(tiny_tokenizer, [row], 16, "two ")
    text = tiny_tokenizer.decode(rows.pad(np.zeros(1, int), 16, 0)["input_ids"][0, 0], skip_special_tokens=True)
    assert text == "two the cat a dog" and rows.labels.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("loss", "changes", "message"),
    [
        ("contrastive", {}, r"passages_column: expected a column of lists, or columns of negatives, for loss 'contras"),
        ("contrastive", NEGATIVES | {"data.label_column": "label"}, r"label_column: expected none with negatives"),
        ("lambda", LISTS | {"data.label_column": ""}, r"label_column: expected a column, or columns of negatives"),
        ("lambda", LISTS | {"data.label_column": "label"}, r"line 1: expected a list of \d numbers in 'label', found"),
        ("list_net", LISTS | {"data.metrics": ("f1",)}, r"'f1' is not a metric of rows of several passages"),
        ("binary_cross_entropy", {"data.label_column": "query"}, r"line 1: expected a number as label"),
        ("binary_cross_entropy", {"data.metrics": ("mrr",)}, r"'mrr' is not a metric of rows of one passage"),
        ("binary_cross_entropy", {"data.pair_column": ""}, r"data\.pair_column: expected a column, found none"),
        ("binary_cross_entropy", {"distillation.teacher": "x"}, r"distillation"),
        ("lamda", {}, r"data\.loss: 'lamda' is not known; did you mean 'lambda'"),
    ],
)
def test_recipes_that_do_not_fit(place, loss, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, loss, **changes)


def test_rows_that_do_not_fit():
    columns = Columns("q", "p", "l")
    with pytest.raises(InputError, match="row 0: expected labels from 0 to 1, found 2"):
        read_ranked_passages([{"q": "x", "p": "y", "l": 2}], columns, probabilities=True)
    with pytest.raises(InputError, match="expected a text in 'p', found none"):
        read_ranked_passages([{"q": "x", "p": "", "l": 1}], columns)
    with pytest.raises(InputError, match="expected at least one passage in 'p', found none"):
        read_ranked_passages([{"q": "x", "p": [], "l": [1]}], Columns("q", "", "l", texts="p"))
