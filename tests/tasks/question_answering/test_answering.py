"""Asking for passages: what is cut out is the text itself, whatever the text; it is the best; from the command line."""

import itertools
import json

import jax
import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.inference import PretrainedModel, from_pretrained, pipeline
from bert_jax.modeling import Bert, Compute
from bert_jax.tasks.question_answering.metrics import squad_scores
from bert_jax.tasks.question_answering.spans import SpanSearch, find_spans
from bert_jax.tasks.question_answering.task import learnable, to_learn
from bert_jax.tasks.question_answering.windows import ContextWindow, Limits, best_window, question_windows, tokenised
from bert_jax.tokenization import SentencePieceTokenizer, Tokenizer, load_tokenizer, word_piece

WORDS = ["the", "cat", "sat", "on", "a", "big", "old", "mat", "by", "river", "and", "dog", "was", "in", "house"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *".,?!", *"bcdefg", "##s", "##a", "##e", "##t"]
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=32,
)
FIELDS = {"answer", "score", "start", "end"}


@pytest.fixture(scope="module")
def model():
    generator = np.random.default_rng(3)
    shapes = Bert(CONFIG, "question_answering").abstract_params()
    params = jax.tree.map(lambda leaf: generator.normal(0.0, 0.5, leaf.shape).astype(np.float32), shapes)
    return PretrainedModel(CONFIG, "question_answering", params, word_piece(PIECES), Compute(), max_length=32)


@pytest.fixture(scope="module")
def answer(model):
    return pipeline("question-answering", model, batch_size=4)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "model"
    model.save_pretrained(directory)
    return directory


def sentence(random, words):
    return " ".join(random.choice(WORDS, words)) + "."


def brute_force(model, question, context, limits, longest):
    """Every passage of every window with its score, by the rule and not by the code: (score, start, end), and null."""
    tokenizer = model.tokenizer
    query = tokenizer.encode(question)[: limits.max_query_length]
    ids, offsets = tokenizer.encode_batch_with_offsets([context])[0]
    room = limits.max_seq_length - len(query) - 3
    starts = [0]
    while starts[-1] + room < len(ids):
        starts.append(starts[-1] + limits.doc_stride)
    windows = [(start, min(room, len(ids) - start)) for start in starts]
    found, null = [], np.inf
    for number, (first, size) in enumerate(windows):
        row = [tokenizer.cls_id, *query, tokenizer.sep_id, *ids[first : first + size], tokenizer.sep_id]
        types = [0] * (len(query) + 2) + [1] * (size + 1)
        out = model(np.array([row]), token_type_ids=np.array([types]))
        allowed = [0, *range(len(query) + 2, len(query) + 2 + size)]
        begin, end = (np.exp(logits[0].astype(np.float64)) for logits in (out.start_logits, out.end_logits))
        begin, end = begin / begin[allowed].sum(), end / end[allowed].sum()
        null = min(null, begin[0] * end[0])
        for i, j in itertools.product(range(size), repeat=2):
            around = [min(first + i - s, s + n - 1 - first - i) + 0.01 * n for s, n in windows]
            if i <= j < i + longest and int(np.argmax(around)) == number:
                score = begin[i + len(query) + 2] * end[j + len(query) + 2]
                found.append((score, offsets[first + i][0], offsets[first + j][1]))
    return sorted(found, reverse=True), null


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_passages(model, answer, seed):
    """In one window and in several."""
    random = np.random.default_rng(seed)
    for words, stride in ((9, 128), (60, 7)):
        context = sentence(random, words)
        found = answer("the old cat?", context, top_k=5, max_answer_len=6, doc_stride=stride)
        expected, null = brute_force(model, "the old cat?", context, Limits(32, stride, 16), 6)
        assert [(a["start"], a["end"]) for a in found] == [span[1:] for span in expected[:5]]
        assert [a["score"] for a in found] == pytest.approx([span[0] for span in expected[:5]], rel=1e-3)
        assert all(context[a["start"] : a["end"]] == a["answer"] and set(a) == FIELDS for a in found)
        every = answer("the old cat?", context, top_k=10_000, doc_stride=stride, handle_impossible_answer=True)
        none = [a for a in every if not a["answer"]]
        assert none == [{"answer": "", "start": 0, "end": 0, "score": pytest.approx(null, rel=1e-3)}]
        assert [a["score"] for a in every] == sorted((a["score"] for a in every), reverse=True)


def test_questions_and_contexts_as_they_come(answer):
    random = np.random.default_rng(0)
    contexts = [sentence(random, n) for n in (3, 40, 12, 5, 80, 1)]
    questions = ["the cat?", "the big old dog?", "a?", "was?", "in house?", ""]
    alone = [answer(q, c) for q, c in zip(questions, contexts, strict=True)]
    assert all(set(a) == FIELDS for a in alone)
    for together in (
        answer(questions, contexts),
        answer(question=questions, context=contexts),
        answer([{"question": q, "context": c} for q, c in zip(questions, contexts, strict=True)]),
    ):
        assert [a["answer"] for a in together] == [a["answer"] for a in alone]
        assert [a["score"] for a in together] == pytest.approx([a["score"] for a in alone], rel=1e-3)
    assert answer({"question": questions[0], "context": contexts[0]}) == alone[0]
    one = answer(questions, contexts[1])
    assert [a["answer"] for a in one] == [answer(q, contexts[1])["answer"] for q in questions]
    assert [a["answer"] for a in answer("a?", contexts)] == [answer("a?", c)["answer"] for c in contexts]
    assert [len(a) for a in answer(questions[:2], contexts[:2], top_k=3)] == [3, 3]
    assert answer([], "the cat") == [] == answer([])


def test_nothing_to_find(answer):
    """An empty context has no answer, whether or not one was to be found."""
    for context in ("", "  \n\u00a0", "\u200b\x07"):
        found = answer("the cat?", context)
        assert found == {"answer": "", "score": pytest.approx(1), "start": 0, "end": 0}
    assert answer("the cat?", "cat", top_k=9, handle_impossible_answer=True)[-1]["answer"] in ("", "cat")
    assert answer(["a?", "a?"], ["", "cat"])[1]["answer"] == "cat"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("a?",), {}, "question 0: expected a context, or a dict of 'question' and 'context', found 'a\\?'"),
        (({"question": "a?"},), {}, "question 0: expected a context, or a dict"),
        ((["a?", 7], "cat"), {}, "question 1: expected a string, found int"),
        (("a?", ["cat", None]), {}, "context 1: expected a string, found NoneType"),
        ((["a?", "b?"], ["cat"]), {}, "expected a context for each question, found 2 and 1"),
        (("a?", "\ud800"), {}, "context 0: expected text, found half a surrogate pair at 0"),
        (("a?", "cat"), {"top_k": 0}, "top_k: expected a positive integer"),
        (("a?", "cat"), {"max_answer_len": 0}, "max_answer_len: expected a positive integer"),
        (("a?", "cat"), {"doc_stride": -1}, "doc_stride: expected a positive integer"),
        (("a?", "cat"), {"max_seq_len": 4}, "max_seq_length: expected at least 6"),
    ],
)
def test_what_does_not_fit(answer, arguments, options, message):
    with pytest.raises(InputError, match=message):
        answer(*arguments, **options)


def test_by_name_and_from_a_directory(saved):
    ours = pipeline("answer", saved)("the cat?", "the old cat sat on a mat.")
    assert ours == pipeline("question-answering", from_pretrained(saved))("the cat?", "the old cat sat on a mat.")
    with pytest.raises(InputError, match="fill-mask needs a trained masked_lm head"):
        pipeline("fill-mask", saved)


@pytest.mark.oracle
def test_the_same_logits_as_transformers(saved):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle, on Python 3.11 only")
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(saved).eval()
    ours = from_pretrained(saved)
    inputs = ours.tokenizer(["the cat?", "a dog?"], ["the old cat sat on a mat.", "cat"])
    with torch.no_grad():
        expected = theirs(**{name: torch.tensor(array) for name, array in inputs.items()})
    found = ours(**inputs)
    real = inputs["attention_mask"] > 0
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(getattr(found, name)[real], getattr(expected, name).numpy()[real], atol=1e-4)


# Texts of every script and none: letters with marks, ideographs, emoji of several characters, right-to-left, controls.
ALPHABETS = (
    "abc the cat Sat.,!?-'\"",
    "\u00e9\u00df\u0130\u0131\ufb01\u00bd\u2122\u1e9b\u0323a\u0301e\u0308o\u0302\u0323",
    "\u6c34\u4eca\u5929\u3002\u3000\uff21\u30ab\u30ab\u3099\ud55c\u1112\u1161\u11ab\U00020000",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea\u2764\ufe0f\U0001f3fd",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627\u064b\u200f\u200e\u202e\u202c",
    "\x00\x07\x1b\x7f\u0085\u00ad\u200b\ufeff\ufffd\u2028\u2029\t\r\n\x1c\u00a0\u180e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0915\u094d\u0937\u093f \ue000\u0378\U0010ffff\u0f71\u0f72",
    " \t\n\u3000",
)


def random_text(random):
    """A text of up to 120 characters: runs from an alphabet each, sometimes a very long word, sometimes nothing."""
    parts = []
    for _ in range(random.integers(0, 6)):
        alphabet = ALPHABETS[random.integers(len(ALPHABETS))]
        parts.append("".join(random.choice(list(alphabet), random.integers(1, 20))))
        if random.random() < 0.5:
            parts.append(" ")
    if random.random() < 0.05:
        parts.append("a\u0301" * int(random.integers(90, 220)))
    return "".join(parts)


def families(tmp_path, shared_data) -> list[Tokenizer]:
    vocabulary = shared_data / "vocab"
    (tmp_path / "roberta").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "roberta" / name).write_bytes((vocabulary / f"roberta-{name}").read_bytes())
    return [
        load_tokenizer(vocabulary / "bert-base-uncased-vocab.txt"),
        load_tokenizer(vocabulary / "bert-base-cased-vocab.txt"),
        load_tokenizer(tmp_path / "roberta"),
        SentencePieceTokenizer((vocabulary / "xlnet-base-cased-spiece.model").read_bytes()),
    ]


def check_passages(tokenizers, count, seed):
    """Passages by random logits, of `count` random texts: cut out of the text they are its own, and never blank."""
    random = np.random.default_rng(seed)
    limits, search = Limits(24, 6, 5), SpanSearch(max_answer_length=8, n_best=6, top_k=3)
    blank = several = 0
    for start in range(0, count, 250):
        tokenizer = tokenizers[(start // 250) % len(tokenizers)]
        texts = [random_text(random) for _ in range(min(250, count - start))]
        contexts = tokenised(tokenizer, texts)
        windows = question_windows(tokenizer, ["what?"] * len(texts), [contexts[text] for text in texts], limits)
        logits = random.normal(size=(len(windows), 2, 24))
        for number, text in enumerate(texts):
            context = contexts[text]
            assert (context.begins >= 0).all() and (context.ends <= len(text)).all()
            spans, null = find_spans(windows, number, logits.__getitem__, search)
            rows = logits[windows.firsts[number] : windows.firsts[number + 1]]
            assert null == rows[:, :, 0].sum(1).min()
            assert len({span[1:] for span in spans}) == len(spans) <= 3
            assert [span.score for span in spans] == sorted((span.score for span in spans), reverse=True)
            for _, begin, end in spans:
                cut_out = text[begin:end]
                assert 0 <= begin < end <= len(text) and cut_out and cut_out == cut_out.strip()
                first, last = context.tokens_of(begin, begin + 1), context.tokens_of(end - 1, end)
                assert first is not None and last is not None
            blank += not spans
            several += len(rows) > 1
            if not spans:  # then the text has no token with a character that is no whitespace
                assert not (context.begins < context.ends).any()
    assert count < 500 or (0 < blank < count / 2 and several > count / 10)


def test_passages_are_the_text_itself(tmp_path, shared_data):
    check_passages(families(tmp_path, shared_data), 1000, seed=0)


def test_passages_are_the_text_itself_without_other_data(tiny_tokenizer):
    check_passages([tiny_tokenizer], 250, seed=1)


@pytest.mark.slow
def test_passages_are_the_text_itself_a_hundred_thousand_times(tmp_path, shared_data):
    check_passages(families(tmp_path, shared_data), 100_000, seed=2)


def test_answers_are_the_text_itself(answer):
    """Through the whole pipeline, on texts that this vocabulary knows little of."""
    random = np.random.default_rng(0)
    texts = [random_text(random) for _ in range(120)]
    for text, found in zip(texts, answer("the cat?", texts, top_k=2, doc_stride=9), strict=True):
        assert found
        for one in found:
            assert text[one["start"] : one["end"]] == one["answer"] and 0 <= one["score"] <= 1


@pytest.mark.parametrize("seed", range(20))
def test_few_beginnings_and_ends(seed, tiny_tokenizer):
    """`n_best` keeps what is likeliest in each window: the brute force over those alone gives the same."""
    random = np.random.default_rng(seed)
    text = " ".join(random.choice(WORDS, 40))
    contexts = tokenised(tiny_tokenizer, [text])
    windows = question_windows(tiny_tokenizer, ["a?"], [contexts[text]], Limits(20, 6, 5))
    logits = random.normal(size=(len(windows), 2, 20))
    search = SpanSearch(max_answer_length=int(random.integers(1, 9)), n_best=int(random.integers(0, 5)), top_k=4)
    context, expected = contexts[text], []
    owner = best_window([ContextWindow(int(s), int(n)) for s, n in zip(windows.starts, windows.sizes, strict=True)])
    for most in (search.n_best or 20, 20):  # all, where the few give nothing
        for number in range(len(windows)) if not expected else ():
            first, size, place = windows.starts[number], windows.sizes[number], windows.place(number)
            starts, ends = logits[number][:, place : place + size]
            own = [i for i in range(size) if owner[first + i] == number]
            for i in sorted(own, key=lambda i: -starts[i])[:most]:
                for j in sorted(range(size), key=lambda j: -ends[j])[:most]:
                    if i <= j < i + search.max_answer_length:
                        expected.append((starts[i] + ends[j], context.begins[first + i], context.ends[first + j]))
    spans, _ = find_spans(windows, 0, logits.__getitem__, search)
    assert [tuple(span) for span in spans] == sorted(expected, reverse=True)[:4]


def test_on_the_command_line(saved, tmp_path, capsys):
    context = "the old cat sat on a mat by the river. " * 3
    (tmp_path / "text.txt").write_text(context)
    expected = pipeline("answer", saved)(["the cat?", "a dog?"], context, top_k=2)
    for flags in (("--context", str(tmp_path / "text.txt")), ("--text", context)):
        assert main(["answer", str(saved), *flags, "--json", "--top-k", "2", "the cat?", "a dog?"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines == [
            {"question": question, "answers": answers}
            for question, answers in zip(["the cat?", "a dog?"], expected, strict=True)
        ]
    assert main(["answer", str(saved), "--text", "the cat", "the cat?"]) == 0
    out = capsys.readouterr().out
    assert "the cat?" in out and "probability" in out
    assert main(["answer", str(saved), "--text", "", "--impossible", "the cat?"]) == 0
    assert "(none)" in capsys.readouterr().out
    (tmp_path / "questions.txt").write_text("the cat?\na dog?\n")
    assert main(["answer", str(saved), "--text", context, "--file", str(tmp_path / "questions.txt"), "--json"]) == 0
    assert [json.loads(line)["question"] for line in capsys.readouterr().out.splitlines()] == ["the cat?", "a dog?"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["a?"], "expected the text that contains the answers, as --context FILE or as --text TEXT"),
        (["a?", "--text", "cat", "--context", "text.txt"], "expected the text that contains the answers"),
        (["a?", "--context", "nowhere.txt"], "nowhere.txt: no such file"),
        (["a?", "--text", "cat", "--top-k", "0"], "top_k: expected a positive integer, found 0"),
        (["a?", "--text", "cat", "--batch-size", "0"], "--batch-size: expected a positive integer"),
    ],
)
def test_refused_on_the_command_line(saved, capsys, flags, message):
    assert main(["answer", str(saved), *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and captured.err.count("\n") == 1


def test_squads_files_on_the_command_line(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"q{i}", "question": "the cat?", "answers": [{"text": "cat", "answer_start": 4}]} for i in range(3)]
    tree = {"version": "1.1", "data": [{"paragraphs": [{"context": "the cat sat on a mat", "qas": rows}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(tree))
    assert main(["evaluate", "--model", str(saved), "--data", "dev.json", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"exact_match", "f1", "examples"}
    predict = ["predict", "--model", str(saved), "--data", "dev.json", "--out", "out.json", "--max-answer-length", "1"]
    assert main(predict) == 0
    assert capsys.readouterr().out == "out.json: 3 rows\n"
    answers = json.loads((tmp_path / "out.json").read_text())
    assert set(answers) == {"q0", "q1", "q2"} and all(text in WORDS for text in answers.values())
    assert main([*predict, "--doc-stride", "0"]) == 2
    assert "doc_stride: expected at least 1 token, found 0" in capsys.readouterr().err
    assert main([*predict, "--text-column", "question"]) == 2
    assert "expected no columns" in capsys.readouterr().err


@pytest.mark.slow
def test_real_answers_come_back_from_their_places(tmp_path, shared_data):
    """Logits that point at the answers of real articles give these answers, through windows and tokens and back."""
    limits, search = Limits(128, 64, 32), SpanSearch(max_answer_length=60)
    for tokenizer in families(tmp_path, shared_data):
        rows = learnable(str(shared_data / "squad2_articles" / "dev.json"), tokenizer)
        asked = to_learn(rows, tokenizer, limits)
        windows = asked.windows
        logits = np.random.default_rng(0).normal(size=(len(windows), 2, 128))
        for number, answer in enumerate(windows.answers):
            logits[number, [0, 1], answer] += 50
        odds, texts = {}, {}
        for number, question in enumerate(asked.questions):
            spans, null = find_spans(windows, number, logits.__getitem__, search)
            odds[question.id], texts[question.id] = null - spans[0].score, question.context[slice(*spans[0][1:])]
        found = squad_scores(asked.questions, texts)
        assert found["HasAns_exact"] > 99.5 and found["HasAns_f1"] > 99.5
        silent = squad_scores(
            asked.questions, texts, odds, threshold=50
        )  # where no window points at anything but [CLS]
        assert silent["NoAns_exact"] == 100 and silent["HasAns_exact"] > 99
