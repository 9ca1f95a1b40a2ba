"""Inputs that once ended badly, or would, each by a name."""

import base64
import functools
import gzip
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from mutations import PARTS, RAW, Files
from targets import command, command_on_rows

Seeds = dict[str, list[Files]]
_DIGITS, _DEEP, _HALF = RAW["@digits"], RAW["@deep"], RAW["@half"]
_FAMILIES = (
    "bert", "distilbert", "roberta", "xlm-roberta", "camembert", "data2vec-text", "roberta-prelayernorm",
    "xlm-roberta-xl", "ernie", "megatron-bert", "albert", "electra", "mpnet", "nomic_bert", "modernbert",
    "deberta", "deberta-v2", "gte", "nomic-moe", "jina_embeddings_v3", "jina-bert", "jina-bert-qk", "longformer",
    "big_bird", "eurobert", "esm", "neobert", "roformer", "mobilebert",
)  # fmt: skip


class Named(NamedTuple):
    """A hostile input.

    Attributes:
        kind: one of `targets.KINDS`.
        files: of whole ones, those of its directory.
        run: uses them; None: as the kind does.
        number: chooses among ways of using them.
        slow: whether it takes too long for every run of the tests.
        prepare: makes what is no file with a content.
    """

    kind: str
    files: Callable[[Seeds], Files]
    run: Callable[[pathlib.Path, int], None] | None = None
    number: int = 1
    slow: bool = False
    prepare: Callable[[pathlib.Path], Any] | None = None


NAMED: dict[str, Named] = {}


def _add(name: str, kind: str, files: Callable[[Seeds], Files], **more: Any) -> None:
    assert name not in NAMED, name
    NAMED[name] = Named(kind, files, **more)


def _with(kind: str, index: int, changes: dict[str, bytes | None]) -> Callable[[Seeds], Files]:
    """A whole directory with some files in other words, or without them."""

    def make(seeds: Seeds) -> Files:
        changed = seeds[kind][index] | changes
        return {name: content for name, content in changed.items() if content is not None}

    return make


def _json_with(kind: str, index: int, name: str, changes: dict[str, Any]) -> Callable[[Seeds], Files]:
    """A whole directory with some keys of a JSON file; a value that is bytes is JSON already."""

    def make(seeds: Seeds) -> Files:
        whole = json.loads(seeds[kind][index].get(name, b"{}")) | changes
        text = json.dumps({key: f"@{key}" if isinstance(value, bytes) else value for key, value in whole.items()})
        for key, value in changes.items():
            if isinstance(value, bytes):
                text = text.replace(json.dumps(f"@{key}"), value.decode())
        return seeds[kind][index] | {name: text.encode()}

    return make


def _beside(kind: str, files: Files) -> Callable[[Seeds], Files]:
    """The model of a kind, and these files beside it."""
    return lambda seeds: {name: it for name, it in seeds[kind][0].items() if name.startswith("model/")} | files


# config.json

_VALUES: dict[str, list[Any]] = {
    "architectures": [3, True, {"a": 1}, "BertModel", [3], [[]], [None], [""]],
    "initializer_range": ["0.02", -1, 1e300, float("nan"), [0.02], True, b"1e999"],
    "layer_norm_eps": ["1e-12", -1.0, float("inf"), None, [], 0],
    "hidden_size": [10**9, 2**40, 0, -8, 8.0, "8", _DIGITS.encode()],
    "num_hidden_layers": [10**9, 2**62, -1, "2", 0],
    "vocab_size": [10**9, 2**40, -1],
    "max_position_embeddings": [10**12, -5, 1.5],
    "id2label": [["a", "b"], {"0": 1}, {"a": "b"}, {"0": "a", "2": "b"}, {"0": None}, 3, {"0": "x" * 60_000}],
    "label2id": [["a"], {"a": "0"}, {"a": 10**39}, {"a": -1}],
    "model_type": [None, 3, ["bert"], {"bert": 1}, "\x1b[31mbert"],
    "hidden_act": [3, ["gelu"], {"a": 1}, None, "x" * 60_000],
    "pad_token_id": [2**32, -1, 10**39, [0], "0"],
    "problem_type": [3, [], "none"],
    "rope_parameters": [3, [], {"rope_type": []}, {"full_attention": 3}],
    "layer_types": ["full_attention", [3], 5, {}, []],
    "num_labels": [-1, 10**9, "2", [2]],
    "torch_dtype": [3, [], {}],
    "auto_map": [3, [], {"a": 3}],
    "deep": [_DEEP.encode()],
    "half": [_HALF.encode()],
    "\ud800\x1b": [1],
}
for _family, _model_type in enumerate(_FAMILIES):
    for _key, _values in _VALUES.items():
        for _i, _value in enumerate(_values if _model_type in ("bert", "modernbert") else _values[:2]):
            _add(
                f"config {_model_type} {_key!a} {_i}",
                "config",
                _json_with("config", _family, "config.json", {_key: _value}),
            )
for _key in ("architectures", "hidden_size", "num_hidden_layers", "vocab_size", "id2label", "intermediate_size"):
    for _i, _value in enumerate(_VALUES.get(_key, [10**9, 2**40])[:4]):
        _add(f"model {_key} {_i}", "model", _json_with("model", 0, "config.json", {_key: _value}))
_add("model config of another family", "model", _json_with("model", 0, "config.json", {"model_type": "modernbert"}))

# Tokenizers of `seeds`: word pieces (0; 1 without tokenizer.json), bytes (4; 5 without), SentencePiece (6; 7 without).

_BASE = "tokenizer.json"
for _i, _part in enumerate(PARTS):
    for _where in ("normalizer", "pre_tokenizer", "decoder", "padding", "truncation", "post_processor"):
        _add(f"tokenizer {_where} {_i}", "tokenizer", _json_with("tokenizer", 0, _BASE, {_where: _part}))
for _i, _model in enumerate([
    {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]", "continuing_subword_prefix": "##"},
    {"type": "WordPiece", "vocab": {"[UNK]": 0, "[CLS]": 2**32 - 1, "[SEP]": 2}, "unk_token": "[UNK]"},
    {"type": "WordPiece", "vocab": {"[UNK]": 2**32}, "unk_token": "[UNK]"},
    {"type": "WordPiece", "vocab": {"[UNK]": -1}, "unk_token": "[UNK]"},
    {"type": "Unigram", "unk_id": 5, "vocab": [["[UNK]", 0.0]]},
    {"type": "Unigram", "unk_id": None, "vocab": []},
    {"type": "Unigram", "unk_id": 0, "vocab": [["", 0.0], ["a", float("nan")], ["b", float("inf")]]},
    {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]},
    {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"], "unk_token": "x" * 60_000},
    {"type": "BPE", "vocab": {}, "merges": [], "dropout": 5.0},
    {"type": "WordLevel", "vocab": {}, "unk_token": "a"},
    {"type": "\x1b[31m"}, 3, [], None,
]):  # fmt: skip
    _add(f"tokenizer model {_i}", "tokenizer", _json_with("tokenizer", 0, _BASE, {"model": _model}))
for _i, _tokens in enumerate([
    [{"id": 2**32 - 1, "content": "[X]", "special": True}], [{"id": 2**32, "content": "[X]"}], [{"id": -1}], 3, [3],
    [{"id": 0, "content": "", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
    "special": True}],
    [{"id": 0, "content": "x" * 60_000, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True,
      "special": True}], _DIGITS.encode(), _DEEP.encode(), _HALF.encode(),
]):  # fmt: skip
    _add(f"tokenizer added_tokens {_i}", "tokenizer", _json_with("tokenizer", 0, _BASE, {"added_tokens": _tokens}))
for _i, _pieces in enumerate(
    [b"", b"a", b"[CLS]\n[SEP]\n", b"\n" * 1000, b"[UNK]\n" * 5, b"\xff", b"\0\n[UNK]\n", b"[PAD]\r[UNK]"]
):
    _add(f"vocab.txt {_i}", "tokenizer", _with("tokenizer", 1, {"vocab.txt": _pieces}))
for _file in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
    for _i, _content in enumerate([
        _DEEP.encode(), b'{"mask_token": %s}' % _HALF.encode(), b"[]", b"3",
        b'{"model_max_length": %s}' % _DIGITS.encode(),
        b'{"mask_token": {"content": ["a"]}}', b'{"vocab_file": "/dev/zero"}', b'{"vocab_file": ["a"]}',
        b'{"vocab_file": ".."}',
        b'{"tokenizer_class": 3, "model_input_names": 3}', b'{"model_input_names": {"a": 1}}', b'{"a": 4294967296}',
        b'{"additional_special_tokens": 3}', b'{"added_tokens_decoder": {"x": 3}}', b'{"added_tokens_decoder": [1]}',
        b'{"added_tokens_decoder": {"4294967296": {"content": "a"}}}', b'{"a": 1e999}', b'{"": 0}',
        b'{"do_lower_case": "x"}',
    ]):  # fmt: skip
        for _index in (0, 1, 5, 7):
            _add(f"{_file} {_i} {_index}", "tokenizer", _with("tokenizer", _index, {_file: _content}))
for _i, _content in enumerate(
    [b"", b"a", b"a b c\n", b"#version\n\n", b"\xff\xff", b"a b\n" * 3, b"\xc4\xa0 \xc4\xa0\n"]
):
    _add(f"merges.txt {_i}", "tokenizer", _with("tokenizer", 4, {"merges.txt": _content, "tokenizer.json": None}))


def _with_charsmap(charsmap: bytes) -> Callable[[Seeds], Files]:
    def make(seeds: Seeds) -> Files:
        from sentencepiece import sentencepiece_model_pb2

        files = seeds["tokenizer"][7]
        name = next(name for name in files if name.endswith(".model"))
        model: Any = sentencepiece_model_pb2.ModelProto.FromString(files[name])  # type: ignore[attr-defined]
        model.normalizer_spec.precompiled_charsmap = charsmap
        return {"spiece.model": model.SerializeToString()}

    return make


for _i, _charsmap in enumerate(
    [b"\xff" * 4, b"\x04\0\0\0" + b"\xff" * 8, b"\x08\0\0\0" + b"\0" * 4, b"\0", b"\xff" * 4000]
):
    _add(f"charsmap of a model {_i}", "tokenizer", _with_charsmap(_charsmap))
    _part = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(_charsmap).decode()}
    _add(f"charsmap of a tokenizer.json {_i}", "tokenizer", _json_with("tokenizer", 6, _BASE, {"normalizer": _part}))

# Sentence transformers.

for _name in (
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
):
    for _i, _content in enumerate([
        b"", b"[]", b"{}", b"3", b"[3]", b"[{}]", _DEEP.encode(), b'{"a": %s}' % _DIGITS.encode(),
        b'{"a": %s}' % _HALF.encode(),
        b'[{"idx": 0, "name": "0", "path": "../../..", "type": "sentence_transformers.models.Transformer"}]',
        b'[{"idx": 0, "name": "0", "path": 3, "type": 3}]', b'[{"path": "/dev", "type": "x.Pooling"}]',
        b"[" + b"{}," * 9000 + b"{}]",
        b'{"max_seq_length": 1e999, "do_lower_case": 3}', b'{"prompts": 3}',
        b'{"prompts": {"a": 3}, "default_prompt_name": "b"}',
        b'{"pooling_mode": {"a": 1}}', b'{"pooling_mode": [3]}', b'{"word_embedding_dimension": "x"}',
        b'{"similarity_fn_name": []}',
    ]):  # fmt: skip
        _add(f"{_name} {_i}", "sentence_embedding", _with("sentence_embedding", 0, {_name: _content}))

# Texts, tables, corpora.

_ROW = b'{"text": %s}\n'


@functools.cache
def _bomb() -> bytes:
    """100 MB of zeros; what is compressed may follow itself."""
    return gzip.compress(bytes(100 << 20), 1, mtime=0)


_STREAMS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "half a surrogate pair": ("a.jsonl", lambda: _ROW % _HALF.encode()),
    "thousands of digits": ("a.jsonl", lambda: _ROW % _DIGITS.encode()),
    "deep nesting": ("a.jsonl", lambda: _ROW % _DEEP.encode()),
    "a value of 60 kB": ("a.jsonl", lambda: _ROW % (b"[" + b'"x", ' * 12_000 + b"1]")),
    "a key of 60 kB": ("a.jsonl", lambda: b'{"%s": 1}\n' % (b"\\u001b" * 10_000)),
    "a line that repeats itself": ("a.txt", lambda: b"a cat sat on the mat; " * 15_000),
    "a line of 20 MB": ("a.txt", lambda: b"a b " * (5 << 20)),
    "a line of 20 MB of JSON": ("a.jsonl", lambda: _ROW % b'"%s"' % (b"a b " * (5 << 20))),
    "a bomb of 100 MB": ("a.txt.gz", _bomb),
}
_SLOW_STREAMS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a line of 100 MB": ("a.txt", lambda: b"x" * (100 << 20)),
    "a bomb of 10 GB": ("a.txt.gz", lambda: _bomb() * 100),
    "a bomb of 10 GB of JSON": ("a.jsonl.gz", lambda: _bomb() * 100),
}


def _add_stream(name: str, file: str, content: Callable[[], bytes], slow: bool) -> None:
    def beside(seeds: Seeds) -> Files:
        return _beside("lines", {file: content()})(seeds)

    _add(f"lines: {name}", "lines", beside, slow=slow, number=1)
    _add(f"lines, --json: {name}", "lines", beside, slow=slow, number=0)
    _add(f"corpus: {name}", "corpus", lambda seeds: {file: content()}, slow=slow, number=4)
    for trainer, number in (("wordpiece", 75), ("sentencepiece", 70), ("bpe", 65)):
        if trainer == "sentencepiece" and "a line of" in name:
            continue  # to learn from 20 MB takes minutes, and the library's memory grows with them
        _add(f"{trainer}: {name}", "corpus", lambda seeds: {file: content()}, slow=slow or "MB" in name, number=number)


for _name, (_file, _text) in _STREAMS.items():
    _add_stream(_name, _file, _text, False)
for _name, (_file, _text) in _SLOW_STREAMS.items():
    _add_stream(_name, _file, _text, True)


def _table(rows: bytes | Callable[[], bytes], name: str = "a.tsv") -> Callable[[Seeds], Files]:
    return lambda seeds: _beside("classifier", {name: rows if isinstance(rows, bytes) else rows()})(seeds)


_HEAD = b"sentence\tlabel\n"
_JSON_ROW = b'{"sentence": "a", "label": %s}\n'
_TABLES: dict[str, tuple[Callable[[Seeds], Files], bool]] = {
    "a million labels": (_table(lambda: _HEAD + b"".join(b"a\tlabel %d\n" % i for i in range(10**6))), True),
    "20,000 labels": (_table(lambda: _HEAD + b"".join(b"a\tlabel %d\n" % i for i in range(20_000))), False),
    "labels of 10^39": (_table(_HEAD + b"a\t1%s\nb\t2%s\n" % (b"0" * 39, b"0" * 39)), False),
    "labels of 60 kB": (_table(_HEAD + b"a\t%s\nb\t\x1b[31m\n" % (b"x" * 60_000)), False),
    "a label of half a pair": (_table(_JSON_ROW % _HALF.encode(), "a.jsonl"), False),
    "a label of 5,000 digits": (_table(_JSON_ROW % _DIGITS.encode(), "a.jsonl"), False),
    "a label that is deep": (_table(_JSON_ROW % _DEEP.encode(), "a.jsonl"), False),
    "a cell of 20 MB": (_table(lambda: _HEAD + b"a b " * (5 << 20) + b"\tgood\n"), False),
    "a quote that stays open": (_table(lambda: b'sentence,label\n"' + b"a b\n" * (5 << 20), "a.csv"), False),
    "a bomb": (_table(_bomb, "a.tsv.gz"), False),
    "a bomb of 10 GB, CSV": (_table(lambda: _bomb() * 100, "a.csv.gz"), True),
    "a bomb of 10 GB, JSON": (_table(lambda: _bomb() * 100, "a.jsonl.gz"), True),
    "a header of 100,000 columns": (_table(lambda: b"\t".join(b"%d" % i for i in range(10**5)) + b"\n"), False),
    "a column twice": (_table(b"sentence\tlabel\tlabel\na\tb\tc\n"), False),
    "nothing": (_table(b""), False),
    "zeros": (_table(bytes(1000)), False),
}
for _name, (_make, _slow) in _TABLES.items():
    _add(f"table: {_name}", "classifier", _make, slow=_slow, number=1)
    _add(f"regression: {_name}", "classifier", _make, slow=_slow, number=5)
    if _name == "a million labels":
        continue  # as many rows are answered, which takes minutes
    _add(f"evaluate: {_name}", "classifier", _make, run=command_on_rows, slow=_slow, number=1)
    _add(f"predict: {_name}", "classifier", _make, run=command_on_rows, slow=_slow, number=0)
for _kind, _file in (("tagger", "a.conll"), ("tagger", "a.jsonl"), ("squad", "a.json")):
    for _name, _content in {
        "deep": _DEEP.encode(), "digits": _DIGITS.encode(), "half": _HALF.encode(), "zeros": bytes(1000),
        "a line of 20 MB": b"a b " * (5 << 20), "nothing": b"", "an endless word": b"x" * (5 << 20) + b" O\n",
    }.items():  # fmt: skip
        _add(f"{_kind} {_file}: {_name}", _kind, _beside(_kind, {_file: _content}))
for _name, _make_special in {
    "a pipe": lambda path: os.mkfifo(path), "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path), "a folder": lambda path: path.mkdir(),
    "stdin of another": lambda path: path.symlink_to("/dev/stdin"),
}.items():  # fmt: skip
    for _kind, _file in (("classifier", "a.tsv"), ("lines", "a.txt"), ("tagger", "a.conll"), ("squad", "a.json")):
        _add(f"{_kind} in {_name}", _kind, _beside(_kind, {}),
             prepare=lambda folder, make=_make_special, file=_file: make(folder / file))  # fmt: skip
    _add(
        f"corpus in {_name}",
        "corpus",
        lambda seeds: {},
        prepare=lambda folder, make=_make_special: make(folder / "a.txt"),
    )
    for _file in ("config.json", "vocab.txt", "model.safetensors", "tokenizer.json"):

        def _replaced(folder: pathlib.Path, make: Any = _make_special, file: str = _file) -> None:
            (folder / file).unlink(missing_ok=True)
            make(folder / file)

        _add(f"{_file} is {_name}", "model", lambda seeds: dict(seeds["model"][0]), prepare=_replaced)


def _argument(verb: str, model: str, *words: str) -> None:
    _add(f"{verb} {words!a}", model, lambda seeds: {}, run=lambda folder, number: None)
    NAMED[f"{verb} {words!a}"] = Named(
        model, _beside(model, {}), lambda folder, number: command(verb, folder / "model", *words)
    )


for _text in ("\ud800", "a\udcff", "\x1b[2J", "\u202ea", "x" * 60_000, "\0"):
    _argument("classify", "classifier", _text)
    _argument("tag", "tagger", _text)
    _argument("answer", "squad", _text, "--text", "the cat sat")
    _argument("answer", "squad", "who?", "--text", f"the cat {_text}")

# Runs and recipes.


def _replaced_data(folder: pathlib.Path, number: int) -> None:
    """predict --out DATA --data DATA may not replace the user's rows by answers."""
    data = folder / "a.jsonl"
    before = data.read_bytes()
    command("predict", "--model", folder / "model", "--data", data, "--out", data)
    assert data.read_bytes() == before, "the data were replaced by the answers"


_add("predict onto its own data", "classifier",
     _table(b'{"sentence": "a", "label": "good"}\n', "a.jsonl"), run=_replaced_data)  # fmt: skip
for _i, _content in enumerate([
    b"", b"{", b"[]", b'{"merit": "a"}', b'{"merit": null}', b'{"merit": NaN}', b"{}", b"\xff", _DEEP.encode(),
    b'{"merit": %s}' % _DIGITS.encode(), b'{"merit": [1]}', b'{"merit": 1e999}',
]):  # fmt: skip
    _add(f"merit of a checkpoint {_i}", "run", _with("run", 0, {"checkpoints/2/metrics/metrics": _content}))
for _i, _content in enumerate([b"", b"{", b"[]", b"3", b'{"init_timestamp_nsecs": {}}', b"\xff", _DEEP.encode()]):
    _add(f"_CHECKPOINT_METADATA {_i}", "run", _with("run", 0, {"checkpoints/3/_CHECKPOINT_METADATA": _content}))
for _i, _content in enumerate(
    [
        b"3\n",
        b"[]\n",
        b'{"step": "x"}\n',
        b'{"train/loss": 1}\n',
        b"\xff\n",
        _DEEP.encode(),
        b'{"step": 1, "train/$\\\\x$": "a"}\n',
    ]
):
    _add(f"metrics.jsonl {_i}", "run", _with("run", 0, {"metrics.jsonl": _content}))
for _i, _content in enumerate([
    b"", b"[]", b"3", _DEEP.encode(), b'{"task": ["classification"]}', b'{"task": {"a": 1}}',
    b'{"task": %s}' % _DIGITS.encode(),
    b'{"task": "classification", "num_epochs": 1e999}', b'{"task": "classification", "num_epochs": 1e12}',
    b'{"task": "classification", "optimizer": 3}', b'{"task": "classification", "optimizer": {"eps": 1e-300}}',
    b'{"task": "classification", "num_steps": %s}' % _DIGITS.encode(), b'{"task": "classification", "seed": -1}',
    b'{"task": "classification", "mesh": {"data": 0}}', b'{"task": "classification", "global_batch_size": 1e39}',
    b'{"task": "classification", "data": {"train": %s}}' % _HALF.encode(), b'{"task": "classification", "": {"": 1}}',
]):  # fmt: skip
    _add(f"recipe {_i}", "recipe", lambda seeds, content=_content: {"config.json": content})
