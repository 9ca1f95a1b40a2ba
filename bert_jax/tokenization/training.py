"""Train vocabularies in bounded memory; the same text always gives the same vocabulary."""

import io
import random
from collections import Counter
from collections.abc import Iterable, Iterator

import sentencepiece
import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.families import ROBERTA_SPECIALS, byte_level_bpe
from bert_jax.tokenization.huggingface import (
    WORD_PIECE_SPECIALS,
    BackendTokenizer,
    bert_normalizer,
    part_of,
    word_piece,
)
from bert_jax.tokenization.interface import check_unicode
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer

_MOST_WORDS = 4_000_000  # distinct words counted at a time; when there are more, the rarest are forgotten
_MOST_OCCURRENCES = 50_000_000  # that the trainer is fed; more are scaled down to it
_LONGEST_WORD = 100  # characters; longer ones are no words to learn from
_OCCURRENCES_AT_ONCE = 1000  # of one word in a string fed to the trainer
_SENTENCEPIECE_THREADS = 4  # part of the result: the sums of its expectation step depend on how they are divided
_LONGEST_TEXT = 1 << 20  # bytes; the trainer passes over longer ones
_LONGEST_PART = 4096  # characters of a text that the SentencePiece trainer sees at once


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
    """Returns a WordPiece tokenizer whose vocabulary is learnt from texts.

    Pieces are merged by frequency (as the `tokenizers` library does it, Schuster and Nakajima 2012 being unpublished in
    that detail). Ids: [PAD], [UNK], [CLS], [SEP], [MASK], single characters, their "##" forms, then merges by rank.

    Args:
        texts: read once.
        vocab_size: pieces in all; fewer come out where the text gives no more.
        lowercase: whether text is lower-cased.
        strip_accents: whether accents are dropped; None means as `lowercase`.
        chinese_chars: whether each CJK ideograph is a word of its own.
        min_frequency: a merge has to occur so often.
        limit_alphabet: characters to know, the most frequent.
        max_length: the longest sequence of the model that it is for, where known.

    Raises:
        InputError: no words in the texts, or a vocabulary too small for its alphabet.
    """
    words = _count_words(_checked(texts), bert_normalizer(lowercase, strip_accents, chinese_chars))
    if not words:
        raise InputError("texts to learn a vocabulary from: expected words, found none")
    alphabet = _alphabet(words, limit_alphabet)
    # Given as special tokens, characters get their ids in this order; the trainer's own order varies from run to run,
    # and with it how equally frequent merges are ranked.
    first = [*WORD_PIECE_SPECIALS.values(), *alphabet, *(f"##{c}" for c in alphabet)]
    if vocab_size < len(first):
        raise InputError(
            f"vocab_size {vocab_size}: expected at least {len(first)}, special tokens and twice the {len(alphabet)} "
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
    """The same texts. Raises InputError for one that is no string of Unicode, by its number."""
    for number, text in enumerate(texts):
        check_unicode([text], number)
        yield text


def _cut(text: str) -> Iterator[str]:
    """A text in parts of at most `_LONGEST_PART` characters, cut behind a space where there is one: the trainer's time
    grows with the square of the length of a text that repeats itself."""
    start = 0
    while len(text) - start > _LONGEST_PART:
        end = text.rfind(" ", start, start + _LONGEST_PART) + 1 or start + _LONGEST_PART
        yield text[start:end]
        start = end
    yield text[start:]


def _count_words(texts: Iterable[str], normalizer: tokenizers.normalizers.Normalizer) -> Counter[str]:
    """How often each word occurs. Texts are cut at spaces first, so that a word is cleaned and split only once."""
    spaced = _count(text.split() for text in texts)
    cleaned = ((normalizer.normalize_str(part), count) for part, count in spaced.items())
    return _split(cleaned, tokenizers.pre_tokenizers.BertPreTokenizer())


def _count(texts: Iterable[list[str]]) -> Counter[str]:
    """How often each part of the texts occurs."""
    counts: Counter[str] = Counter()
    for parts in texts:
        counts.update(parts)
        if len(counts) > _MOST_WORDS:
            least = sorted(counts.values())[len(counts) // 2]
            counts = Counter({part: count for part, count in counts.items() if count > least})
    return counts


def _split(parts: Iterable[tuple[str, int]], splitter: tokenizers.pre_tokenizers.PreTokenizer) -> Counter[str]:
    """How often each word occurs in parts of which each occurs so often."""
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
    """Strings in which each word that the alphabet can spell stands as often as it was counted."""
    scale = max(1.0, words.total() / _MOST_OCCURRENCES)
    for word, count in sorted(words.items()):
        if alphabet.issuperset(word):
            whole, rest = divmod(int(count / scale), _OCCURRENCES_AT_ONCE)
            for _ in range(whole):
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
    """Returns RoBERTa's kind of tokenizer, byte pair encoding over bytes, whose vocabulary is learnt from texts.

    See Sennrich et al. 2016 (arXiv:1508.07909) for the merges and `byte_level_bpe` for the rest. Capitals and accents
    are kept. Ids: <s>, <pad>, </s>, <unk>, <mask>, the 256 bytes, then merges by rank.

    Args:
        texts: read once.
        vocab_size: pieces in all; fewer come out where the text gives no more.
        add_prefix_space: whether a text's first word is cut as if a space stood before it.
        min_frequency: a merge has to occur so often.
        max_length: the longest sequence of the model that it is for, where known.

    Raises:
        InputError: no words in the texts, or a vocabulary too small for the bytes.
    """
    # Cut before its spaces, a text has the words it had, runs of spaces aside.
    spaced = _count(text.replace(" ", "\n ").split("\n") for text in _checked(texts) if text.strip())
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    words = _split(((part, count) for part, count in spaced.items() if part.strip()), splitter)
    if not words:
        raise InputError("texts to learn a vocabulary from: expected words, found none")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    first = [*(ROBERTA_SPECIALS[role] for role in ("cls", "pad", "sep", "unk", "mask")), *alphabet]
    if vocab_size < len(first):
        raise InputError(f"vocab_size {vocab_size}: expected at least {len(first)}, special tokens and bytes")
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=first, show_progress=False
    )
    learner.train_from_iterator(_repeated(words, set(alphabet)), trainer)
    model = part_of(learner.model) or {}
    merges = [(left, right) for left, right in model["merges"]]
    return byte_level_bpe(model["vocab"], merges, add_prefix_space=add_prefix_space, max_length=max_length)


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
    """Returns a SentencePiece tokenizer whose vocabulary is learnt from texts.

    See Kudo and Richardson 2018 (arXiv:1808.06226).

    Ids: <pad>, <unk>, [CLS], [SEP], [MASK], then pieces. Text is normalised by NFKC, and case-folded if `lowercase`.

    Args:
        texts: read once.
        vocab_size: pieces in all; fewer come out where the text gives no more.
        lowercase: whether text is case-folded.
        model_type: "unigram" or "bpe".
        character_coverage: share of character occurrences that the vocabulary has to spell.
        max_texts: texts held in memory; of more, so many are drawn with equal chance.
        seed: draws them.
        max_length: the longest sequence of the model that it is for, where known.

    Raises:
        InputError: no texts, an unknown model type, or a vocabulary size that cannot be.
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
        raise InputError(f"vocab_size {vocab_size}: expected one that these texts can fill, found: {reason}") from None
    settings = {} if max_length is None else {"model_max_length": max_length}
    return SentencePieceTokenizer(model.getvalue(), settings)


def _sample(texts: Iterable[str], size: int, seed: int) -> list[str]:
    """At most `size` texts, each with equal chance (reservoir sampling, Vitter 1985, algorithm R)."""
    rng = random.Random(seed)
    kept: list[str] = []
    for number, text in enumerate(texts):
        if number < size:
            kept.append(text)
        elif (place := rng.randint(0, number)) < size:
            kept[place] = text
    return kept
