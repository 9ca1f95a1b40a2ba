"""The verbs `inspect` and `convert`: describe a model directory, and write the model in the Hugging Face layout."""

import argparse
import dataclasses
import json
import math
from typing import Any

from bert_jax.cli.output import console, say, say_names
from bert_jax.cli.verbs import Verbs, add_verb


def add_verbs(verbs: Verbs) -> None:
    """Declare the verbs of this module."""
    inspect = add_verb(
        verbs,
        "inspect",
        run_inspect,
        "count a model's parameters and show its configuration",
        "MODEL is a model directory, or a named size of BERT (tiny, mini, small, medium, base, large).",
        """bert-jax inspect runs/sst2/model
           bert-jax inspect base --json""",
    )
    inspect.add_argument("model", metavar="MODEL", help="a model directory, or the name of a size")
    inspect.add_argument("--json", action="store_true", help="print one JSON object instead of tables")

    convert = add_verb(
        verbs,
        "convert",
        run_convert,
        "convert a model to the Hugging Face layout",
        "Reads a model directory of a supported family (docs/families.md) in any of these formats: model.safetensors, "
        "pytorch_model.bin, flax_model.msgpack, shards of these, and TensorFlow checkpoints (bert_model.ckpt.index "
        "with bert_config.json). Writes config.json, the weights and the tokenizer's files. Prints which tensors were "
        "read, left out or freshly initialised. Needs neither PyTorch nor TensorFlow, and runs no code in pickles. "
        "Merges a LoRA adapter written by peft (adapter_config.json) into its base model. SRC may also be one file of "
        "weights, such as the model.pt of a training script (docs/weights.md).",
        """bert-jax convert old-bert/ new-bert/
           bert-jax convert uncased_L-12_H-768_A-12/ bert-base/ --dtype bfloat16
           bert-jax convert pretrained/ start/ --head sequence_classification
           bert-jax convert model.pt new-bert/ --config bert-base/config.json --tokenizer bert-base/""",
    )
    convert.add_argument("source", metavar="SRC", help="a model directory, or a file of weights")
    convert.add_argument("destination", metavar="DST", help="a new directory")
    convert.add_argument(
        "--head",
        metavar="HEAD",
        help="head to write, such as masked_lm or sequence_classification (default: the model's head)",
    )
    convert.add_argument(
        "--dtype", default="float32", metavar="DTYPE", help="dtype to write: float32 (default), bfloat16 or float16"
    )
    convert.add_argument(
        "--family", default="", metavar="FAMILY", help="family: bert, roberta, ... (default: from config.json)"
    )
    convert.add_argument(
        "--base", metavar="DIR", help="base model of a LoRA adapter (default: the path in adapter_config.json)"
    )
    convert.add_argument(
        "--task", metavar="TASK", help="for Jina Embeddings v3: task whose adapter to merge, such as retrieval.query"
    )
    convert.add_argument(
        "--format", default="safetensors", metavar="FORMAT", help="format to write: safetensors (default) or flax"
    )
    convert.add_argument(
        "--config",
        metavar="CONFIG",
        help="config for a file of weights: a config.json, its directory, or values such as "
        "num_attention_heads=12,hidden_act=gelu,layer_norm_eps=1e-12 (default: the config.json beside the file)",
    )
    convert.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="vocabulary file, or directory with a tokenizer (default: beside the config or the weights)",
    )
    convert.add_argument(
        "--add-tokens", metavar="FILE", help="words to add to the vocabulary, one on each line (docs/domains.md)"
    )
    convert.add_argument(
        "--new-rows",
        default="pieces",
        metavar="ROWS",
        help="what an added word's embedding begins as: the mean of its pieces' (pieces, default) or of all (all)",
    )
    convert.add_argument(
        "--pad-rows-to", type=int, default=1, metavar="N", help="with --add-tokens: a multiple for the number of rows"
    )
    convert.add_argument("--tensors", action="store_true", help="list every tensor with its dtype and shape")


def run_inspect(args: argparse.Namespace) -> None:
    """Print the parameters of each part of a model, and its configuration."""
    from bert_jax import storage
    from bert_jax.config import BertConfig
    from bert_jax.config.parts import PLACES
    from bert_jax.config.values import SIZES
    from bert_jax.conversion.load_pretrained import load_pretrained
    from bert_jax.modeling import Bert

    notes = {}
    if args.model in SIZES and not storage.Path(args.model).is_dir():
        config, head = BertConfig.named(args.model), "pretraining"
    else:
        loaded = load_pretrained(args.model)
        config, head = loaded.config, loaded.head
        notes = {"initialised": loaded.missing, "unused": loaded.unused}
    shapes = Bert(config, head).abstract_params()
    fields = dataclasses.asdict(config)
    for place in PLACES:
        fields |= fields.pop(place)
    parts = {part: _count(shapes[part]) for part in sorted(shapes, key=_place)}
    if args.json:
        print(json.dumps({"head": head, "parameters": parts, "config": fields} | notes))
        return
    _print_tables(args.model, head, parts, fields, notes)


def _place(part: str) -> tuple[int, str]:
    """Return the sort key of a model's part: embeddings, encoder, pooler, then the heads by name."""
    trunk = ("embeddings", "encoder", "pooler")
    return (trunk.index(part) if part in trunk else len(trunk), part)


def _count(tree: Any) -> int:
    """Count the parameters in a nested dict of shapes."""
    if isinstance(tree, dict):
        return sum(_count(child) for child in tree.values())
    return int(tree.size)


def _print_tables(name: str, head: str, parts: dict[str, int], config: dict, notes: dict[str, list[str]]) -> None:
    from rich.table import Table

    screen = console()
    total = sum(parts.values())
    table = Table("part", title=f"{name}: {config['family']} for {head.replace('_', ' ')}", title_justify="left")
    for column in ("parameters", "share", "MB in float32"):
        table.add_column(column, justify="right")
    for part, count in parts.items():
        table.add_row(part, f"{count:,}", f"{count / total:.1%}", f"{count * 4 / 1e6:,.1f}")
    table.add_section()
    table.add_row("total", f"{total:,}", "100.0%", f"{total * 4 / 1e6:,.1f}")
    screen.print(table)
    settings = Table("setting", "value", title="configuration", title_justify="left")
    for key, value in config.items():
        settings.add_row(key, str(value))
    screen.print(settings)
    for what, tensors in notes.items():
        say_names(f"{what} tensors", tensors)


def run_convert(args: argparse.Namespace) -> None:
    """Convert a model directory."""
    from bert_jax.conversion.convert import convert
    from bert_jax.conversion.model_kinds import is_encoder_decoder
    from bert_jax.errors import InputError, did_you_mean
    from bert_jax.families import FAMILIES
    from bert_jax.tokenization import has_tokenizer, load_tokenizer

    if args.family and args.family not in FAMILIES:
        raise InputError(f"--family {args.family!r} is not known{did_you_mean(args.family, FAMILIES)}")
    if args.head is None and is_encoder_decoder(args.source):
        _convert_encoder_decoder(args)
        return
    options = {"head": args.head, "family": args.family, "base": args.base, "task": args.task,
               "config": _config(args.config), "tokenizer": args.tokenizer}  # fmt: skip
    if args.add_tokens:
        _convert_with_tokens(args, options)
        return
    loaded = convert(
        args.source,
        args.destination,
        lambda directory: load_tokenizer(directory) if has_tokenizer(directory) else None,
        dtype=args.dtype,
        weights=args.format,
        **options,
    )
    _print_tensors(loaded, args.tensors)
    kind = f"{loaded.config.family} for {loaded.head.replace('_', ' ')}"
    read = sum(math.prod(shape) for _, shape in loaded.read.values())
    say(f"{args.destination}: {kind}, {read:,} parameters read, written in {args.dtype}")
    if not has_tokenizer(loaded.directory):
        say("no tokenizer: the model takes token ids; --tokenizer names a vocabulary file or a directory with one")


def _convert_with_tokens(args: argparse.Namespace, options: dict[str, Any]) -> None:
    """Convert a model directory, and add the words of a file to its vocabulary."""
    from bert_jax import storage
    from bert_jax.conversion.added_tokens import extend_vocabulary
    from bert_jax.conversion.load_pretrained import load_pretrained
    from bert_jax.conversion.model_tokenizer import open_tokenizer
    from bert_jax.conversion.save_pretrained import save_pretrained
    from bert_jax.tokenization import has_tokenizer

    words = [line.strip() for line in storage.read_text(storage.Path(args.add_tokens)).splitlines() if line.strip()]
    loaded = load_pretrained(args.source, **options)
    before = open_tokenizer(loaded) if has_tokenizer(loaded.directory) else None
    config, params, tokenizer = extend_vocabulary(
        loaded.config, loaded.params, before, words, args.new_rows, args.pad_rows_to
    )
    save_pretrained(
        args.destination, config, loaded.head, params, tokenizer, settings=loaded.settings, dtype=args.dtype,
        weights=args.format,
    )  # fmt: skip
    added = tokenizer.vocab_size - (before.vocab_size if before else 0)
    say(
        f"{args.destination}: {added:,} of {len(words):,} words added, the others are one piece already or repeated; "
        f"{config.vocab_size:,} rows for {tokenizer.vocab_size:,} pieces, written in {args.dtype}"
    )


def _config(text: str | None) -> Any:
    """Return the value of `--config`: a path unchanged, or `key=value,...` as a dict."""
    from bert_jax import storage
    from bert_jax.errors import InputError

    if text is None or "=" not in text or storage.Path(text).exists():
        return text
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, is_pair, value = part.partition("=")
        if not is_pair or not key:
            raise InputError(f"--config: expected key=value, found {part!r}")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values


def _convert_encoder_decoder(args: argparse.Namespace) -> None:
    from bert_jax.conversion.encoder_decoder import load_encoder_decoder, save_encoder_decoder
    from bert_jax.errors import InputError
    from bert_jax.tokenization import has_tokenizer, load_tokenizer

    options = (
        ("family", ""),
        ("format", "safetensors"),
        *((name, None) for name in ("base", "task", "config", "tokenizer")),
    )
    for name, default in options:
        if (value := getattr(args, name) or default) != default:
            raise InputError(f"--{name}: expected {default or 'none'} for an encoder-decoder, found {value}")
    loaded = load_encoder_decoder(args.source)
    tokenizer = load_tokenizer(loaded.directory) if has_tokenizer(loaded.directory) else None
    save_encoder_decoder(
        args.destination, loaded.model, loaded.params, loaded.settings, tokenizer, dtype=args.dtype
    )  # fmt: skip
    kind = f"encoder-decoder of {loaded.model.config.family} and {loaded.model.decoder_config.family}"
    say(f"{args.destination}: {kind}, {_count(loaded.params):,} parameters read, written in {args.dtype}")


def _print_tensors(loaded: Any, each: bool) -> None:
    """Print how many tensors were read, left out or freshly initialised, and their names."""
    from rich.table import Table

    table = Table("tensors", "dtype", title=f"from {loaded.format}", title_justify="left")
    table.add_column("number", justify="right")
    table.add_column("parameters", justify="right")
    for dtype in sorted({dtype for dtype, _ in loaded.read.values()}):
        sizes = [math.prod(shape) for kind, shape in loaded.read.values() if kind == dtype]
        table.add_row("read", dtype, str(len(sizes)), f"{sum(sizes):,}")
    others = {"left out": loaded.unused, "freshly initialised": loaded.missing}
    for what, names in others.items():
        table.add_row(what, "", str(len(names)), "")
    console().print(table)
    if each:
        for name, (dtype, shape) in loaded.read.items():
            say(f"read: {name} {dtype} {list(shape)}")
    for what, names in others.items():
        say_names(what, names)
