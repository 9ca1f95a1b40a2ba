"""Pseudo-log-likelihoods: the sums that a loop over masked tokens gives, ours and that of transformers."""

import json

import numpy as np
import pytest
from random_models import write_model

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tokenization import train_bpe

TEXTS = [
    "The old man sat under a tree by the river, and the young dog runs.",
    "re-reading; unreadable (catfish) dogs' nightly quxes?",
    "A child of good stone",
    "bird",
    "the cat 東 sat",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_small):
    path = tmp_path_factory.mktemp("masked_lm") / "model"
    return write_small(path, "masked_lm", max_position_embeddings=64, initializer_range=0.5)


def scores_one_by_one(model, text, together=lambda i: [i]):
    """The log probability of each token, by one call of the model each; `together(i)` are masked with token i."""
    ids = model.tokenizer([text])["input_ids"]
    scores = []
    for i in range(1, ids.shape[1] - 1):
        masked = ids.copy()
        masked[0, together(i)] = model.tokenizer.mask_id
        logits = np.asarray(model(masked).logits[0, i], np.float64)
        scores.append(logits[ids[0, i]] - np.log(np.exp(logits).sum()))
    return scores


def test_it_is_the_sum_over_tokens_masked_one_at_a_time(folder):
    model = from_pretrained(folder)
    answers = pipeline("pseudo-log-likelihood", model)(TEXTS, tokens=True)
    for text, answer in zip(TEXTS, answers, strict=True):
        expected = scores_one_by_one(model, text)
        np.testing.assert_allclose([token["score"] for token in answer["tokens"]], expected, atol=1e-5)
        assert answer["score"] == pytest.approx(sum(expected), abs=1e-4)
        assert answer["num_tokens"] == len(expected) == len(model.tokenizer.encode(text))
        assert answer["pseudo_perplexity"] == pytest.approx(np.exp(-np.mean(expected)), rel=1e-4)
    assert len({answer["score"] for answer in answers}) == len(TEXTS)


def test_tokens_have_their_words_and_characters(folder):
    score = pipeline("pseudo-log-likelihood", folder, tokens=True)
    text = TEXTS[4]
    tokens = score(text)["tokens"]
    assert [token["word"] for token in tokens] == ["the", "cat", "東", "sat"]  # the third is not in the vocabulary
    assert [text[token["start"] : token["end"]] for token in tokens] == ["the", "cat", "東", "sat"]
    assert score.tokenizer.is_unknown(tokens[2]["token"])


def test_later_tokens_of_a_word_are_masked_too(folder):
    model = from_pretrained(folder)
    pieces = model.tokenizer.tokenize("unreadable catfish nightly")
    words = np.cumsum([not piece.startswith("##") for piece in pieces])
    assert len(pieces) > words[-1]

    def together(i):
        return [j + 1 for j in range(i - 1, len(pieces)) if words[j] == words[i - 1]]

    expected = scores_one_by_one(model, "unreadable catfish nightly", together)
    score = pipeline("pseudo-log-likelihood", model)
    answer = score("unreadable catfish nightly", within_word="left-to-right", tokens=True)
    np.testing.assert_allclose([token["score"] for token in answer["tokens"]], expected, atol=1e-5)
    assert answer["score"] != pytest.approx(score("unreadable catfish nightly")["score"], abs=1e-3)
    # Words of one token are scored as before.
    single = score("the cat sat", within_word="left-to-right")["score"]
    assert single == pytest.approx(score("the cat sat")["score"], abs=1e-5)


def test_punctuation_is_a_word_of_its_own(tmp_path):
    """A byte-level vocabulary marks only the beginnings of words, so that "." seems to continue the word before."""
    tokenizer = train_bpe(["the river, the man", "a river runs"] * 5, 300)
    config = BertConfig.named(
        "tiny", "roberta", vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, pad_token_id=tokenizer.pad_id)  # fmt: skip
    write_model(tmp_path / "model", config, "masked_lm", tokenizer)
    score = pipeline("pseudo-log-likelihood", tmp_path / "model")
    text = "the zz river, man."
    ids, ranges = tokenizer.encode_batch_with_offsets([text])[0]
    begins = score._words_begin(text, (ids, ranges))
    assert len(ids) > begins.sum() == 6  # "zz" has several tokens
    starts = [start for (start, _), begin in zip(ranges, begins, strict=True) if begin]
    words = [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    assert words == ["the", "zz", "river", ",", "man", "."]


@pytest.mark.oracle
def test_it_is_the_loop_over_transformers(folder):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for within_word in ("all", "left-to-right"):
        answers = pipeline("pseudo-log-likelihood", folder)(TEXTS, within_word=within_word)
        for text, answer in zip(TEXTS, answers, strict=True):
            encoded = tokenizer(text, return_tensors="pt")
            words, total = encoded.word_ids(), 0.0
            for i in range(1, len(words) - 1):
                ids = encoded["input_ids"].clone()
                later = [j for j in range(i, len(words)) if words[j] == words[i]]
                ids[0, later if within_word == "left-to-right" else i] = tokenizer.mask_token_id
                with torch.no_grad():
                    logits = model(**{**encoded, "input_ids": ids}).logits[0, i]
                total += float(torch.log_softmax(logits, -1)[encoded["input_ids"][0, i]])
            assert answer["score"] == pytest.approx(total, abs=1e-4)


def test_rows_of_all_texts_share_batches(folder, monkeypatch):
    score = pipeline("pseudo-log-likelihood", folder)
    begin, used = type(score.model).begin, []

    def noted(model, inputs, fields, **options):
        used.append((inputs["input_ids"].shape, inputs["masked_positions"].shape))
        return begin(model, inputs, fields, **options)

    monkeypatch.setattr(type(score.model), "begin", noted)
    together = score(["the cat sat on a tree"] * 20)
    assert sum(shape[0] for shape, _ in used) == 20 * 6 and len(used) < 20
    assert {positions[1] for _, positions in used} == {1}  # logits of the masked position only
    assert len({answer["score"] for answer in together}) == 1
    monkeypatch.setattr("bert_jax.tasks.pretraining.likelihood.TEXT_WINDOW", 7)  # fewer rows than two texts have
    np.testing.assert_allclose(
        [answer["score"] for answer in score(TEXTS)],
        [score(text)["score"] for text in TEXTS],
        atol=1e-4,
    )


def test_texts_that_cannot_be_scored(folder):
    score = pipeline("pseudo-log-likelihood", folder)
    with pytest.raises(InputError, match="text 1: expected at most the model's 64 positions, found 82 tokens in 'cat"):
        score(["the cat", "cat " * 80])
    with pytest.raises(InputError, match="text 0: expected a token to score, found none in ''"):
        score("")
    with pytest.raises(InputError, match="did you mean 'left-to-right'"):
        score("the cat", within_word="left_to_right")


def test_special_tokens_in_a_text_are_not_counted(folder):
    score = pipeline("pseudo-log-likelihood", folder)
    assert score("the [MASK] sat")["num_tokens"] == 2


def test_the_verb_ranks_texts(folder, capsys):
    texts = ["the cat sat", "a red river of stone", "bird"]
    answers = pipeline("pseudo-log-likelihood", folder)(texts)
    assert main(["score", str(folder), *texts, "--json"]) == 0
    lines = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [line["text"] for line in lines] == texts
    assert [line["score"] for line in lines] == pytest.approx([answer["score"] for answer in answers], abs=1e-4)
    for sort, field in (("score", "score"), ("perplexity", "pseudo_perplexity")):
        order = sorted(range(3), key=lambda i: answers[i][field], reverse=sort == "score")
        assert main(["score", str(folder), *texts, "--json", "--sort", sort]) == 0
        found = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
        assert found == [texts[i] for i in order]
    assert main(["score", str(folder), *texts]) == 0
    table = capsys.readouterr().out
    best = max(range(3), key=lambda i: answers[i]["score"])
    assert all(table.index(texts[best]) <= table.index(text) for text in texts)
    assert main(["score", str(folder), "the catfish", "--tokens", "--within-word", "left-to-right"]) == 0
    assert "##h" in capsys.readouterr().out
