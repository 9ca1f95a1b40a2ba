"""Tokenization within a budget: regular expressions, and slow texts, run in processes that the kernel ends."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer, train_bpe, train_sentencepiece, train_wordpiece, word_piece
from bert_jax.tokenization.call_limits import BudgetExceeded, CallLimits, limited
from bert_jax.tokenization.names import WORD_PIECE_SPECIALS

TEXTS = ["the cat and the dog", "a cat, the river"] * 20
HARMLESS = r"\w+?(?=[aeiou])|\d+"  # no tokenizer that we know has it
CUBIC = r"\p{Greek}+\p{Greek}+\p{Lu}"  # 3,000 Greek letters take minutes
GREEK = "\u03b1" * 3000


def pattern_in(part: str, pattern: str) -> dict[str, object]:
    """A part of a tokenizer.json with a regular expression."""
    if part == "pre_tokenizer":
        return {part: {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}}
    return {part: {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}}


def saved(directory: Path, **changes: object) -> Path:
    """The path of a tokenizer.json with some parts changed."""
    train_wordpiece(TEXTS, 60).save(directory)
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


@pytest.fixture(scope="module")
def cubic(tmp_path_factory):
    return load_tokenizer(saved(tmp_path_factory.mktemp("cubic"), **pattern_in("pre_tokenizer", CUBIC)))


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    return load_tokenizer(saved(tmp_path_factory.mktemp("harmless"), **pattern_in("pre_tokenizer", HARMLESS)))


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


# --- Regular expressions ----------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("part", "pattern", "text"),
    [
        ("normalizer", r"(\p{Greek}+)(?#a comment)*(?<=[!?])", GREEK),
        ("pre_tokenizer", r"(?<several>\p{Greek}+)\g<several>+(?<=[!?])", GREEK),
        ("normalizer", r"(?x)(?:\p{Greek}+  )  + (?<=[!?])", GREEK),
        ("pre_tokenizer", r"(?:\p{Greek}|\p{Greek}\p{Greek})(?#)*(?<=[!?])", GREEK),
        ("normalizer", r"(?=(\p{Greek}*\p{Greek}*(?<=[!?])))", GREEK),
        ("pre_tokenizer", r"(\p{Greek}*)\1[!?]", GREEK + "!"),
        ("normalizer", r"(?:thecat|thecatthecat)(?#)*(?<=[!?])", "thecat" * 500),
        ("normalizer", CUBIC, GREEK),
    ],
)
def test_a_pattern_that_takes_forever_is_an_error_of_one_line_in_seconds(tmp_path, part, pattern, text):
    tokenizer, start = load_tokenizer(saved(tmp_path, **pattern_in(part, pattern))), time.monotonic()
    try:
        tokenizer(["the cat", text])
    except InputError as error:
        assert str(error).startswith("text 1: expected") and "\n" not in str(error) and len(str(error)) < 300
    assert time.monotonic() - start < 20  # about one, on a quiet machine
    assert tokenizer.encode("the cat")  # the tokenizer still works


def test_the_error_names_the_text_and_the_budget(cubic):
    message = r"text 2: expected a text that is tokenized within 1.03 s and 1 GB, found one of 3000 characters"
    with pytest.raises(InputError, match=message):
        cubic.encode_batch(["the cat", "a dog", GREEK])


def test_a_decoder_is_bounded(tmp_path):
    """Python's caller sees the pattern of a decoder only when it decodes."""
    tokenizer = load_tokenizer(saved(tmp_path, **pattern_in("decoder", r"\w+\w+\p{Lu}")))
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat".replace(" ", "")
    start = time.monotonic()
    try:
        tokenizer.decode([tokenizer.token_to_id("the")] * 3000)
    except InputError as error:
        assert "\n" not in str(error)
    assert time.monotonic() - start < 20


def test_a_normalizer_that_fills_memory_is_ended(tmp_path):
    content = {"type": "Replace", "pattern": {"Regex": "[^x]"}, "content": "y" * 900}
    tokenizer, start = load_tokenizer(saved(tmp_path, normalizer=content)), time.monotonic()
    assert tokenizer.encode("the cat")
    with pytest.raises(InputError, match="1 GB"):
        tokenizer.encode("a" * (1 << 20))
    assert time.monotonic() - start < 30


def test_an_added_token_is_not_normalized_by_a_hostile_pattern_when_it_is_opened(tmp_path):
    token = {"id": 60, "content": "\u03b1" * 1000, "normalized": True, "special": False}
    token |= {"single_word": False, "lstrip": False, "rstrip": False}
    pattern = r"\p{Greek}+\p{Greek}+\p{Greek}+\p{Lu}"
    path, start = saved(tmp_path, **pattern_in("normalizer", pattern)), time.monotonic()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"60": token}}))
    try:
        load_tokenizer(path.parent)
    except InputError as error:
        assert "\n" not in str(error)
    assert time.monotonic() - start < 20


def test_results_in_a_worker_are_those_of_the_library(tmp_path, harmless):
    texts = ["The cat, [MASK] and the d\u00f6g 123", "a [SEP] caf\u00e9", ""]
    content = json.loads(saved(tmp_path, **pattern_in("pre_tokenizer", HARMLESS)).read_text())
    library = tokenizers.Tokenizer.from_str(json.dumps(content))
    encoded = library.encode_batch(texts, add_special_tokens=False)
    assert harmless.encode_batch(texts) == [e.ids for e in encoded]
    assert harmless.encode_batch_with_offsets(texts) == [(e.ids, e.offsets) for e in encoded]
    assert harmless.decode(encoded[0].ids) == library.decode(encoded[0].ids)
    library.encode_special_tokens = True
    plain = library.encode_batch(texts, add_special_tokens=False)
    assert harmless.encode_batch(texts, parse_special=False) == [e.ids for e in plain]


def test_a_saved_tokenizer_has_its_patterns(tmp_path, harmless):
    harmless.save(tmp_path / "copy")
    content = json.loads((tmp_path / "copy" / "tokenizer.json").read_text())
    assert content["pre_tokenizer"]["pattern"] == {"Regex": HARMLESS}
    assert load_tokenizer(tmp_path / "copy").encode_batch(TEXTS) == harmless.encode_batch(TEXTS)
    lowercased = harmless.lowercased()
    assert lowercased.encode("THE cat") == lowercased.encode("the cat") == harmless.encode("the cat")


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", "L|A|G", r"<mask>|\.|-"])
def test_known_patterns_start_no_process(tmp_path, pattern):
    tokenizer = load_tokenizer(saved(tmp_path, **pattern_in("pre_tokenizer", pattern)))
    tokenizer(["the cat", "a" * 100_000])
    assert not tokenizer._only_in_worker and not tokenizer._workers._ready


# --- Processes --------------------------------------------------------------------------------------------------------


def test_threads_share_a_tokenizer(cubic):
    def encode(number):
        if number % 4 == 0:
            with pytest.raises(BudgetExceeded), limited(CallLimits(seconds=0.02)):
                cubic.encode(GREEK)
        return cubic.encode_batch([f"the cat {number}", "a dog"])

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(encode, range(40)))
    assert found == [cubic.encode_batch([f"the cat {number}", "a dog"]) for number in range(40)]


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_has_workers_of_its_own(harmless):
    expected = harmless.encode("the cat")
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(harmless.encode, ["the cat"] * 4) == [expected] * 4
    assert harmless.encode("the cat") == expected


def _pickled():
    yield train_wordpiece(TEXTS, 60)
    yield train_bpe(TEXTS, 300)
    yield train_sentencepiece(TEXTS, 50)


def test_tokenizers_of_every_kind_survive_pickling(harmless):
    for tokenizer in (*_pickled(), harmless):
        expected = tokenizer.encode_batch(TEXTS, parse_special=False)  # fills caches
        copy = pickle.loads(pickle.dumps(tokenizer))
        assert copy.encode_batch(TEXTS, parse_special=False) == expected and copy.pieces == tokenizer.pieces


def test_workers_that_somebody_ends_are_replaced(harmless):
    expected = harmless.encode("the cat")
    for pid in (p for p in children_of(os.getpid()) if p):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"open_and_fork" in command:  # of any tokenizer of this test
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    for worker in harmless._workers._idle:
        worker.close()
    harmless._workers._idle.clear()
    assert harmless.encode("the cat") == expected


_USER = """
import sys
print("main runs", flush=True)
from bert_jax.tokenization import load_tokenizer
tokenizer = load_tokenizer(sys.argv[1])
print(len(tokenizer.encode("the cat")), flush=True)
try:
    tokenizer.encode("\\u03b1" * 10_000_000 if len(sys.argv) > 2 else "a")
except Exception as error:
    print(error)
"""


def test_a_script_runs_once_and_leaves_no_process(tmp_path):
    path = saved(tmp_path, **pattern_in("pre_tokenizer", CUBIC))
    script = tmp_path / "user.py"
    script.write_text(_USER)
    done = subprocess.run([sys.executable, script, path], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["main runs", "1"]
    assert not _processes_of(str(tmp_path))


def test_workers_end_with_a_process_that_is_killed(tmp_path):
    path = saved(tmp_path, **pattern_in("pre_tokenizer", CUBIC))
    script = tmp_path / "user.py"
    script.write_text(_USER)
    user = subprocess.Popen([sys.executable, script, path, "slow"], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    assert [user.stdout.readline() for _ in range(2)] == ["main runs\n", "1\n"]
    openers = children_of(user.pid)
    assert openers
    user.kill()
    user.wait()
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in openers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in openers)
    user.stdout.close()


def _processes_of(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return [command for command in found if text in command]


# --- Slow texts of tokenizers without patterns ------------------------------------------------------------------------


def slow_word_piece():
    """BERT's tokenizer takes cubic time in the length of a word, up to 200 letters."""
    return word_piece([*WORD_PIECE_SPECIALS.values(), "z", "##z", "the"])


def test_a_slow_text_of_any_tokenizer_is_bounded():
    tokenizer, text = slow_word_piece(), ("z" * 199 + " ") * 5000
    assert len(tokenizer("the " * 2000, max_length=8)["input_ids"][0]) == 8  # starts no worker
    with limited(CallLimits()):
        expected = tokenizer("the " * 2000)["input_ids"]  # starts the workers
    start = time.monotonic()
    with pytest.raises(BudgetExceeded, match=r"text 1: .* within 0.05 s"), limited(CallLimits(seconds=0.05)):
        tokenizer(["the", text])
    assert time.monotonic() - start < 5
    with limited(CallLimits(background=True)):
        assert (tokenizer("the " * 2000)["input_ids"] == expected).all()
    assert (tokenizer("the " * 2000)["input_ids"] == expected).all()


def test_short_texts_stay_in_their_thread():
    tokenizer = slow_word_piece()
    with limited(CallLimits(seconds=0.05)):
        tokenizer(["the", "z z z"])
    assert not tokenizer._workers._ready and threading.active_count() < 50


def test_many_special_tokens_in_a_text_take_linear_time():
    tokenizer, start = train_sentencepiece(TEXTS, 50), time.monotonic()
    assert len(tokenizer.encode("[MASK]" * 60_000)) == 60_000
    assert time.monotonic() - start < 5
