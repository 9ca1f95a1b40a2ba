"""Load a tokenizer from the files of a model directory."""

import dataclasses
from typing import Any

import tokenizers

from bert_jax import storage
from bert_jax.errors import InputError, logger, printable
from bert_jax.model_files import check_keys
from bert_jax.model_files.tokenizer import TOKENIZER_CONFIG
from bert_jax.storage import PathLike
from bert_jax.tokenization.added_tokens import add_tokens
from bert_jax.tokenization.backends import backend_of, part_of, sep_and_cls
from bert_jax.tokenization.big_bird import big_bird
from bert_jax.tokenization.byte_level import DEBERTA_CLASS, deberta, read_merges
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
from bert_jax.tokenization.families import (
    ALBERT_SPECIALS,
    MPNET_SPECIALS,
    ROBERTA_SPECIALS,
    albert,
    byte_level_bpe,
    camembert,
    deberta_v2,
    mpnet,
    xlm_roberta,
)
from bert_jax.tokenization.fast_bpe import CODES_FILE, VOCABULARY_FILE, FastBpeTokenizer
from bert_jax.tokenization.huggingface import WORD_PIECE_SPECIALS, BackendTokenizer, has_token_types, word_piece
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.layout import layout_of
from bert_jax.tokenization.patterns import hide_patterns
from bert_jax.tokenization.residues import ESM_SPECIALS, residue_tokenizer
from bert_jax.tokenization.roformer import RoFormerTokenizer, roformer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
from bert_jax.tokenization.settings import (
    TokenizerFiles,
    check_id,
    named_special,
    named_specials,
    read_files,
)
from bert_jax.tokenization.tokenizer_json import check_tokenizer_json
from bert_jax.tokenization.tokenizer_json_settings import override_albert, override_byte_level, override_normalizer

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
_OF_MODELS = {XLM_ROBERTA: xlm_roberta, CAMEMBERT: camembert, BIG_BIRD: big_bird}
_MAX_BYTES = 256 << 20  # limit of a vocabulary file
_CASED = 0.05  # share of capitalized words; BERT's cased vocabulary has 0.26
# Characters that are stripped from the end of a line of vocab.txt, as in the tokenizers library: Unicode White_Space.
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


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
            neither is given, a vocab.txt counts as uncased if no token outside brackets has an ASCII capital.

    Raises:
        InputError: there is no tokenizer, or the content of a file does not match its name.
    """
    path = storage.Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    files = TokenizerFiles()
    if path.is_dir():
        files = read_files(path)
        path = _vocabulary_file(path, files)
    if lowercase is not None:
        files.settings["do_lower_case"] = lowercase
    try:
        return _from_file(path, files, forced=lowercase is not None)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(str(path.parent)) else f"{path}: {error}") from None


def has_tokenizer(directory: PathLike) -> bool:
    """Return whether a directory has a vocabulary file that `load_tokenizer` reads. A file counts as one."""
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
    if kind == "vocab.json":
        return _from_merges(path, files)
    if kind == "*.json":
        return _from_json(storage.read_json(path), files, forced)
    if kind == "*.model" and algorithm in _OF_MODELS:
        special = named_specials(_SPECIALS[algorithm], files.settings)
        prefix = files.settings.get("add_prefix_space", True)
        return _OF_MODELS[algorithm](_bytes(path), special=special, add_prefix_space=prefix, files=files)
    if kind == "*.model" and algorithm == DEBERTA:
        return deberta_v2(
            _bytes(path),
            special=named_specials(WORD_PIECE_SPECIALS, files.settings),
            lowercase=bool(files.settings.get("do_lower_case")),
            split_by_punct=bool(files.settings.get("split_by_punct")),
            add_prefix_space=files.settings.get("add_prefix_space", True),
            files=files,
        )
    if kind == "*.model" and algorithm == ALBERT:
        settings = files.settings
        return albert(
            _bytes(path),
            special=named_specials(ALBERT_SPECIALS, settings),
            lowercase=settings.get("do_lower_case", True),
            keep_accents=settings.get("keep_accents", False),
            add_prefix_space=settings.get("add_prefix_space", True),
            files=files,
        )
    if kind == "*.model":
        return SentencePieceTokenizer(_bytes(path), files=files)
    has_codes = kind == "vocab.txt" and (path.parent / CODES_FILE).exists()
    if algorithm == FAST_BPE and not has_codes:
        name = files.settings.get("tokenizer_class") or files.family
        raise InputError(f"expected {CODES_FILE} beside it, which {name} needs, found none")
    if has_codes:
        codes = storage.read_text(path.parent / CODES_FILE, _MAX_BYTES)
        return FastBpeTokenizer(storage.read_text(path, _MAX_BYTES), codes, files)
    if kind == "vocab.txt":
        return _from_vocabulary(storage.read_text(path, _MAX_BYTES), files)
    raise InputError("expected a vocab.txt, a vocab.json, a tokenizer.json, a *.model or a directory with one of them")


def _bytes(path: storage.Path) -> bytes:
    size = storage.existing(path).size()
    if size > _MAX_BYTES:
        raise InputError(f"expected at most {_MAX_BYTES:,} bytes, found {size:,}")
    return path.read_bytes()


def _vocabulary_file(directory: storage.Path, files: TokenizerFiles) -> storage.Path:
    # transformers reads no tokenizer.json for PhoBERT, BERTweet and ESM; that of a RoFormer lacks its words.
    own = VOCABULARY_FILE if files.algorithm in (FAST_BPE, RESIDUES, RJIEBA) else None
    for name in (own, files.settings.get("vocab_file"), "tokenizer.json", "vocab.txt", "vocab.json"):
        if isinstance(name, str) and "/" not in name and (directory / name).exists():
            return directory / name
    models = sorted(p for p in directory.iterdir() if p.suffix == ".model")
    if len(models) != 1:
        names = ", ".join(p.name for p in models) or "none"
        raise InputError(
            f"{directory}: expected a tokenizer.json, a vocab.txt, a vocab.json or one *.model, found {names}"
        )
    return models[0]


def _from_vocabulary(text: str, files: TokenizerFiles) -> Tokenizer:
    """Return the tokenizer of a vocab.txt.

    As in transformers, every line is a token, also a blank one, and the last line of a repeated token counts.
    """
    pieces = [line.rstrip(_SPACES) for line in text.removesuffix("\n").split("\n")]
    if not any(pieces):
        raise InputError("expected one token per line, found an empty file")
    settings = files.settings
    if files.algorithm == RESIDUES or (files.algorithm is None and set(ESM_SPECIALS.values()) <= set(pieces)):
        settings = {"sep_token": settings.get("eos_token"), **settings}
        return residue_tokenizer(pieces, special=named_specials(ESM_SPECIALS, settings), files=files)
    lowercase = settings.get("do_lower_case")
    if lowercase is None:
        lowercase = not looks_cased(pieces)
        if not lowercase:
            _log.warn_once(
                "vocab.txt: its words have capitals, so texts are not lower-cased, as they are by transformers where "
                "do_lower_case is not given"
            )
    options: dict[str, Any] = {
        "lowercase": lowercase,
        "strip_accents": settings.get("strip_accents"),
        "chinese_chars": settings.get("tokenize_chinese_chars", True),
        "files": files,
    }
    if files.algorithm == RJIEBA:
        special = named_specials(WORD_PIECE_SPECIALS, settings)
        return roformer(
            pieces,
            special=special,
            lowercase=settings.get("do_lower_case", True),
            strip_accents=settings.get("strip_accents"),
            files=files,
        )
    is_mpnet = set(MPNET_SPECIALS.values()) <= set(pieces) if files.algorithm is None else files.algorithm == MPNET
    if is_mpnet:
        return mpnet(pieces, special=named_specials(MPNET_SPECIALS, settings), **options)
    return word_piece(pieces, special=named_specials(WORD_PIECE_SPECIALS, settings), **options)


def _from_merges(path: storage.Path, files: TokenizerFiles) -> Tokenizer:
    """Return RoBERTa's or DeBERTa's tokenizer of `vocab.json` (token -> id) and `merges.txt` (pairs to merge)."""
    vocabulary = storage.read_json(path)
    seen: dict[int, str] = {}
    for piece, i in vocabulary.items():
        other = seen.setdefault(check_id(i, printable(repr(piece), 60)), piece)
        if other != piece:
            pair = f"{printable(repr(other), 60)} and {printable(repr(piece), 60)}"
            raise InputError(f"expected each id once, found {i} for {pair}")
    if not files.explicit and any(piece.endswith("</w>") for piece in vocabulary):
        raise InputError("expected tokens of byte-level BPE, found tokens of another BPE, which end in </w>")
    merges_file = path.parent / (path.name.removesuffix("vocab.json") + "merges.txt")
    merges, settings = read_merges(storage.read_text(merges_file, _MAX_BYTES), merges_file), files.settings
    prefix = settings.get("add_prefix_space", False)
    is_deberta = files.algorithm == DEBERTA_BPE
    if files.algorithm is None:
        is_deberta = WORD_PIECE_SPECIALS["cls"] in vocabulary and ROBERTA_SPECIALS["cls"] not in vocabulary
    if is_deberta:
        special = named_specials(WORD_PIECE_SPECIALS, settings)
        return deberta(vocabulary, merges, special=special, add_prefix_space=prefix, files=files)
    return byte_level_bpe(
        vocabulary,
        merges,
        special=named_specials(ROBERTA_SPECIALS, settings),
        add_prefix_space=prefix,
        trim_offsets=settings.get("trim_offsets", True),
        files=files,
    )


def looks_cased(pieces: list[str]) -> bool:
    """Return whether lower-casing would lose what the vocabulary tells apart.

    So it is where more than a few words are capitalized (words, residues, atoms), or none is in lower case (k-mers).
    A few tokens in capitals, such as `<URL>` or `HTTPURL`, are no evidence.
    """
    words = [piece for piece in pieces if piece[:1] not in ("", "[", "<")]
    capitalized = sum(word[0].isupper() and word[1:] == word[1:].lower() for word in words)
    return capitalized > _CASED * len(words) or (any(map(str.isupper, words)) and not any(map(str.islower, words)))


def _from_json(content: dict[str, Any], files: TokenizerFiles, forced: bool) -> Tokenizer:
    settings = files.settings
    check_tokenizer_json(content)
    model = content["model"].get("type", "WordPiece")
    if files.explicit and not fits_model(name := settings["tokenizer_class"], model):
        _log.warn_once(
            f"tokenizer.json: its model is {model}, which {name} has not; the file is followed, not the class"
        )
        files = dataclasses.replace(files, algorithm=None)
    for part, name in (("padding", "padding_side"), ("truncation", "truncation_side")):
        if side := (content.pop(part, None) or {}).get("direction"):
            settings.setdefault(name, side.lower())
    check_keys({"padding_side": settings.get("padding_side")}, TOKENIZER_CONFIG, "tokenizer.json: padding")
    is_generic = files.explicit and files.algorithm is None  # such classes use tokenizer.json unchanged
    if model == "WordPiece" and (forced or not is_generic):
        override_normalizer(content.get("normalizer"), settings, files.algorithm)
    if files.algorithm == MPNET or content.get("decoder") is None:  # unlike BERT's tokenizer, as in transformers 5
        settings.setdefault("clean_up_tokenization_spaces", False)
    if files.algorithm in (BYTE_LEVEL_BPE, DEBERTA_BPE):
        override_byte_level(content, settings)
    if files.algorithm == ALBERT:
        override_albert(content, settings)
    if files.algorithm == DEBERTA_BPE:  # transformers 5 lays out rows of the class in the settings in its own way
        settings |= DEBERTA_CLASS
    hide_patterns(content)
    backend = backend_of(content)
    special = _specials_of(backend, files)
    special = add_tokens(backend, special, files)
    if backend.decoder is None and not is_generic:
        backend.decoder = _decoder_of(files.algorithm, model)
    ids, typed = backend.get_vocab(with_added_tokens=True), has_token_types(settings)
    if layout_of(part_of(backend.post_processor), ids, typed) is None:
        _lay_out(backend, special)
    tokenizer = (RoFormerTokenizer if files.algorithm == RJIEBA else BackendTokenizer)(backend, special, settings)
    tokenizer.check_patterns()
    return tokenizer


def _decoder_of(algorithm: str | None, model: str) -> Any:
    """Return the decoder of a class of tokenizers, for a file without one."""
    if algorithm in (BYTE_LEVEL_BPE, DEBERTA_BPE):
        return tokenizers.decoders.ByteLevel()
    if model == "Unigram" and algorithm is not None:
        return tokenizers.decoders.Metaspace()
    return tokenizers.decoders.WordPiece() if model == "WordPiece" else None


def _lay_out(backend: tokenizers.Tokenizer, special: dict[str, str]) -> None:
    """Add a row layout to a tokenizer without one: RoBERTa's if its cls token is `<s>`, else BERT's."""
    tokens = sep_and_cls(special, backend)
    rows: tokenizers.processors.PostProcessor = tokenizers.processors.BertProcessing(*tokens)
    if special["cls"] == "<s>":
        rows = tokenizers.processors.RobertaProcessing(*tokens, trim_offsets=False, add_prefix_space=False)
    other = backend.post_processor
    backend.post_processor = rows if other is None else tokenizers.processors.Sequence([other, rows])


def _specials_of(backend: tokenizers.Tokenizer, files: TokenizerFiles) -> dict[str, str]:
    """Return the special tokens by role: from the settings, else by their default names.

    Tokens that the file declares special are preferred to ordinary tokens with a default name: MPNet's vocabulary
    also has BERT's special tokens.
    """
    declared = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    added = {token.content for token in files.added.values()}
    usual_here = _SPECIALS.get(files.algorithm or "", {})
    special = {}
    for role, usual in _SPECIAL_NAMES.items():
        if role == "mask" and files.settings.get("mask_token", "") is None:
            continue
        named = named_special(role, files.settings)
        likely = (named, *sorted(usual, key=lambda name: name not in declared))
        found = [token for token in likely if token and (token in added or backend.token_to_id(token) is not None)]
        found += [token for token in (named, usual_here.get(role)) if token]
        if found:
            special[role] = found[0]
    for role, other in (("cls", "bos"), ("sep", "eos")):  # Llama's tokenizers have no other names for them
        token = named_special(other, files.settings)
        if role not in special and token and backend.token_to_id(token) is not None:
            special[role] = token
    return special
