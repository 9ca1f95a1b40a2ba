"""Pipelines in a graph of Apache Beam give the answers of calls, in processes of their own too."""

import numpy as np
import pytest

from bert_jax.inference import pipeline

beam = pytest.importorskip("apache_beam")

TEXTS = [f"the cat {word} on a red house {'over it ' * (i % 4)}" for i, word in enumerate(["sat", "ran", "sees"] * 4)]


def inferred(elements, handler, tmp_path, *options, **arguments):
    """The answers by element of a run of Beam, in files: workers may be other processes."""
    from apache_beam.ml.inference.base import RunInference
    from apache_beam.options.pipeline_options import PipelineOptions

    def as_text(result):
        answer = result.inference.tolist() if hasattr(result.inference, "tolist") else result.inference
        return repr((result.example, answer))

    with beam.Pipeline(options=PipelineOptions(list(options))) as graph:
        found = graph | beam.Create(elements) | RunInference(handler, inference_args=arguments or None)
        _ = found | beam.Map(as_text) | beam.io.WriteToText(str(tmp_path / "answers"))
    lines = [line for path in tmp_path.glob("answers*") for line in path.read_text().splitlines()]
    return dict(map(eval, lines))


PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


@pytest.mark.parametrize("options", [(), pytest.param(PROCESSES, marks=pytest.mark.slow)], ids=["threads", "processes"])
def test_vectors(write_small, tmp_path, options):
    from bert_jax.tasks.sequence_to_sequence.beam_handler import PipelineHandler

    model = write_small(tmp_path / "model", "sentence_embedding", pooling="mean")
    handler = PipelineHandler("sentence-embedding", model, most_texts=5, batch_invariant=True)
    found = inferred(TEXTS, handler, tmp_path, *options)
    expected = pipeline("sentence-embedding", model, batch_invariant=True)(TEXTS)
    assert np.array_equal(np.float32([found[text] for text in TEXTS]), expected)


def test_options_of_calls_and_calls_with_several_arguments(write_small, tmp_path):
    from bert_jax.tasks.sequence_to_sequence.beam_handler import PipelineHandler

    model = write_small(tmp_path / "model", "sequence_classification", num_labels=2)
    found = inferred(TEXTS, PipelineHandler("text-classification", model), tmp_path, top_k=None)
    assert all(len(scores) == 2 for scores in found.values()) and found.keys() == set(TEXTS)
    (tmp_path / "ranked").mkdir()
    elements = [("the cat", tuple(TEXTS[:3])), ("a house", tuple(TEXTS[3:5]))]
    ranked = inferred(elements, PipelineHandler("rerank", model), tmp_path / "ranked")
    rerank = pipeline("rerank", model)
    for query, documents in elements:
        order = [answer["corpus_id"] for answer in rerank(query, documents)]
        assert [answer["corpus_id"] for answer in ranked[query, documents]] == order
