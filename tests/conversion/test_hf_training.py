"""Ten optimizer steps beside PyTorch's, from the same parameters over the same batches.

Two oracles: Hugging Face's model with `torch.optim.AdamW` and transformers' linear schedule, as its Trainer has them;
and with the original's optimizer (google-research/bert, `optimization.py`), written out as a loop over its parameters.
"""

import jax
import numpy as np
import pytest

from bert_jax import from_pretrained
from bert_jax.conversion.state_dict_writing import to_huggingface
from bert_jax.tasks.pretraining.task import PretrainingTask
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import make_schedule
from bert_jax.training.state import State
from bert_jax.training.step import make_train_step

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

STEPS, WARMUP, PEAK, DECAY, CLIP, EPS = 10, 3, 2e-3, 0.01, 1.0, 1e-6
VOCABULARY, ROWS, LENGTH, PREDICTIONS = 61, 6, 16, 3
TOLERANCE = 1e-4
# The gradient of a key's bias is zero in exact arithmetic (softmax does not see a shift). Adam divides what rounding
# leaves of it by its own size, so that these biases differ most; all others are held to this.
TIGHT = 1e-5


def batch(step: int) -> dict[str, np.ndarray]:
    """Pairs of uneven lengths, of which some have fewer masked tokens than there is room for."""
    generator = np.random.default_rng(step)
    lengths = generator.integers(6, LENGTH + 1, (ROWS, 1))
    places = np.arange(LENGTH)
    counts = generator.integers(1, PREDICTIONS + 1, (ROWS, 1))
    masked = np.array([generator.choice(length, PREDICTIONS, replace=False) for length in lengths[:, 0]])
    weights = np.arange(PREDICTIONS) < counts
    return {
        "input_ids": np.where(places < lengths, generator.integers(1, VOCABULARY, (ROWS, LENGTH)), 0).astype(np.int32),
        "attention_mask": (places < lengths).astype(np.int32),
        "token_type_ids": ((places >= lengths // 2) & (places < lengths)).astype(np.int32),
        "masked_positions": np.where(weights, masked, 0).astype(np.int32),
        "masked_labels": generator.integers(1, VOCABULARY, (ROWS, PREDICTIONS)).astype(np.int32),
        "masked_weights": weights.astype(np.float32),
        "next_sentence_labels": generator.integers(0, 2, ROWS).astype(np.int32),
        "example_weights": np.ones(ROWS, np.float32),
    }


def loss_of(model, example: dict[str, np.ndarray]):
    """Hugging Face's pretraining loss; it takes the labels of all positions, -100 where nothing is masked."""
    labels = np.full((ROWS, LENGTH), -100)
    for row, i in zip(*np.nonzero(example["masked_weights"]), strict=True):
        labels[row, example["masked_positions"][row, i]] = example["masked_labels"][row, i]
    inputs = {name: example[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    inputs |= {"labels": labels, "next_sentence_label": example["next_sentence_labels"]}
    return model(**{name: torch.tensor(array).long() for name, array in inputs.items()}).loss


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A directory with a model in which every parameter is random, LayerNorms and biases too."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForPreTraining(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.15)
    directory = tmp_path_factory.mktemp("start")
    model.save_pretrained(directory)
    return directory


def ours(directory, schedule: str, bias_correction: bool) -> dict[str, np.ndarray]:
    """The parameters after ten of our steps, under Hugging Face's names."""
    model = from_pretrained(directory)
    rate = make_schedule(schedule, PEAK, STEPS, WARMUP)
    optimizer = make_optimizer(rate, eps=EPS, weight_decay=DECAY, clip_norm=CLIP, bias_correction=bias_correction)
    step = jax.jit(make_train_step(PretrainingTask(model.bert, majority_id=5), optimizer))
    params = jax.tree.map(jax.numpy.asarray, model.params)
    state = State(params, optimizer.init(params), jax.numpy.int32(0))
    for i in range(STEPS):
        state, metrics = step(state, batch(i), 0)
        assert float(metrics["grad_norm"][0]) > CLIP  # so that clipping has something to do
    return to_huggingface(model.config, "pretraining", jax.tree.map(np.asarray, state.params))


def decays(name: str) -> bool:
    return not name.endswith("bias") and "LayerNorm" not in name


def with_torch_adamw(directory, *, betas=(0.9, 0.999), decay=DECAY, clip=CLIP, eps=EPS, warmup=WARMUP, spare=True):
    """The model after ten steps of PyTorch's AdamW: the moments corrected, eps outside the root, the decay decoupled.

    It decays a parameter before the update, which is the same: the update is of the moments alone.
    """
    model = transformers.BertForPreTraining.from_pretrained(directory).train()
    groups = ([], [])
    for name, parameter in model.named_parameters():
        groups[decays(name) or not spare].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": decay}, {"params": groups[False], "weight_decay": 0.0}],
        lr=PEAK,
        betas=betas,
        eps=eps,
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, STEPS)
    for i in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(i)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
    return model


def with_the_original(directory, *, beta2=0.999, decay=DECAY, corrected=False):
    """The model after ten steps as the original takes them."""
    model = transformers.BertForPreTraining.from_pretrained(directory).train()
    m = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    v = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(STEPS):
        rate = PEAK * step / WARMUP if step < WARMUP else PEAK * (1 - step / STEPS)
        model.zero_grad()
        loss_of(model, batch(step)).backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
        with torch.no_grad():
            for name, p in model.named_parameters():
                gradient = p.grad * CLIP / max(norm, CLIP)
                m[name] = 0.9 * m[name] + 0.1 * gradient
                v[name] = beta2 * v[name] + (1 - beta2) * gradient**2
                correction = (1 - beta2 ** (step + 1)) ** 0.5 / (1 - 0.9 ** (step + 1)) if corrected else 1.0
                update = correction * m[name] / (torch.sqrt(v[name]) + EPS)
                if decays(name):
                    update = update + decay * p
                p -= rate * update
    return model


def apart(found: dict[str, np.ndarray], model, key_biases: bool = True) -> float:
    """The largest difference in any parameter, absolute or relative to the largest of its tensor."""
    expected = {name: p.detach().numpy() for name, p in model.named_parameters()}
    assert found.keys() == expected.keys()
    worst = 0.0
    for name, theirs in expected.items():
        if not key_biases and name.endswith("key.bias"):
            continue
        difference = np.abs(found[name] - theirs).max()
        worst = max(worst, difference, difference / np.abs(theirs).max())
    return worst


@pytest.fixture(scope="module")
def corrected(start):
    return ours(start, "linear", bias_correction=True)


@pytest.fixture(scope="module")
def uncorrected(start):
    return ours(start, "bert_linear", bias_correction=False)


def test_ten_steps_of_adamw_end_in_the_same_parameters(start, corrected):
    model = with_torch_adamw(start)
    assert apart(corrected, model) < TOLERANCE and apart(corrected, model, key_biases=False) < TIGHT
    assert apart(corrected, transformers.BertForPreTraining.from_pretrained(start)) > 50 * TOLERANCE  # they did move


@pytest.mark.parametrize(
    "change",
    [
        {"betas": (0.9, 0.99)},
        {"betas": (0.89, 0.999)},
        {"decay": 0.03},
        {"spare": False},
        {"clip": 1e9},
        {"eps": 1e-4},
        {"warmup": 2},
    ],
    ids=str,
)
def test_another_adamw_ends_elsewhere(start, corrected, change):
    """Were one of our settings this far off, the test above would fail."""
    assert apart(corrected, with_torch_adamw(start, **change)) > TOLERANCE


def test_ten_steps_of_the_original_end_in_the_same_parameters(start, uncorrected):
    model = with_the_original(start)
    assert apart(uncorrected, model) < TOLERANCE and apart(uncorrected, model, key_biases=False) < TIGHT
    assert apart(uncorrected, transformers.BertForPreTraining.from_pretrained(start)) > 50 * TOLERANCE


@pytest.mark.parametrize("change", [{"beta2": 0.99}, {"decay": 0.03}, {"corrected": True}], ids=str)
def test_another_original_ends_elsewhere(start, uncorrected, change):
    assert apart(uncorrected, with_the_original(start, **change)) > TOLERANCE
