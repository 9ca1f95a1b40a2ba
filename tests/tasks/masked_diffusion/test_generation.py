"""Generation by unmasking beside a loop in NumPy, and the options of the pipelines that write."""

import dataclasses

import numpy as np
import pytest

from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tasks.masked_diffusion import writing
from bert_jax.tasks.masked_diffusion.settings import Generated
from bert_jax.tasks.masked_diffusion.unmasking import UNMASKING_ORDERS, Unmasking

POSITIONS = 32


@pytest.fixture(scope="module")
def model(folder):
    return from_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_small):
    """A masked LM with random weights, large enough that its predictions differ between positions."""
    return (
        write_small(
            tmp_path_factory.mktemp("generation") / "model", "masked_lm", seed=3, max_position_embeddings=POSITIONS,
            initializer_range=0.6,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def write(model):
    return pipeline("text-generation", model)


def allowed(tokenizer):
    """The tokens that may be generated, bool `[V]`."""
    found = np.array([bool(piece) for piece in tokenizer.pieces])
    found[[i for i in tokenizer.special_ids if i != tokenizer.layout.end[-1]]] = False
    return found


def log_softmax(logits):
    return (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )


def generated_in_numpy(model, prompt, size, steps, order):
    """The tokens of the region, by one pass of the model after another."""
    tokenizer, layout = model.tokenizer, model.tokenizer.layout
    before = [*layout.start, *tokenizer.encode(prompt), *layout.between] if prompt else [*layout.start]
    ids = np.array([[*before, *[tokenizer.mask_id] * size]])
    types = np.array([[0] * len(before) + [layout.second_type if prompt else 0] * size])
    left = list(range(len(before), len(before) + size))
    for step in range(steps, 0, -1):
        logits = np.asarray(model(ids, token_type_ids=types).logits, np.float64)[0]
        scores = log_softmax(np.where(allowed(tokenizer), logits, -np.inf))
        chosen = {place: int(np.argmax(scores[place])) for place in left}
        two = {place: np.sort(np.exp(scores[place]))[-2:] for place in left}
        with np.errstate(invalid="ignore"):
            entropy = {place: -np.nansum(np.exp(scores[place]) * scores[place]) for place in left}
        priority = {
            "confidence": {place: scores[place, chosen[place]] for place in left},
            "entropy": {place: -entropy[place] for place in left},
            "margin": {place: two[place][1] - two[place][0] for place in left},
            "left-to-right": {place: -place for place in left},
        }[order]
        kept = sorted(left, key=lambda place, of=priority: -of[place])[: -(-len(left) // step)]
        for place in kept:
            ids[0, place] = chosen[place]
            left.remove(place)
    return ids[0, len(before) :]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("order", [order for order in UNMASKING_ORDERS if order != "random"])
@pytest.mark.parametrize(("size", "steps"), [(7, 7), (8, 3)])
def test_tokens_are_those_of_a_loop_in_numpy(model, write, order, size, steps):
    prompts = ["the cat sat", "a dog", ""]
    found = write(prompts, max_new_tokens=size, steps=steps, order=order)
    for prompt, (answer,) in zip(prompts, found, strict=True):
        tokens = generated_in_numpy(model, prompt, size, steps, order).tolist()
        end = model.tokenizer.layout.end[-1]
        kept = tokens[: tokens.index(end)] if end in tokens else tokens
        assert answer["generated_text"] == model.tokenizer.decode(kept) and answer["num_tokens"] == len(kept)


def test_an_answer_does_not_depend_on_the_others(write):
    """Neither on the prompts beside it nor on the size of batches; with another seed it differs."""
    prompts = [f"the {word}" for word in ("cat", "dog", "tree", "house", "river")]
    options = {"max_new_tokens": 6, "temperature": 1.0, "num_return_sequences": 2, "length": 6}
    together = write(prompts, **options)
    assert write(prompts, batch_size=2, **options) == write(prompts, batch_size=2, **options)
    texts = [[each["generated_text"] for each in answers] for answers in together]
    for size in (1, 3):
        again = write(prompts, batch_size=size, **options)
        assert [[each["generated_text"] for each in answers] for answers in again] == texts
    assert len({text for answers in texts for text in answers}) > 5
    assert write(prompts, seed=1, **options) != together


def passes_of(model, monkeypatch, write, *args, **options):
    """What is open in the region after each pass, bool `[passes, R]`, and the answers."""
    seen, filled = [], writing.fill_canvas

    def watched(*given):
        return filled(*given[:-1], lambda state: seen.append(state.tokens[0] == model.tokenizer.mask_id))

    with monkeypatch.context() as patch:
        patch.setattr(writing, "fill_canvas", watched)
        return write(*args, **options), np.array(seen)


def test_blocks_are_filled_from_left_to_right(model, write, monkeypatch):
    options = {"length": 5, "steps": 6, "block_length": 3}
    _, seen = passes_of(model, monkeypatch, write, "the cat", **options)
    assert seen[:, :3].sum(axis=1).tolist() == [2, 1, 0, 0, 0, 0]
    assert seen[:, 3:5].sum(axis=1).tolist() == [2, 2, 2, 1, 0, 0]  # the sixth token is the end of text
    with pytest.raises(InputError, match="steps: expected at least 3, one forward pass for each block, found 2"):
        write("the cat", max_new_tokens=6, steps=2, block_length=2)


def test_remasking_masks_again_and_ends_complete(model, write, monkeypatch):
    options = {"length": 8, "steps": 8, "order": "random", "seed": 4}
    _, plain = passes_of(model, monkeypatch, write, "the cat", **options)
    _, again = passes_of(model, monkeypatch, write, "the cat", **options, remasking=0.5)
    assert plain.sum(axis=1).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert not again[-1].any() and (again[1:] & ~again[:-1]).any()
    shown = []
    write("the cat", **options, on_pass=shown.append)
    assert [text.count("_") for (text,) in shown] == [7, 6, 5, 4, 3, 2, 1, 0]


def test_lengths_prefixes_and_forbidden_words(model, write):
    def count(**options):
        return write("the cat", max_new_tokens=9, **options)[0]

    assert count(length=5)["num_tokens"] == 5
    assert 8 <= count(min_new_tokens=8)["num_tokens"] <= 9
    begun = count(prefix="a dog", length=6)
    assert begun["generated_text"].startswith("a dog") and begun["num_tokens"] == 6
    words = [piece for piece in model.tokenizer.pieces if piece.isalpha() and len(piece) > 1]
    options = {"length": 8, "temperature": 1.0, "num_return_sequences": 10}
    for forbidden, expected in (((), True), (words, False)):
        answers = write("the cat", forbidden=forbidden, **options)
        found = {token for each in answers for token in model.tokenizer.tokenize(each["generated_text"])}
        assert bool(found & set(words)) == expected
    ranked = [write("the cat", length=6, temperature=1.0, seed=seed, top_k=1)[0] for seed in range(3)]
    greedy = write("the cat", length=6)[0]
    assert all(each["generated_text"] == greedy["generated_text"] for each in ranked)
    nucleus = write("the cat", length=6, temperature=1.0, top_p=1e-6)[0]
    assert nucleus["generated_text"] == greedy["generated_text"]


def test_a_model_says_how_long_its_answers_are(model, tmp_path):
    known = Generated(9, "none", (0, 0, 0, 1, 0, 0, 1))  # two or five tokens, and the end of text
    settings = dataclasses.replace(model.settings, records={"generated": known})
    write = pipeline("text-generation", dataclasses.replace(model, settings=settings))
    sizes = {answer["num_tokens"] for answer in write("the cat", num_return_sequences=20)}
    assert sizes == {2, 5}
    assert {answer["num_tokens"] for answer in write("the cat", length=4, num_return_sequences=2)} == {4}
    write.model.save_pretrained(tmp_path / "copy")
    assert from_pretrained(tmp_path / "copy").settings.records["generated"] == known


def test_long_texts_are_written_in_windows(write):
    answer = write("the cat sat", length=70)[0]
    assert answer["num_tokens"] == 70
    (one, two) = write(["the cat", ""], max_new_tokens=50, min_new_tokens=49, block_length=8)
    assert {one[0]["num_tokens"], two[0]["num_tokens"]} <= {49, 50}
    with pytest.raises(InputError, match=r"text 0: expected at most 24 tokens before an answer of 8, found 42"):
        write(" ".join(["the cat"] * 20), max_new_tokens=8)
    assert write(" ".join(["the cat"] * 20), length=8, truncation=True)[0]["num_tokens"] == 8


def test_gaps_are_filled_with_the_best_length(model):
    fill = pipeline("fill-in", model)
    text = "the [MASK] [MASK] on a [MASK] tree"
    found = fill(text, steps=3)
    words = found["sequence"]
    assert words.startswith("the") and words.endswith("tree") and len(found["tokens"]) == 3
    tried = {gap: fill("the [MASK] tree", gap_lengths=(gap,)) for gap in (1, 2, 4)}
    best = fill("the [MASK] tree", gap_lengths=(1, 2, 4))
    assert best == max(tried.values(), key=lambda each: each["score"])
    assert [len(each["tokens"]) for each in tried.values()] == [1, 2, 4]
    one = fill(["a [MASK] dog", text])[0]
    likeliest = pipeline("fill-mask", model)("a [MASK] dog", top_k=200)
    words = [each for each in likeliest if not each["token_str"].startswith("[")]
    assert one["tokens"] == [words[0]["token_str"]] and one["sequence"] == words[0]["sequence"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "best"}, "order: 'best' is not known"),
        ({"temperature": -1}, "temperature: expected at least 0, found -1"),
        ({"top_p": 0}, "top_p: expected more than 0 and at most 1, found 0"),
        ({"remasking": 1}, "remasking: expected at least 0 and less than 1, found 1"),
        ({"length": "long"}, "length: expected auto, free, sampled or a number of tokens, found 'long'"),
        ({"length": "sampled"}, "expected a model that records the lengths of its answers, found another"),
        ({"max_new_tokens": -2}, "max_new_tokens: expected a positive integer, found -2"),
        ({"forbidden": ["the cat"]}, "forbidden: expected words of one token each, found 'the cat'"),
    ],
)
def test_options_out_of_range_are_errors(write, options, message):
    with pytest.raises(InputError, match=message):
        write("the cat", **options)


def test_other_prompts_are_errors(model, write):
    with pytest.raises(InputError, match="text 1: expected a text or a list of"):
        write(["the", 3])
    with pytest.raises(InputError, match=r"text 0: expected a \[MASK\] to fill, found none"):
        pipeline("fill-in", model)("the cat")
    assert Unmasking() == Unmasking("confidence")


def test_with_batch_invariant_the_bits_of_an_answer_do_not_depend_on_the_batch(model, monkeypatch):
    seen, fill = [], writing.fill_canvas
    monkeypatch.setattr(writing, "fill_canvas", lambda *given: seen.append(given[2].open.shape) or fill(*given))
    write = pipeline("text-generation", model, batch_invariant=True, max_new_tokens=6)
    prompts = ["the cat", "a dog", "the red cat sat on the tree"] * 3
    together = write(prompts, batch_size=2)  # which is ignored
    assert together == [write([prompt], seed=0)[0] for prompt in prompts]
    gaps = pipeline("fill-in", model, batch_invariant=True)
    assert gaps(["the [MASK] sat", "a [MASK] dog", "on a [MASK] tree"])[0] == gaps("the [MASK] sat")
    assert len(set(seen)) == 2  # a shape for six tokens and one for a gap
    write = pipeline("text-generation", model, max_new_tokens=6)
    write(prompts[:1])
    assert seen[-1][0] == 1


@pytest.mark.slow
def test_all_devices_share_a_batch(folder, tmp_path, on_eight_devices):
    script = tmp_path / "script.py"
    script.write_text(f"""
import json
from bert_jax.inference import pipeline
prompts, found = ["the cat", "a dog", "the tree"], {{}}
for options in ({{}}, {{"temperature": 1.0, "num_return_sequences": 4}}, {{"batch_size": 3}}):
    sides = [
        pipeline("text-generation", {str(folder)!r}, device=device)(prompts, max_new_tokens=6, **options)
        for device in (None, "all")
    ]
    texts = [[each["generated_text"] for answers in side for each in answers] for side in sides]
    found[str(options)] = texts[0] == texts[1]
print(json.dumps(found))
""")
    found = on_eight_devices(script)
    assert len(found) == 3 and all(found.values())
