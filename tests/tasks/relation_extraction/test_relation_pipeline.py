"""Relations of given entities, and triples of the entities that a tagger finds."""

import json

import pytest
from relation_rows import CITIES, FIRMS, PEOPLE, rows_of, write_model

from bert_jax import evaluation
from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline

RECORD = {"relations": {"markers": "typed_entity_marker_punct", "null_label": "none"}}
NAMES = ("a", "b", "none")
KINDS = dict.fromkeys(PEOPLE, "PERSON") | dict.fromkeys(CITIES, "CITY") | dict.fromkeys(FIRMS, "ORG")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of relations with random parameters so large that its answers differ."""
    path = tmp_path_factory.mktemp("relations") / "model"
    write_model(path, "sequence_classification", num_labels=3, id2label=NAMES, initializer_range=0.6,
                problem_type="single_label_classification")  # fmt: skip
    (path / "bert_jax.json").write_text(json.dumps(RECORD))
    return path


def tagger(texts):
    """The words that are known names."""
    found = []
    for text in texts:
        entities, at = [], 0
        for word in text.split(" "):
            if word in KINDS:
                entities.append({"entity_group": KINDS[word], "start": at, "end": at + len(word)})
            at += len(word) + 1
        found.append(entities)
    return found


def pair(text, head, tail):
    spans = [(text.index(word), text.index(word) + len(word), KINDS[word]) for word in (head, tail)]
    return {"text": text, "head": spans[0], "tail": spans[1]}


def test_pairs_have_the_answers_of_the_marked_texts(model):
    texts = ["ada works at acme .", "in rome sits apex .", "the bob now lives near oslo . and so and so"]
    pairs = [pair(texts[0], "ada", "acme"), pair(texts[1], "apex", "rome"), pair(texts[2], "bob", "oslo")]
    marked = [
        "@ * person * ada @ works at # ^ org ^ acme # .",
        "in # ^ city ^ rome # sits @ * org * apex @ .",
        "the @ * person * bob @ now lives near # ^ city ^ oslo # . and so and so",
    ]
    extract = pipeline("relation-extraction", model)
    expected = pipeline("text-classification", model)(marked, top_k=None)
    for ours, theirs in zip(extract(pairs, top_k=None), expected, strict=True):
        assert [each["label"] for each in ours] == [each["label"] for each in theirs]
        assert [each["score"] for each in ours] == pytest.approx([each["score"] for each in theirs], abs=1e-5)
    one = extract(pairs[0] | {"head": {"start": 0, "end": 3, "type": "PERSON"}})
    assert (one["label"], one["score"]) == (expected[0][0]["label"], pytest.approx(expected[0][0]["score"], abs=1e-5))
    assert len(extract(pairs[0], top_k=2)) == 2


def test_triples_are_those_of_each_ordered_pair(model):
    texts = ["ada works at acme in rome .", "so and so", "bob saw eve"]
    extract = pipeline("relation-extraction", model, tagger=tagger)
    answers = extract(texts)
    assert answers[1] == [] and extract(texts[0]) == answers[0]
    alone = pipeline("relation-extraction", model)
    expected = []
    for head, tail in (("ada", "acme"), ("ada", "rome"), ("acme", "ada"), ("acme", "rome"), ("rome", "ada"),
                       ("rome", "acme")):  # fmt: skip
        answer = alone(pair(texts[0], head, tail))
        if answer["label"] != "none":
            expected.append((head, answer["label"], tail, pytest.approx(answer["score"], abs=1e-5)))
    found = [(t["head"]["text"], t["relation"], t["tail"]["text"], t["score"]) for t in answers[0]]
    assert found == expected and found
    first = answers[0][0]["head"]
    assert texts[0][first["start"] : first["end"]] == first["text"] and first["type"] == KINDS[first["text"]]
    # With another class as the null label, its pairs are left out and those of `none` are there.
    others = {t["relation"] for t in extract(texts[0], null_label="a")}
    assert others <= {"b", "none"}


def test_several_relations_of_a_pair(tmp_path):
    write_model(tmp_path / "model", "sequence_classification", num_labels=3, id2label=NAMES, initializer_range=0.6,
                problem_type="multi_label_classification")  # fmt: skip
    (tmp_path / "model" / "bert_jax.json").write_text(json.dumps(RECORD))
    extract = pipeline("relation-extraction", tmp_path / "model")
    text = "ada works at acme in rome ."
    found = {(t["head"]["text"], t["tail"]["text"], t["relation"]) for t in extract(text, tagger=tagger)}
    names = [word for word in text.split() if word in KINDS]
    expected = {
        (head, tail, answer["label"])
        for head in names
        for tail in names
        if head != tail
        for answer in extract(pair(text, head, tail), top_k=None)
        if answer["score"] > 0.5 and answer["label"] != "none"
    }
    assert found == expected and found


def test_long_texts_are_cut_around_the_entities(model):
    text = " ".join(["so"] * 60 + ["ada works at acme"] + ["and"] * 60)
    extract = pipeline("relation-extraction", model)
    assert extract(pair(text, "ada", "acme"))["label"] in NAMES
    far = " ".join(["ada", *["so"] * 60, "acme near rome"])
    with pytest.raises(InputError, match="text 0: expected both entities within 48 tokens"):
        extract(pair(far, "ada", "acme"))
    heads = {t["head"]["text"] for t in extract(far, tagger=tagger)}
    assert heads <= {"acme", "rome"}  # pairs that are too far apart are left out


def test_items_that_do_not_fit(model, tmp_path):
    extract = pipeline("relation-extraction", model)
    with pytest.raises(InputError, match="text 0: expected a dict of 'text', 'head' and 'tail', found 'ada'; a tagger"):
        extract(["ada"])
    with pytest.raises(InputError, match="expected a span within the 3 characters"):
        extract({"text": "ada", "head": (0, 3), "tail": (2, 9)})
    with pytest.raises(InputError, match="text 0: expected a text with a tagger, found dict"):
        extract([{}], tagger=tagger)
    with pytest.raises(InputError, match="expected entities with entity_group or label"):
        extract("ada", tagger=lambda texts: [[{"entity": "B-X", "start": 0, "end": 3}]])
    with pytest.raises(InputError, match="markers 'punct' is not known"):
        extract({}, markers="punct")
    plain = write_model(tmp_path / "plain", "sequence_classification", num_labels=3, id2label=NAMES)
    ask = pipeline("relation-extraction", plain)
    with pytest.raises(InputError, match="expected a relation extraction model trained by bert_jax, or the style"):
        ask(pair("ada works at acme .", "ada", "acme"))
    assert ask(pair("ada works at acme .", "ada", "acme"), markers="entity_marker_punct")["label"] in NAMES
    (plain / "bert_jax.json").write_text('{"relations": {"markers": "x"}}')
    with pytest.raises(InputError, match=r"bert_jax\.json: relations: expected markers, one of typed_entity"):
        from_pretrained(plain)


def test_predict_gives_the_answers_of_the_pipeline(model, tmp_path):
    rows = rows_of(12, seed=3)
    (tmp_path / "a.json").write_text(json.dumps(rows))
    evaluation.predict(model, str(tmp_path / "a.json"), tmp_path / "a.jsonl")
    answers = list(map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines()))
    pairs = [{name: answer[name] for name in ("text", "head", "tail")} for answer in answers]
    found = pipeline("relation-extraction", model)(pairs)
    assert [each["label"] for each in found] == [answer["label"] for answer in answers]
    assert len({each["label"] for each in found}) > 1


def test_the_verb(model, tmp_path, capsys):
    """A tagger with random parameters, which finds something in most texts."""
    labels = ("O", "B-PERSON", "B-CITY")
    tagging = write_model(tmp_path / "tagger", "token_classification", num_labels=3, id2label=labels,
                          initializer_range=0.6)  # fmt: skip
    texts = ["ada works at acme in rome .", "bob saw eve"]
    expected = pipeline("relation-extraction", model)(
        texts, tagger=pipeline("token-classification", tagging, aggregation_strategy="first")
    )
    assert any(expected)
    command = ["relations", str(model), "--tagger", str(tagging), *texts]
    assert main([*command, "--json"]) == 0
    lines = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [line["text"] for line in lines] == texts
    for line, triples in zip(lines, expected, strict=True):
        assert [t["relation"] for t in line["relations"]] == [t["relation"] for t in triples]
    assert main(command) == 0
    assert "relation" in capsys.readouterr().out


def test_the_verb_with_a_gliner(model, tmp_path, capsys, monkeypatch):
    """The types of a GLiNER are named; it is opened once for all files."""
    opened = []

    def find(task, folder, *_, **options):
        opened.append((task, options.get("labels")))
        return _Finder() if task == "zero-shot-ner" else pipeline(task, folder)

    class _Finder:
        def __call__(self, texts):
            return [[{**entity, "label": entity.pop("entity_group")} for entity in found] for found in tagger(texts)]

        def use_every_length(self):
            """As a pipeline has it."""

    monkeypatch.setattr("bert_jax.inference.pipeline", find)
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.txt").write_text("ada works at acme in rome .\n")
    command = ["relations", str(model), "--tagger", "gliner", "--labels", "person,city"]
    assert main([*command, "--shards", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    assert opened == [("relation-extraction", None), ("zero-shot-ner", "person,city")]
    (line,) = (tmp_path / "out" / "b.jsonl").read_text().splitlines()
    expected = pipeline("relation-extraction", model)("ada works at acme in rome .", tagger=tagger)
    assert [t["relation"] for t in json.loads(line)["relations"]] == [t["relation"] for t in expected]
