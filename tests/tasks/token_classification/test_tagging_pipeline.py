"""Token classification over raw text: as transformers answers, and always cutting the text where it says."""

import json
import random
import warnings

import jax
import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.inference import PretrainedModel, pipeline
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.token_classification.pipeline import STRATEGIES, Pieces, entities_of, words_begin
from bert_jax.tokenization import train_bpe, train_sentencepiece

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TEXTS = [
    "The old man sat under a tree by the river, and the young dog runs.",
    "re-reading; unreadable (catfish) dogs' nightly quxes?",
    "A child of good stone",
    "bird",
    "",
]
WORDS = ("the", "old", "man", "sat", "under", "a", "tree", "by", "night", "and", "bird", "fish")
SAMPLES = ["The old man sat by the river.", "A naïve café in Zürich, 東京 and Москва.", "Good dogs and cats run fast!"]
ALPHABET = (
    *"abcdeXYZ", *"0129", *".,;:!?'\"()-[]#@▁Ġ_", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000",
    "\u0301", "\u0308", "e\u0301", "é", "ß", "İ", "ﬁ", "Ⅷ", "ǆ", "\u1100\u1161\u11a8", "각", "東", "京", "の", "한",
    "\u05e9\u05c1", "שלום", "مرحبا", "\u0640", "हिन्दी", "ก็", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\x00", "\x07", "\x1b", "\x7f", "\u200b", "\u200e", "\u202e", "\ufeff",
    "\ufffd", "\ue000", "\U000e0041", "\u2028", "\U00020000", "the", "river", "[SEP]", "[MASK]", "</s>", "x" * 40,
)  # fmt: skip


def random_text(draw):
    """A text of any characters; now and then a very long word, and now and then nothing."""
    kind = draw.random()
    if kind < 0.02:
        return draw.choice(("", " ", "\x00", "\u200b\u200e", "\u0301"))
    if kind < 0.04:
        return "".join(draw.choices(ALPHABET[:12], k=draw.randrange(200, 400)))
    if kind < 0.1:
        return "".join(chr(c) for c in (draw.randrange(0x110000) for _ in range(9)) if not 0xD800 <= c < 0xE000)
    return "".join(draw.choices(ALPHABET, k=draw.randrange(1, 14)))


@pytest.fixture(scope="module")
def tokenizers(tiny_tokenizer):
    """A tokenizer of each kind."""
    return {
        "wordpiece": tiny_tokenizer,
        "bpe": train_bpe(SAMPLES * 5 + TEXTS * 5, 500),
        "sentencepiece": train_sentencepiece([*SAMPLES, *TEXTS[:-1]] * 20, 90, lowercase=True),
    }


def model_of(tokenizer, seed=0, scale=1.0, labels=LABELS, **changes):
    family = "roberta" if "<s>" in tokenizer.pieces[:3] else "bert"
    config = BertConfig.named(
        "tiny", family, vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, num_labels=len(labels), id2label=labels, max_position_embeddings=64,
        pad_token_id=tokenizer.pad_id, pooler=False, **changes)  # fmt: skip
    generator = np.random.default_rng(seed)
    shapes = Bert(config, "token_classification").abstract_params()
    params = jax.tree.map(lambda leaf: generator.normal(0.0, scale, leaf.shape).astype(np.float32), shapes)
    # So that it is words that matter most, and every tag is found somewhere.
    params["embeddings"]["word_embeddings"]["embedding"] *= 4
    for part in (
        params["classifier"],
        params["embeddings"]["layer_norm"],
        params["encoder"]["layers"]["mlp"]["layer_norm"],
    ):
        part["bias"] *= 0
    for part in (params["embeddings"]["layer_norm"], params["encoder"]["layers"]["mlp"]["layer_norm"]):
        part["scale"] = np.ones_like(part["scale"])
    limit = config.max_position_embeddings
    return PretrainedModel(config, "token_classification", params, tokenizer, Compute(), max_length=limit)


# --- Beside transformers ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def both(request, tokenizers, tmp_path_factory):
    """Our pipeline and transformers' over one model directory."""
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle; on Python 3.11 only")
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    folder = tmp_path_factory.mktemp("tagger") / "model"
    model_of(tokenizers[request.param]).save_pretrained(folder)
    theirs = transformers.TokenClassificationPipeline(
        model=transformers.AutoModelForTokenClassification.from_pretrained(folder),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
    )
    return pipeline("ner", folder, batch_size=2), theirs


@pytest.mark.oracle
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ignored", [("O",), ()])
def test_entities_and_scores_are_those_of_transformers(both, strategy, ignored):
    ours, theirs = both
    texts = [*TEXTS[:-1], *SAMPLES]
    found = ours(texts, aggregation_strategy=strategy, ignore_labels=ignored)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that byte-level pieces are no words
        expected = theirs(texts, aggregation_strategy=strategy, ignore_labels=list(ignored))
    assert sum(map(len, found)) > len(texts)
    for text, mine, other in zip(texts, found, expected, strict=True):
        exact = ("entity", "index", "word", "start", "end") if strategy == "none" else ("entity_group", "start", "end")
        assert [[answer[key] for key in exact] for answer in mine] == [
            [answer[key] for key in exact] for answer in other
        ]
        assert [answer["score"] for answer in mine] == pytest.approx([float(a["score"]) for a in other], abs=1e-5)
        if strategy != "none":
            assert all(answer["word"] == text[answer["start"] : answer["end"]] for answer in mine)


# --- Words and entities by hand ---------------------------------------------------------------------------------------


def pieces_of(tokenizer, text, *tags, labels=LABELS):
    """The pieces of a text that are given these tags, each with probability 0.6."""
    ((ids, ranges),) = tokenizer.encode_batch_with_offsets([text])
    scores = np.full((len(ids), len(labels)), 0.4 / (len(labels) - 1))
    scores[np.arange(len(ids)), [labels.index(tag) for tag in tags]] = 0.6
    return Pieces(np.array(ids), np.array(ranges), scores)


def grouped(tokenizer, text, *tags, strategy="simple", labels=LABELS):
    pieces = pieces_of(tokenizer, text, *tags, labels=labels)
    begins = None if strategy == "simple" else words_begin(text, pieces, tokenizer)
    return [(e["entity_group"], e["word"]) for e in entities_of(text, pieces, labels, begins, strategy)]


def test_what_becomes_one_entity(tiny_tokenizer):
    found = grouped(tiny_tokenizer, "The OLD man sat under", "B-PER", "I-PER", "B-PER", "I-LOC", "O")
    assert found == [("PER", "The OLD"), ("PER", "man"), ("LOC", "sat"), ("O", "under")]
    labels = ("O", "B-PER", "I-PER", "E-PER", "S-PER")
    found = grouped(tiny_tokenizer, "the old man sat under", "S-PER", "B-PER", "I-PER", "E-PER", "E-PER", labels=labels)
    assert found == [("PER", "the"), ("PER", "old man sat"), ("PER", "under")]
    found = grouped(tiny_tokenizer, "the old man", "NN", "NN", "X-Y", labels=("NN", "X-Y"))
    assert found == [("NN", "the old"), ("X-Y", "man")]


def test_a_word_has_one_tag(tiny_tokenizer):
    text, tags = "dogs sat", ("B-PER", "I-LOC", "O")  # dog ##s sat
    assert grouped(tiny_tokenizer, text, *tags) == [("PER", "dog"), ("LOC", "s"), ("O", "sat")]
    for strategy in ("first", "average", "max"):
        assert grouped(tiny_tokenizer, text, *tags, strategy=strategy) == [("PER", "dogs"), ("O", "sat")]
    pieces = pieces_of(tiny_tokenizer, text, *tags)
    pieces.scores[1] = [0, 0.1, 0.05, 0.05, 0.8]
    begins = words_begin(text, pieces, tiny_tokenizer)
    first, average, surest = (entities_of(text, pieces, LABELS, begins, s)[0] for s in ("first", "average", "max"))
    assert (first["entity_group"], first["score"]) == ("PER", pytest.approx(0.6))
    assert (average["entity_group"], average["score"]) == ("LOC", pytest.approx(0.45))
    assert (surest["entity_group"], surest["score"]) == ("LOC", pytest.approx(0.8))


# --- Characters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\u738b\u5c0f\u660e\u5728\u5317\u4eac\u3002", None),  # Chinese
        ("\u6771\u4eac\u30bf\u30ef\u30fc\u306f\u9ad8\u3044", None),  # Japanese
        ("\u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e\u0e21\u0e2b\u0e32\u0e19\u0e04\u0e23", None),  # Thai
        ("\u1797\u17d2\u1793\u17c6\u1796\u17c1\u1789", None),  # Khmer
        ("Xi'an\u5728\u4e2d\u56fd", ["Xi'an", "\u5728", "\u4e2d", "\u56fd"]),
        ("\uc11c\uc6b8\uc740 \ud55c\uad6d", ["\uc11c\uc6b8\uc740", "\ud55c\uad6d"]),  # Korean has spaces
        ("un\u00e1ble cats", ["un\u00e1ble", "cats"]),
    ],
)
@pytest.mark.parametrize("kind", [train_sentencepiece, train_bpe])
def test_scripts_without_spaces_have_a_word_for_each_piece(text, words, kind):
    tokenizer = kind(["a b", " ".join(text)] * 40, 300 if kind is train_bpe else 40, **(
        {} if kind is train_bpe else {"lowercase": False}))  # fmt: skip
    ((ids, ranges),) = tokenizer.encode_batch_with_offsets([text])
    pieces = Pieces(np.array(ids), np.array(ranges), np.zeros((len(ids), 2)))
    begins = np.flatnonzero(words_begin(text, pieces, tokenizer))
    parts = np.split(pieces.ranges, begins[1:])
    found = [text[part[0, 0] : part[-1, 1]].strip() for part in parts]
    # A piece of bytes within a character is never a word of its own.
    characters = [c for c in text if c.strip()]
    assert [word for word in found if word] == (words or characters)


def check_answers(text, answers):
    for answer in answers:
        start, end, word = answer["start"], answer["end"], answer["word"]
        assert 0 <= start < end <= len(text) and text[start:end] == word, (text, answer)
        assert word == word.strip(), (text, answer)
        assert 0 < answer["score"] <= 1
    assert [a["start"] for a in answers] == sorted(a["start"] for a in answers), (text, answers)


def check_texts(tokenizers, number, seed):
    """Random scores for the pieces of random texts."""
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    some = list(tokenizers.values())
    for start in range(0, number, 1000):
        tokenizer = some[start // 1000 % len(some)]
        texts = [random_text(draw) for _ in range(min(1000, number - start))]
        for text, (ids, ranges) in zip(texts, tokenizer.encode_batch_with_offsets(texts), strict=True):
            scores = generator.dirichlet(np.ones(len(LABELS)), len(ids))
            pieces = Pieces(np.array(ids, int), np.array(ranges, int).reshape(-1, 2), scores)
            strategy = draw.choice(STRATEGIES[1:])
            begins = None if strategy == "simple" else words_begin(text, pieces, tokenizer)
            answers = entities_of(text, pieces, LABELS, begins, strategy)
            check_answers(text, answers)
            if begins is not None:  # words are whole: an entity neither begins nor ends in the midst of pieces of one
                starts = [start for start, end in pieces.ranges[~begins] if start < end]
                assert not {a["start"] for a in answers} & (set(starts) - set(pieces.ranges[begins][:, 0])), text


def test_entities_cut_the_exact_text(tokenizers):
    check_texts(tokenizers, 3000, seed=0)


@pytest.mark.slow
def test_entities_cut_the_exact_text_a_hundred_thousand_times(tokenizers):
    check_texts(tokenizers, 100_000, seed=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "sentencepiece"])
def test_random_texts_through_a_model(tokenizers, kind):
    tagger = pipeline("tag", model_of(tokenizers[kind]), batch_size=64)
    texts = [random_text(random.Random(i)) for i in range(60)]
    for strategy in STRATEGIES:
        for text, answers in zip(texts, tagger(texts, aggregation_strategy=strategy), strict=True):
            if strategy == "none":
                assert all(0 <= a["start"] <= a["end"] <= len(text) for a in answers)
            else:
                check_answers(text, answers)


def test_texts_of_nothing(tokenizers):
    tagger = pipeline("ner", model_of(tokenizers["wordpiece"]))
    assert tagger("") == [] and tagger(["", "\u200b", " "]) == [[], [], []] and tagger([]) == []


# --- Long texts -------------------------------------------------------------------------------------------------------


def test_a_long_text_is_answered_window_by_window(tiny_tokenizer):
    """Without attention and positions windows can change nothing; and each token is answered once."""
    model = model_of(tiny_tokenizer)
    for name in ("query", "key", "value", "output"):
        layers = model.params["encoder"]["layers"]["attention"][name]
        layers["kernel"] = np.zeros_like(layers["kernel"])
    table = model.params["embeddings"]["position_embeddings"]
    table["embedding"] = np.zeros_like(table["embedding"])
    tagger = pipeline("ner", model, batch_size=3)
    text = "  ".join(random.Random(0).choices(WORDS, k=400))
    alone = {word: tagger(word, ignore_labels=())[0] for word in WORDS}
    answers = tagger(["bird", text], ignore_labels=())[1]
    firsts = [a for a in answers if a["start"] == 0 or text[a["start"] - 1] == " "]
    assert [a["entity"] for a in firsts] == [alone[word]["entity"] for word in text.split()]
    assert [a["score"] for a in firsts] == pytest.approx([alone[word]["score"] for word in text.split()], abs=1e-5)
    assert [a["index"] for a in answers] == list(range(1, len(answers) + 1))


def test_each_token_is_answered_where_most_around_it_is_seen(tiny_tokenizer):
    tagger = pipeline("ner", model_of(tiny_tokenizer))
    words = random.Random(1).choices(WORDS, k=100)
    answers = tagger(" ".join(words), ignore_labels=())
    windows = [tagger(" ".join(words[a:b]), ignore_labels=()) for a, b in ((0, 62), (38, 100))]
    expected = [*windows[0][:50], *windows[1][12:]]  # they share 38 to 62, and part in the middle
    assert [a["entity"] for a in answers] == [a["entity"] for a in expected]
    assert [a["score"] for a in answers] == pytest.approx([a["score"] for a in expected], abs=1e-5)


# --- Asked the wrong way, and from the command line -------------------------------------------------------------------


def test_questions_that_do_not_fit(tiny_tokenizer):
    tagger = pipeline("token-classification", model_of(tiny_tokenizer))
    with pytest.raises(InputError, match="aggregation_strategy 'frist' is not known; did you mean 'first'"):
        tagger("a", aggregation_strategy="frist")
    with pytest.raises(InputError, match="text 1: expected a string, found int"):
        tagger(["a", 3])


def test_the_verb(tiny_tokenizer, tmp_path, capsys):
    model = str(tmp_path / "model")
    model_of(tiny_tokenizer).save_pretrained(model)
    expected = pipeline("ner", model)(TEXTS[:2], aggregation_strategy="max")
    assert main(["tag", model, *TEXTS[:2], "--strategy", "max", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == TEXTS[:2]
    assert [line["entities"] for line in lines] == expected
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:2]) + "\n")
    assert main(["tag", model, "--file", str(tmp_path / "texts.txt"), "--json", "--strategy", "max"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lines
    for strategy in ("none", "first"):
        assert main(["tag", model, TEXTS[0], "--strategy", strategy]) == 0
        assert "characters" in capsys.readouterr().out
    assert main(["tag", model, "a", "--strategy", "frist"]) == 2
    assert "aggregation_strategy 'frist' is not known; did you mean 'first'?" in capsys.readouterr().err
