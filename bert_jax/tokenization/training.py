"""Train vocabularies deterministically, in bounded memory."""

import io
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import sentencepiece
import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.backends import bert_normalizer, part_of
from bert_jax.tokenization.families import byte_level_bpe
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.interface import check_unicode
from bert_jax.tokenization.names import ROBERTA_SPECIALS, WORD_PIECE_SPECIALS
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
from bert_jax.tokenization.settings import TokenizerFiles
from bert_jax.tokenization.word_piece_tokenizer import word_piece

_MOST_WORDS = 4_000_000  # limit of distinct words in the counter; above it, the rarest half is dropped
_MOST_OCCURRENCES = 50_000_000  # limit of word occurrences for the trainer; higher counts are scaled down
_LONGEST_WORD = 100  # characters; longer words are ignored
_OCCURRENCES_AT_ONCE = 1000  # occurrences of a word in one string for the trainer
_SENTENCEPIECE_THREADS = 4  # fixed, since sums in the expectation step depend on the number of threads
_LONGEST_TEXT = 1 << 20  # bytes; the SentencePiece trainer skips longer texts
_LONGEST_PART = 4096  # characters of a text that the SentencePiece trainer gets at once


def train_wordpiece(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    *,
    strip_accents: bool | None = None,
    chinese_chars: bool = True,
    min_frequency: int = 2,
    limit_alphabet: int = 1000,
    max_length: int | None = None,
) -> BackendTokenizer:
    """Train a WordPiece tokenizer on texts.

    Tokens are merged by frequency, as in the `tokenizers` library (Schuster and Nakajima 2012 do not publish this
    detail). Ids: [PAD], [UNK], [CLS], [SEP], [MASK], single characters, their "##" forms, then merges by rank.

    Args:
        texts: texts, read once.
        vocab_size: maximum number of tokens in the vocabulary.
        lowercase: whether text is lower-cased.
        strip_accents: whether accents are dropped; None means as `lowercase`.
        chinese_chars: whether each CJK ideograph is a word of its own.
        min_frequency: minimum number of occurrences of a merge.
        limit_alphabet: number of characters in the vocabulary, the most frequent first.
        max_length: maximum number of tokens in an input of the model; None = not known.

    Raises:
        InputError: the texts have no words, or `vocab_size` is too small for the alphabet.
    """
    words = _count_words(_checked(texts), bert_normalizer(lowercase, strip_accents, chinese_chars))
    if not words:
        raise InputError("texts to learn a vocabulary from: expected words, found none")
    alphabet = _alphabet(words, limit_alphabet)
    # Passed as special tokens, characters get ids in this order. The trainer's own order varies from run to run, and
    # with it the rank of equally frequent merges.
    first = [*WORD_PIECE_SPECIALS.values(), *alphabet, *(f"##{c}" for c in alphabet)]
    if vocab_size < len(first):
        raise InputError(
            f"vocab_size {vocab_size}: expected at least {len(first)}: special tokens and two forms of {len(alphabet)} "
            "characters; a smaller limit_alphabet needs fewer"
        )
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=first, show_progress=False
    )
    learner.train_from_iterator(_repeated(words, set(alphabet)), trainer)
    ids = learner.get_vocab()
    return word_piece(
        sorted(ids, key=ids.__getitem__),
        lowercase=lowercase,
        strip_accents=strip_accents,
        chinese_chars=chinese_chars,
        max_length=max_length,
    )


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts. Raises InputError with the number of a text that is not a Unicode string."""
    for number, text in enumerate(texts):
        check_unicode([text], number)
        yield text


def _cut(text: str) -> Iterator[str]:
    """Split a text into parts of at most `_LONGEST_PART` characters, after a space if possible.

    The SentencePiece trainer takes quadratic time on long repetitive texts.
    """
    start = 0
    while len(text) - start > _LONGEST_PART:
        end = text.rfind(" ", start, start + _LONGEST_PART) + 1 or start + _LONGEST_PART
        yield text[start:end]
        start = end
    yield text[start:]


def _count_words(texts: Iterable[str], normalizer: tokenizers.normalizers.Normalizer) -> Counter[str]:
    """Count words. Texts are split at spaces and counted first, so that each distinct word is cleaned only once."""
    spaced = _count(text.split() for text in texts)
    cleaned = ((normalizer.normalize_str(part), count) for part, count in spaced.items())
    return _split(cleaned, tokenizers.pre_tokenizers.BertPreTokenizer())


def _count(texts: Iterable[list[str]]) -> Counter[str]:
    """Count the parts of texts; above `_MOST_WORDS` distinct parts, the rarest half is dropped."""
    counts: Counter[str] = Counter()
    for parts in texts:
        counts.update(parts)
        if len(counts) > _MOST_WORDS:
            least = sorted(counts.values())[len(counts) // 2]
            counts = Counter({part: count for part, count in counts.items() if count > least})
    return counts


def _split(parts: Iterable[tuple[str, int]], splitter: tokenizers.pre_tokenizers.PreTokenizer) -> Counter[str]:
    """Split parts into words and count the words, given (part, count) pairs."""
    counts: Counter[str] = Counter()
    for part, count in parts:
        for word, _ in splitter.pre_tokenize_str(part):
            if len(word) <= _LONGEST_WORD:
                counts[word] += count
    return counts


def _alphabet(words: Counter[str], limit: int) -> list[str]:
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return sorted(sorted(counts, key=lambda c: (-counts[c], c))[:limit])


def _repeated(words: Counter[str], alphabet: set[str]) -> Iterator[str]:
    """Yield strings that repeat each word as often as its scaled count; skip words outside the alphabet."""
    scale = max(1.0, words.total() / _MOST_OCCURRENCES)
    for word, count in sorted(words.items()):
        if alphabet.issuperset(word):
            full_strings, rest = divmod(int(count / scale), _OCCURRENCES_AT_ONCE)
            for _ in range(full_strings):
                yield f"{word} " * _OCCURRENCES_AT_ONCE
            if rest:
                yield f"{word} " * rest


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    *,
    add_prefix_space: bool = False,
    min_frequency: int = 2,
    max_length: int | None = None,
) -> BackendTokenizer:
    """Train a byte-level BPE tokenizer like RoBERTa's on texts.

    See Sennrich et al. 2016 (arXiv:1508.07909) for the merges, and `byte_level_bpe` for the tokenizer. Upper case and
    accents are kept. Ids: <s>, <pad>, </s>, <unk>, <mask>, the 256 bytes, then merges by rank.

    Args:
        texts: texts, read once.
        vocab_size: maximum number of tokens in the vocabulary.
        add_prefix_space: whether to tokenize the first word of a text as if a space preceded it.
        min_frequency: minimum number of occurrences of a merge.
        max_length: maximum number of tokens in an input of the model; None = not known.

    Raises:
        InputError: the texts have no words, or `vocab_size` is too small for the bytes.
    """
    # Splitting before spaces leaves words unchanged, except for runs of spaces.
    spaced = _count(text.replace(" ", "\n ").split("\n") for text in _checked(texts) if text.strip())
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    words = _split(((part, count) for part, count in spaced.items() if part.strip()), splitter)
    if not words:
        raise InputError("texts to learn a vocabulary from: expected words, found none")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    first = [*(ROBERTA_SPECIALS[role] for role in ("cls", "pad", "sep", "unk", "mask")), *alphabet]
    if vocab_size < len(first):
        raise InputError(f"vocab_size {vocab_size}: expected at least {len(first)}: special tokens and 256 bytes")
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=first, show_progress=False
    )
    learner.train_from_iterator(_repeated(words, set(alphabet)), trainer)
    model = part_of(learner.model) or {}
    merges = [(left, right) for left, right in model["merges"]]
    settings: dict[str, Any] = {"add_prefix_space": add_prefix_space}
    if max_length is not None:
        settings["model_max_length"] = max_length
    return byte_level_bpe(model["vocab"], merges, TokenizerFiles(settings))


def train_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    *,
    model_type: str = "unigram",
    character_coverage: float = 0.9995,
    max_texts: int = 1_000_000,
    seed: int = 0,
    max_length: int | None = None,
) -> SentencePieceTokenizer:
    """Train a SentencePiece tokenizer (Kudo and Richardson 2018, arXiv:1808.06226) on texts.

    Ids: <pad>, <unk>, [CLS], [SEP], [MASK], then tokens. Text is normalised by NFKC, and case-folded if `lowercase`.

    Args:
        texts: texts, read once.
        vocab_size: maximum number of tokens in the vocabulary.
        lowercase: whether text is case-folded.
        model_type: "unigram" or "bpe".
        character_coverage: fraction of character occurrences that the vocabulary must cover.
        max_texts: maximum number of texts in memory; if there are more, a uniform sample is drawn.
        seed: seed of the sample.
        max_length: maximum number of tokens in an input of the model; None = not known.

    Raises:
        InputError: there are no texts, the model type is unknown, or `vocab_size` does not suit the texts.
    """
    if model_type not in ("unigram", "bpe"):
        raise InputError(f"model_type: expected unigram or bpe, found {model_type!r}")
    sample = _sample((text for text in _checked(texts) if text.strip()), max_texts, seed)
    if not sample:
        raise InputError("texts to learn a vocabulary from: expected words, found none")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(part for text in sample for part in _cut(text)),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            hard_vocab_limit=False,
            max_sentence_length=_LONGEST_TEXT,
            num_threads=_SENTENCEPIECE_THREADS,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            bos_piece="[CLS]",
            eos_piece="[SEP]",
            control_symbols="[MASK]",
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"vocab_size {vocab_size}: expected a size that suits these texts, found: {reason}") from None
    settings = {} if max_length is None else {"model_max_length": max_length}
    return SentencePieceTokenizer(model.getvalue(), settings)


def _sample(texts: Iterable[str], size: int, seed: int) -> list[str]:
    """Draw a uniform sample of at most `size` texts (reservoir sampling, Vitter 1985, algorithm R)."""
    rng = random.Random(seed)
    kept: list[str] = []
    for number, text in enumerate(texts):
        if number < size:
            kept.append(text)
        elif (place := rng.randint(0, number)) < size:
            kept[place] = text
    return kept
