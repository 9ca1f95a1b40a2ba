"""Load a tokenizer from the files of a model directory."""

import dataclasses
from typing import TYPE_CHECKING, Any

import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError, logger
from bert_jax.lazy import LazyModule
from bert_jax.model_files import check_keys
from bert_jax.model_files.tokenizer import TOKENIZER_CONFIG
from bert_jax.storage import PathLike
from bert_jax.tokenization.added_tokens import add_tokens_of_files
from bert_jax.tokenization.backends import backend_of, part_of, sep_and_cls
from bert_jax.tokenization.classes import (
    ALBERT,
    BIG_BIRD,
    BYTE_LEVEL_BPE,
    CAMEMBERT,
    DEBERTA,
    DEBERTA_BPE,
    FAST_BPE,
    MPNET,
    RESIDUES,
    RJIEBA,
    WORD_PIECE,
    XLM_ROBERTA,
    fits_model,
)
from bert_jax.tokenization.huggingface import BackendTokenizer, has_token_types
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.layout import layout_of
from bert_jax.tokenization.names import (
    ALBERT_SPECIALS,
    ESM_SPECIALS,
    MPNET_SPECIALS,
    ROBERTA_SPECIALS,
    WORD_PIECE_SPECIALS,
)
from bert_jax.tokenization.patterns import hide_patterns
from bert_jax.tokenization.settings import TokenizerFiles, named_special, read_files
from bert_jax.tokenization.tokenizer_json import check_tokenizer_json
from bert_jax.tokenization.tokenizer_json_settings import override_normalizer

if TYPE_CHECKING:
    from bert_jax.tokenization import byte_level, families
else:
    byte_level = LazyModule("bert_jax.tokenization.byte_level")
    families = LazyModule("bert_jax.tokenization.families")

_log = logger(__name__)

# Default names of each special token, in order of preference.
_SPECIAL_NAMES = {
    "pad": ("[PAD]", "<pad>", "<|end_of_text|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>", "<|begin_of_text|>"),
    "sep": ("[SEP]", "<sep>", "</s>", "<|end_of_text|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
}
_SPECIALS: dict[str, dict[str, str]] = {
    WORD_PIECE: WORD_PIECE_SPECIALS,
    MPNET: MPNET_SPECIALS,
    BYTE_LEVEL_BPE: ROBERTA_SPECIALS,
    XLM_ROBERTA: ROBERTA_SPECIALS,
    CAMEMBERT: ROBERTA_SPECIALS,
    ALBERT: ALBERT_SPECIALS,
    BIG_BIRD: ALBERT_SPECIALS,
    DEBERTA: WORD_PIECE_SPECIALS,
    DEBERTA_BPE: WORD_PIECE_SPECIALS,
    RESIDUES: ESM_SPECIALS,
    RJIEBA: WORD_PIECE_SPECIALS,
}
_ALGORITHMS = {
    "vocab.txt": (WORD_PIECE, MPNET, FAST_BPE, RESIDUES, RJIEBA),
    "vocab.json": (BYTE_LEVEL_BPE, DEBERTA_BPE),
    "*.model": (XLM_ROBERTA, CAMEMBERT, ALBERT, DEBERTA, BIG_BIRD),
}


def load_tokenizer(path: PathLike, lowercase: bool | None = None) -> Tokenizer:
    """Load the tokenizer in a file or directory.

    Args:
        path: `tokenizer.json`, `vocab.txt` (one token per line; with `bpe.codes` beside it, PhoBERT's or BERTweet's),
            `vocab.json` with `merges.txt` beside it (RoBERTa, DeBERTa), a SentencePiece `*.model`, or a directory with
            one of these. In a directory, the vocab_file of `tokenizer_config.json` comes first, then the order above.
            `tokenizer_config.json` is honoured: do_lower_case, strip_accents, keep_accents, tokenize_chinese_chars,
            add_prefix_space, trim_offsets, model_max_length, model_input_names, and names of special tokens. Its
            tokenizer_class, or the model_type of `config.json`, distinguishes the models of XLM-R, CamemBERT and ALBERT
            from others, and MPNet's `vocab.txt` from BERT's.
        lowercase: whether to lower-case text, overriding the files; no effect for RoBERTa, XLM-R and ModernBERT. If
            neither decides, a vocab.txt counts as uncased if no token outside brackets has an ASCII capital.

    Raises:
        InputError: there is no tokenizer, or the content of a file does not match its name.
    """
    path = storage.Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    files = TokenizerFiles()
    if path.is_dir():
        files = read_files(path)
        has_modules = files.model_type is None and any((at / "modules.json").exists() for at in (path, path.parent))
        if has_modules or files.model_type in ("model2vec", "static_embedding"):
            from bert_jax.tokenization import static_tokenizer

            if static_tokenizer.has_static_tokenizer(path, files.model_type):
                return static_tokenizer.load_static_tokenizer(path)
        path = _vocabulary_file(path, files)
    if lowercase is not None:
        files.settings["do_lower_case"] = lowercase
    try:
        return _from_file(path, files, forced=lowercase is not None)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(str(path.parent)) else f"{path}: {error}") from None


def has_tokenizer(directory: PathLike) -> bool:
    """Return whether a directory has a vocabulary file that `load_tokenizer` reads. True for a file."""
    if (path := storage.Path(directory)).is_file():
        return True
    names = [file.name for file in path.iterdir()]
    return any(name in ("tokenizer.json", "vocab.txt", "vocab.json") or name.endswith(".model") for name in names)


def _from_file(path: storage.Path, files: TokenizerFiles, forced: bool) -> Tokenizer:
    kind = "vocab.json" if path.name.endswith("vocab.json") else f"*{path.suffix}"
    kind = "vocab.txt" if kind == "*.txt" else kind
    algorithm = files.algorithm
    if kind in _ALGORITHMS and algorithm is not None and algorithm not in _ALGORITHMS[kind]:
        if kind != "*.model" or files.explicit:  # a *.model defines its own algorithm
            name = files.settings.get("tokenizer_class") or files.family
            raise InputError(f"expected a vocabulary of {algorithm} for {name}, found a {kind}")
        algorithm = None
    if kind == "*.json":
        return _from_json(storage.read_json(path), files, forced)
    from bert_jax.tokenization.vocabulary_files import open_vocabulary

    return open_vocabulary(path, kind, algorithm, files)


def _vocabulary_file(directory: storage.Path, files: TokenizerFiles) -> storage.Path:
    # transformers reads no tokenizer.json for PhoBERT, BERTweet and ESM; a RoFormer's lacks the word segmentation.
    file_of_class = "vocab.txt" if files.algorithm in (FAST_BPE, RESIDUES, RJIEBA) else None
    for name in (file_of_class, files.settings.get("vocab_file"), "tokenizer.json", "vocab.txt", "vocab.json"):
        if isinstance(name, str) and "/" not in name and (directory / name).exists():
            return directory / name
    models = sorted(p for p in directory.iterdir() if p.suffix == ".model")
    if len(models) != 1:
        names = ", ".join(p.name for p in models) or "none"
        raise InputError(
            f"{directory}: expected a tokenizer.json, a vocab.txt, a vocab.json or one *.model, found {names}"
        )
    return models[0]


def _from_json(content: dict[str, Any], files: TokenizerFiles, forced: bool) -> Tokenizer:
    settings = files.settings
    check_tokenizer_json(content)
    model = content["model"].get("type", "WordPiece")
    if files.explicit and not fits_model(name := settings["tokenizer_class"], model):
        _log.warn_once(
            f"tokenizer.json: its model {model} does not fit the class {name}; the file is used, not the class"
        )
        files = dataclasses.replace(files, algorithm=None)
    for part, name in (("padding", "padding_side"), ("truncation", "truncation_side")):
        side = (content.pop(part, None) or {}).get("direction")
        if side and not (files.either_padding and part == "padding"):
            settings.setdefault(name, side.lower())
    check_keys({"padding_side": settings.get("padding_side")}, TOKENIZER_CONFIG, "tokenizer.json: padding")
    is_generic = files.explicit and files.algorithm is None  # such classes use tokenizer.json unchanged
    if model == "WordPiece" and (forced or not is_generic):
        override_normalizer(content.get("normalizer"), settings, files.algorithm)
    if files.algorithm == MPNET or content.get("decoder") is None:  # unlike BERT's tokenizer, as in transformers 5
        settings.setdefault("clean_up_tokenization_spaces", False)
    if files.algorithm in (BYTE_LEVEL_BPE, DEBERTA_BPE):
        byte_level.override_byte_level(content, settings)
    if files.algorithm == ALBERT:
        families.override_albert(content, settings)
    if files.algorithm == DEBERTA_BPE:  # for the original class, transformers 5 ignores the file's row layout
        settings |= byte_level.DEBERTA_CLASS
    hide_patterns(content)
    backend = backend_of(content)
    special = _specials_of(backend, files)
    special = add_tokens_of_files(backend, special, files)
    if backend.decoder is None and not is_generic:
        backend.decoder = _decoder_of(files.algorithm, model)
    ids, typed = backend.get_vocab(with_added_tokens=True), has_token_types(settings)
    if layout_of(part_of(backend.post_processor), ids, typed) is None:
        _lay_out(backend, special)
    kind = BackendTokenizer
    if files.algorithm == RJIEBA:
        from bert_jax.tokenization.roformer import RoFormerTokenizer

        kind = RoFormerTokenizer
    tokenizer = kind(backend, special, settings)
    tokenizer.check_patterns()
    return tokenizer


def _decoder_of(algorithm: str | None, model: str) -> Any:
    """Return the decoder for a tokenizer.json that has none."""
    if algorithm in (BYTE_LEVEL_BPE, DEBERTA_BPE):
        return tokenizers.decoders.ByteLevel()
    if model == "Unigram" and algorithm is not None:
        return tokenizers.decoders.Metaspace()
    return tokenizers.decoders.WordPiece() if model == "WordPiece" else None


def _lay_out(backend: tokenizers.Tokenizer, special: dict[str, str]) -> None:
    """Add a row layout to a tokenizer without one.

    It is RoBERTa's if its cls token is `<s>`, none around texts if the cls token is the sep token, else BERT's.
    """
    tokens = sep_and_cls(special, backend)
    rows: tokenizers.processors.PostProcessor = tokenizers.processors.BertProcessing(*tokens)
    if special["cls"] == "<s>":
        rows = tokenizers.processors.RobertaProcessing(*tokens, trim_offsets=False, add_prefix_space=False)
    if special["cls"] == special["sep"]:
        rows = tokenizers.processors.TemplateProcessing(single="$A", pair="$A $B:1")
    other = backend.post_processor
    backend.post_processor = rows if other is None else tokenizers.processors.Sequence([other, rows])


def _specials_of(backend: tokenizers.Tokenizer, files: TokenizerFiles) -> dict[str, str]:
    """Return the special tokens by role: from the settings, else by their default names.

    Tokens that the file declares special are preferred to ordinary tokens with a default name: MPNet's vocabulary
    also has BERT's special tokens.
    """
    declared = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    added = {token.content for token in files.added.values()}
    defaults_of_class = _SPECIALS.get(files.algorithm or "", {})
    special = {}
    for role, default_names in _SPECIAL_NAMES.items():
        if role == "mask" and files.settings.get("mask_token", "") is None:
            continue
        named = named_special(role, files.settings)
        candidates = (named, *sorted(default_names, key=lambda name: name not in declared))
        tokens = [token for token in candidates if token and (token in added or backend.token_to_id(token) is not None)]
        tokens += [token for token in (named, defaults_of_class.get(role)) if token]
        if tokens:
            special[role] = tokens[0]
    # Llama's tokenizers define only bos and eos, Qwen's only eos.
    for role, others in (("cls", ("bos", "eos")), ("sep", ("eos",))):
        named = (named_special(other, files.settings) for other in others)
        tokens = [token for token in named if token and backend.token_to_id(token) is not None]
        if role not in special and tokens:
            special[role] = tokens[0]
    return special
