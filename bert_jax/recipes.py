"""Recipes: every key of a run with its default and its meaning, recipe files that change some, and what is checked.

A recipe file is Python with `get_config(arg)` that starts from `pretraining()` or `classification()` and sets what
differs; `--config.a.b=value` on the command line changes a key after that. Keys are typed and none can be invented.
"""

import ast
import importlib.util
import itertools
import json
import os
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict, config_dict

from bert_jax import files
from bert_jax.config import BertConfig
from bert_jax.errors import InputError, did_you_mean

DTYPES = ("auto", "float32", "bfloat16")
OPTIMIZERS = ("adamw", "lamb", "adafactor", "muon")
MASK_UNITS = ("token", "word", "span")
SCHEDULES = ("bert_linear", "linear", "constant", "quadratic", "cosine", "rsqrt", "wsd")

_MODEL_FIELDS = (
    ("family", str),
    ("hidden_size", int), ("num_hidden_layers", int), ("num_attention_heads", int), ("intermediate_size", int),
    ("hidden_act", str), ("hidden_dropout_prob", float), ("attention_probs_dropout_prob", float),
    ("classifier_dropout", float), ("max_position_embeddings", int), ("type_vocab_size", int),
    ("initializer_range", float), ("layer_norm_eps", float), ("position_embedding_type", str), ("embedding_size", int),
    ("local_window", int), ("global_every", int), ("rope_theta", float), ("local_rope_theta", float),
    ("norm_bias", bool), ("attention_bias", bool), ("mlp_bias", bool), ("head_bias", bool), ("decoder_bias", bool),
    ("tie_word_embeddings", bool), ("classifier_pooling", str), ("qa_dropout", float),
)  # fmt: skip


def _shared() -> ConfigDict:
    """The keys that every task has."""
    c = ConfigDict()
    c.task = ""  # which module of bert_jax.tasks: set by the functions below
    c.seed = 0  # of parameters, dropout, and the order and masks of the data
    c.init_from = ""  # a model directory in the Hugging Face layout to start from; "" = random parameters
    c.tokenizer = ""  # vocab.txt, tokenizer.json, *.model or a directory of them; "" = the data's or init_from's own
    c.dtype = "auto"  # of matrix products: float32, bfloat16, or auto (bfloat16 on accelerators, float32 on CPU)
    c.layers = "auto"  # scan compiles one layer once, unroll each of them; auto: unroll on CPU, where it runs faster
    c.remat = "auto"  # recomputed in the backward pass: none; dots, all but matrix products; full, a third more work;
    # auto: none on CPU, dots elsewhere, where memory is slower than arithmetic (docs/tpu_choices.md)
    c.attention = "auto"  # how scores become sums: xla, fused or splash (TPU), cudnn (GPU); docs/attention.md

    c.model = ConfigDict()
    c.model.size = "base"  # tiny, mini, small, medium, base, large, or a size of model.family's; the fields change it
    c.model.vocab_size = 0  # rows of the word embedding; 0 = the tokenizer's number of pieces
    for name, kind in _MODEL_FIELDS:  # as in bert_jax.BertConfig; None = as the size or the model of init_from has it
        c.model[name] = config_dict.placeholder(kind)

    c.mesh = ConfigDict()
    c.mesh.data = -1  # devices that hold whole copies of the parameters (or of each fsdp group); -1 = all that are left
    c.mesh.fsdp = 1  # devices that share one copy of parameters and optimizer state
    c.mesh.tensor = 1  # devices that share the work inside a layer; must divide the number of heads

    c.global_batch_size = 256  # examples a step, over all devices and micro-batches
    c.accumulation_steps = 1  # micro-batches a step: 1/n of the activations' memory, the same gradient
    c.num_steps = 0  # optimizer steps; 0 = from num_epochs
    c.num_epochs = 0.0  # passes over the training data when num_steps is 0

    c.optimizer = ConfigDict()
    c.optimizer.name = "adamw"  # adamw, lamb, adafactor or muon (training/optimizers.py)
    c.optimizer.learning_rate = 1e-4  # the highest rate, at the end of warm-up
    c.optimizer.warmup_steps = 0  # steps from rate 0 to the highest
    c.optimizer.warmup_ratio = 0.0  # the same as a fraction of all steps, when warmup_steps is 0
    c.optimizer.schedule = "bert_linear"  # or linear, constant, quadratic, cosine, rsqrt, wsd (training/schedules.py)
    c.optimizer.weight_decay = 0.01  # decoupled; not for biases and LayerNorm
    c.optimizer.beta1 = 0.9
    c.optimizer.beta2 = 0.999
    c.optimizer.eps = 1e-6
    c.optimizer.clip_norm = 1.0  # gradients are scaled down to this global norm; 0 = never
    c.optimizer.bias_correction = False  # False is BERT's AdamW, True is everybody else's
    c.optimizer.layer_decay = 1.0  # rate of a layer as a multiple of the rate of the one above it; for fine-tuning
    c.optimizer.average_decay = 0.0  # of a moving average of the parameters, which is evaluated and kept; 0 = the last

    c.data = ConfigDict()  # what to learn from: set by the functions below

    c.log_every = 100  # steps between lines of metrics.jsonl
    c.eval_every = 0  # steps between evaluations; one always runs at the end; 0 = only then
    c.eval_batch_size = 0  # examples a batch of evaluation; 0 = global_batch_size
    c.checkpoint_every = 1000  # steps between checkpoints; one is always written at the end; 0 = only then
    c.max_skipped_steps = 10  # steps in a row that may be skipped for a loss or gradient that is not finite
    c.keep_checkpoints = 2  # newest checkpoints to keep, besides the best
    c.warn_after_seconds = 600  # a warning for as long as no step ends, from every host; 0 = never
    c.wandb = ""  # project at Weights & Biases that gets the metrics too; WANDB_API_KEY says whose; "" = none
    c.profile = ()  # (first step, number of steps) to trace into profile/
    c.best_metric = ""  # evaluation metric by which the finished model is chosen; "" = the last state.
    # Lower is better for names that end in loss or perplexity, higher for all others.
    return c


def pretraining() -> ConfigDict:
    """Returns the recipe of masked-LM and next-sentence pretraining, with the paper's values as defaults."""
    c = _shared()
    c.task = "pretraining"
    c.num_steps = 1_000_000
    c.optimizer.warmup_steps = 10_000
    c.stages = ()  # ((num_steps, sequence_length, global_batch_size), ...) one after the other, as one run with one
    # schedule: sequences or batches that grow; () = one stage of num_steps, data.sequence_length and global_batch_size
    c.data.prepared = ""  # directory that `bert-jax prepare` wrote; "{sequence_length}" in it stands for the stage's
    c.data.sequence_length = 128  # tokens; shorter than what was prepared cuts pairs, longer is an error
    c.data.mask_prob = 0.15  # share of tokens to predict
    c.data.max_predictions = 0  # most tokens to predict in a sequence; 0 = mask_prob * sequence_length
    c.data.mask_unit = "token"  # what is masked: token, (whole) word or span (of words)
    c.data.hidden_share = 0.8  # share of the tokens to predict that becomes [MASK]
    c.data.random_share = 0.1  # share of them that becomes a random token; the rest stays
    c.data.static_masks = 0  # masks of an example, taken in turn by its epochs; 0 = new ones in every epoch
    c.data.eval_batches = 0  # held-out batches in an evaluation; 0 = all
    c.data.eval_sequence_length = 0  # tokens of held-out examples; 0 = those of the stage with the most steps
    return c.lock()


def electra() -> ConfigDict:
    """Returns the recipe of replaced-token detection, with the paper's small models as defaults."""
    c = pretraining().unlock()
    c.task = "electra"
    c.model.family, c.model.size = "electra", "small"
    c.model.generator_size = 0.25  # width of the generator as a share of the discriminator's: heads and feed-forward
    c.discriminator_weight = 50.0  # of its loss, the generator's having 1
    c.data.hidden_share, c.data.random_share = 1.0, 0.0
    return c.lock()


def classification() -> ConfigDict:
    """Returns the recipe of fine-tuning on one sentence or a pair, for classes or (task_type) a number."""
    c = _shared()
    c.task = "classification"
    c.global_batch_size = 32
    c.num_epochs = 3.0
    c.optimizer.learning_rate = 3e-5
    c.optimizer.warmup_ratio = 0.1
    c.r_drop = 0.0  # weight of the divergence between two passes with different dropout: twice the work; 0 = one pass
    c.data.train = ""  # .tsv, .csv, .jsonl or tfds:NAME:SPLIT
    c.data.dev = ""  # the same, for evaluation; "" = none
    c.data.task_type = "classification"  # or regression
    c.data.text_column = "sentence"
    c.data.pair_column = ""  # the second text; "" = single sentences
    c.data.label_column = "label"
    c.data.has_header = True  # the first line names the columns; False: columns are numbers from 0, as text: "3"
    c.data.metrics = ()  # of accuracy, f1, matthews or pearson, spearman, mse; () = all that fit
    c.data.max_seq_length = 128  # tokens; longer texts are cut
    c.data.token_dropout = 0.0  # share of the tokens that each step of training hides behind [MASK]
    c.data.length_buckets = ()  # batches of similar length are padded to one of these; () = chosen from the data
    return c.lock()


PRETRAINING: dict[str, Callable[[], ConfigDict]] = {"pretraining": pretraining, "electra": electra}
RECIPES = PRETRAINING | {"classification": classification}


def load_recipe(spec: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the recipe that `spec` names, changed by `overrides`, locked and not yet resolved.

    Args:
        spec: `FILE.py` or `FILE.py:arg` (passed to its `get_config`), or a `config.json` that a run left.
        overrides: strings such as `--config.optimizer.learning_rate=1e-4` (the dashes are optional).

    Raises:
        InputError: the file is missing or broken, a key does not exist, or a value has the wrong type.
    """
    path, _, arg = spec.partition(":") if not os.path.exists(spec) else (spec, "", "")
    recipe = _from_json(path) if path.endswith(".json") else _from_python(path, arg)
    for override in overrides:
        _override(recipe, override)
    return recipe


def resolve(recipe: ConfigDict, platform: str = "") -> ConfigDict:
    """Returns a locked copy whose values have been checked and whose `auto` settings are decided.

    Args:
        recipe: of this module.
        platform: `cpu`, `gpu` or `tpu` that it is for; empty means where JAX runs.

    Raises:
        InputError: a value is out of its range or not one of its choices, naming the key.
    """
    c = recipe.copy_and_resolve_references()
    _choices(c)
    _ranges(c)
    on_cpu = (platform or jax.default_backend()) == "cpu"
    if c.dtype == "auto":
        c.dtype = "float32" if on_cpu else "bfloat16"
    if c.layers == "auto":
        c.layers = "unroll" if on_cpu else "scan"
    if c.remat == "auto":
        c.remat = "none" if on_cpu else "dots"
    c.eval_batch_size = c.eval_batch_size or c.global_batch_size
    return c.lock()


def stages(recipe: ConfigDict) -> tuple[tuple[int, int, int], ...]:
    """The stages of a pretraining recipe: `(num_steps, sequence_length, global_batch_size)` each."""
    if recipe.stages:
        return tuple(tuple(stage) for stage in recipe.stages)
    return ((recipe.num_steps, recipe.data.sequence_length, recipe.global_batch_size),)


def batch_size_at(recipe: ConfigDict, step: int) -> int:
    """The number of examples in the batch of `step`, counted from 0."""
    ends = itertools.accumulate(stage[0] for stage in recipe.get("stages", ()))
    sizes = (stage[2] for stage in recipe.get("stages", ()))
    return next((size for end, size in zip(ends, sizes, strict=True) if step < end), recipe.global_batch_size)


def model_config(recipe: ConfigDict, base: BertConfig | None = None, **changes: Any) -> BertConfig:
    """The architecture that `recipe.model` describes: `base` (say, of init_from) or the named size, then its fields.

    `changes` (say, vocab_size from the tokenizer) come last. Raises InputError when it is not one.
    """
    given = {name: recipe.model[name] for name, _ in _MODEL_FIELDS if recipe.model[name] is not None}
    if recipe.model.vocab_size:
        given["vocab_size"] = recipe.model.vocab_size
    given |= changes
    return base.replace(**given) if base is not None else BertConfig.named(recipe.model.size, **given)


def to_json(recipe: ConfigDict) -> str:
    """The recipe as the text of `config.json`: nested, sorted, tuples as lists."""
    return json.dumps(recipe.to_dict(), indent=2, sort_keys=True) + "\n"


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`, for a ConfigDict or a dict."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, name + ".") if isinstance(value, (dict, ConfigDict)) else {name: value}
    return flat


def _from_python(path: str, arg: str) -> ConfigDict:
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such recipe file")
    loader = importlib.util.spec_from_file_location("bert_jax_recipe", path)
    if loader is None or loader.loader is None:
        raise InputError(f"{path}: expected a recipe file ending in .py or .json")
    module = importlib.util.module_from_spec(loader)
    try:
        loader.loader.exec_module(module)
        if not hasattr(module, "get_config"):
            raise InputError(f"{path}: expected a function get_config, found none")
        recipe = module.get_config(arg) if arg else module.get_config()
    except InputError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == os.path.abspath(path)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        raise InputError(f"{path}:{line or 1}: {_reason(error)}") from error
    if not isinstance(recipe, ConfigDict) or recipe.get("task") not in RECIPES:
        raise InputError(f"{path}: get_config must return a recipe of bert_jax.recipes, found {type(recipe).__name__}")
    return recipe.lock()


def _reason(error: Exception) -> str:
    """What is wrong in a recipe file; of what ml_collections says, which quotes the whole recipe, only the point."""
    text = str(error).strip()
    if key := re.search(r'Key "([^"]+)" does not exist', text):
        guess = re.search(r'Did you mean "([^"]+)"', text)
        return f"there is no key {key[1]!r}" + (f"; did you mean {guess[1]!r}?" if guess else "")
    if field := re.search(r"override field '([^']+)'.* type <class '(\w+)'> .* type <class '(\w+)'>", text, re.DOTALL):
        return f"{field[1]}: expected {field[3]}, found {field[2]}"
    return f"{type(error).__name__}: {(text.splitlines() or [''])[0]}"


def _from_json(path: str) -> ConfigDict:
    try:
        saved = json.loads(files.read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: expected JSON, found {error.msg} at line {error.lineno}") from None
    task = saved.get("task") if isinstance(saved, dict) else None
    if task not in RECIPES:
        raise InputError(f"{path}: expected the config.json of a run, with task one of {', '.join(RECIPES)}")
    recipe = RECIPES[task]()
    for key, value in flatten(saved).items():
        _set(recipe, key, _tuples(value), repr(value))
    return recipe


def _override(recipe: ConfigDict, override: str) -> None:
    name, equals, text = override.removeprefix("--").removeprefix("config.").partition("=")
    if not equals:
        raise InputError(f"{override}: expected --config.KEY=VALUE")
    _set(recipe, name, _parse(recipe, name, text), repr(text))


def _leaf(recipe: ConfigDict, name: str) -> tuple[ConfigDict, str]:
    """The ConfigDict that holds a dotted key, and the key's last part."""
    node = recipe
    *parents, last = name.split(".")
    for depth, part in enumerate([*parents, last]):
        if part not in node:
            where = ".".join(["config", *parents[:depth]])
            raise InputError(f"config.{name}: {where} has no key {part!r}{did_you_mean(part, node.keys())}")
        if depth < len(parents):
            if not isinstance(node[part], ConfigDict):
                raise InputError(f"config.{name}: config.{'.'.join(parents[: depth + 1])} has no keys inside")
            node = node[part]
    if isinstance(node[last], ConfigDict):
        raise InputError(f"config.{name}: expected one of its keys: {', '.join(sorted(node[last].keys()))}")
    return node, last


def _set(recipe: ConfigDict, name: str, value: Any, found: str) -> None:
    node, last = _leaf(recipe, name)
    expected = node.get_type(last)
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if value is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        raise InputError(f"config.{name}: expected {expected.__name__}, found {found}")
    try:
        node[last] = value
    except TypeError:
        raise InputError(f"config.{name}: expected {expected.__name__}, found {found}") from None


def _parse(recipe: ConfigDict, name: str, text: str) -> Any:
    """`text` as a value of the key's type. What cannot be read comes back as text, which _set refuses."""
    node, last = _leaf(recipe, name)
    expected = node.get_type(last)
    if expected is str:
        return text
    if expected is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if expected is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def _choices(c: ConfigDict) -> None:
    choices: dict[str, Iterable[str]] = {
        "task": RECIPES,
        "dtype": DTYPES,
        "layers": ("auto", "scan", "unroll"),
        "remat": ("auto", "none", "dots", "full"),
        "attention": ("auto", "xla", "fused", "splash", "cudnn"),
        "optimizer.name": OPTIMIZERS,
        "optimizer.schedule": SCHEDULES,
    }
    if c.task in PRETRAINING:
        choices["data.mask_unit"] = MASK_UNITS
    if c.task == "classification":
        choices["data.task_type"] = ("classification", "regression")
    for name, known in choices.items():
        value = flatten(c)[name]
        if value not in known:
            raise InputError(f"config.{name}: {value!r} is not known{did_you_mean(value, known)}")


# Key -> (the least value, whether it is itself allowed, the limit above, which is not).
_RANGES: dict[str, tuple[float, bool, float]] = {
    "seed": (0, True, 2**31),
    "model.vocab_size": (0, True, float("inf")),
    "global_batch_size": (1, True, float("inf")),
    "accumulation_steps": (1, True, float("inf")),
    "num_steps": (0, True, 2**31),
    "num_epochs": (0, True, float("inf")),
    "optimizer.learning_rate": (0, True, float("inf")),
    "optimizer.warmup_steps": (0, True, float("inf")),
    "optimizer.warmup_ratio": (0, True, 1),
    "optimizer.weight_decay": (0, True, float("inf")),
    "optimizer.beta1": (0, True, 1),
    "optimizer.beta2": (0, True, 1),
    "optimizer.eps": (0, False, float("inf")),
    "optimizer.clip_norm": (0, True, float("inf")),
    "optimizer.layer_decay": (0, False, float("inf")),
    "optimizer.average_decay": (0, True, 1),
    "log_every": (1, True, float("inf")),
    "eval_every": (0, True, float("inf")),
    "eval_batch_size": (0, True, float("inf")),
    "checkpoint_every": (0, True, float("inf")),
    "max_skipped_steps": (0, True, float("inf")),
    "warn_after_seconds": (0, True, float("inf")),
    "keep_checkpoints": (1, True, float("inf")),
    "model.generator_size": (0, False, float("inf")),
    "discriminator_weight": (0, True, float("inf")),
    "data.mask_prob": (0, False, 1),
    "data.hidden_share": (0, True, float("inf")),
    "data.random_share": (0, True, float("inf")),
    "data.static_masks": (0, True, float("inf")),
    "data.token_dropout": (0, True, 1),
    "r_drop": (0, True, float("inf")),
    "data.max_predictions": (0, True, float("inf")),
    "data.sequence_length": (8, True, float("inf")),
    "data.max_seq_length": (3, True, float("inf")),
    "data.eval_batches": (0, True, float("inf")),
}


def _ranges(c: ConfigDict) -> None:
    flat = flatten(c)
    for name, (low, low_allowed, high) in _RANGES.items():
        value = flat.get(name)
        if value is None:
            continue
        if not (low <= value < high) or (value == low and not low_allowed):  # also refuses NaN
            limits = f"at least {low}" if low_allowed else f"more than {low}"
            limits += f" and below {high}" if high != float("inf") else ""
            raise InputError(f"config.{name}: expected {limits}, found {value}")
    if c.optimizer.warmup_steps and c.optimizer.warmup_ratio:
        raise InputError("config.optimizer: expected warmup_steps or warmup_ratio, found both")
    if c.task in PRETRAINING and c.data.hidden_share + c.data.random_share > 1:
        raise InputError(
            "config.data: expected hidden_share + random_share of at most 1, "
            f"found {c.data.hidden_share} + {c.data.random_share}"
        )
    if c.profile and not (len(c.profile) == 2 and all(isinstance(n, int) and n > 0 for n in c.profile)):
        raise InputError(f"config.profile: expected (first step, number of steps), found {c.profile!r}")
    if "stages" in c:
        _check_stages(c)
    elif not c.num_steps and not c.num_epochs:
        raise InputError("config.num_steps: expected num_steps or num_epochs above 0, found neither")
    for batch_size in {stage[2] for stage in c.stages} if c.get("stages") else {c.global_batch_size}:
        if batch_size % c.accumulation_steps:
            raise InputError(
                f"config.accumulation_steps: expected a divisor of the batch size {batch_size}, "
                f"found {c.accumulation_steps}"
            )


def _check_stages(c: ConfigDict) -> None:
    for stage in c.stages:
        if not (isinstance(stage, tuple) and len(stage) == 3 and all(isinstance(n, int) and n > 0 for n in stage)):
            raise InputError(
                "config.stages: expected (num_steps, sequence_length, global_batch_size), three positive integers "
                f"each, found {stage!r}"
            )
    if c.stages:
        c.num_steps = sum(stage[0] for stage in c.stages)
        c.num_epochs = 0.0
    elif not c.num_steps and not c.num_epochs:
        raise InputError("config.num_steps: expected num_steps, num_epochs or stages, found none")
