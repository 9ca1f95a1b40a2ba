"""The pipeline text2text-generation and its verb: batches, options, several devices, and what is refused."""

import json

import jax
import pytest

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import load_encoder_decoder, save_encoder_decoder
from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.inference.decoding import generate
from bert_jax.modeling import EncoderDecoder

TEXTS = [f"the {word} sat {'on a red house ' * (i % 4)}" for i, word in enumerate(("cat", "dog", "bird") * 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    """A small model with random parameters that end some texts early."""
    path = tmp_path_factory.mktemp("text2text") / "model"
    size = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 32}
    config = BertConfig(vocab_size=tiny_tokenizer.vocab_size, num_hidden_layers=1, initializer_range=0.4, **size)
    model = EncoderDecoder(config, config.replace(num_hidden_layers=2))
    params = model.init(jax.random.key(0))
    bias = params["decoder"]["mlm"]["bias"]
    params["decoder"]["mlm"]["bias"] = bias.at[tiny_tokenizer.sep_id].set(3.0)
    ids = {"decoder_start_token_id": tiny_tokenizer.cls_id, "eos_token_id": tiny_tokenizer.sep_id}
    settings = GenerationSettings(**ids, pad_token_id=tiny_tokenizer.pad_id, max_length=10)
    save_encoder_decoder(path, model, params, settings, tiny_tokenizer)
    return path


@pytest.mark.oracle
def test_texts_are_those_of_generate_in_any_batch(folder, tiny_tokenizer):
    loaded = load_encoder_decoder(folder)
    expected, run = [], jax.jit(generate, static_argnums=(0, 4))
    for text in TEXTS:
        inputs = tiny_tokenizer([text])
        tokens = run(
            loaded.model, loaded.params, inputs["input_ids"], inputs["attention_mask"], loaded.settings
        )[0].tolist()[1:]  # fmt: skip
        end = tokens.index(tiny_tokenizer.sep_id) if tiny_tokenizer.sep_id in tokens else len(tokens)
        expected.append({"generated_text": tiny_tokenizer.decode(tokens[:end])})
    assert len({answer["generated_text"] for answer in expected}) > 4
    write = pipeline("text2text-generation", folder)
    assert write(TEXTS) == expected
    assert write(TEXTS, batch_size=3) == expected
    assert pipeline("summarization", folder, batch_invariant=True)(TEXTS) == expected
    assert pipeline("translation", write.model)(TEXTS[1]) == expected[1:2]
    assert write([]) == []


def test_options_are_those_of_the_call_the_pipeline_and_the_files(folder):
    plain = pipeline("text2text-generation", folder)
    short = pipeline("text2text-generation", folder, max_length=4)
    assert max(len(answer["generated_text"].split()) for answer in short(TEXTS)) <= 3
    assert short(TEXTS, max_length=10) == plain(TEXTS)
    assert plain(TEXTS, num_beams=4) != plain(TEXTS)
    options = {"do_sample": True, "temperature": 2.0, "seed": 5}
    drawn = plain(TEXTS, **options)
    assert drawn == plain(TEXTS, **options) != plain(TEXTS, **options | {"seed": 6})
    assert drawn[:3] == plain(TEXTS[:3], batch_size=1, **options)  # not of the other texts


def test_the_verb_prints_what_the_pipeline_returns(folder, capsys, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:4]) + "\n")
    expected = pipeline("text2text-generation", folder)(TEXTS[:4], num_beams=2, max_length=7, length_penalty=0.5)
    flags = ["--num-beams", "2", "--max-length", "7", "--length-penalty", "0.5"]
    assert main(["text2text", str(folder), "--file", str(tmp_path / "texts.txt"), "--json", *flags]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"text": text} | answer for text, answer in zip(TEXTS, expected, strict=False)]
    assert main(["text2text", str(folder), TEXTS[0], *flags]) == 0
    assert capsys.readouterr().out == expected[0]["generated_text"] + "\n"
    sampled = []
    for seed in "112":
        assert main(["text2text", str(folder), *TEXTS, "--sample", "--top-p", "0.9", "--seed", seed]) == 0
        sampled.append(capsys.readouterr().out)
    assert sampled[0] == sampled[1] != sampled[2]


def test_what_does_not_fit_is_refused(folder, write_small, tmp_path):
    write = pipeline("text2text-generation", folder)
    for options, message in (
        ({"max_length": 33}, "max_length: expected at most the decoder's 32 positions"),
        ({"num_beams": 2, "do_sample": True}, "num_beams: expected 1 with do_sample"),
        ({"truncation": False}, "expected at most the model's 32 positions"),
        ({"top_p": 0.0}, "top_p"),
    ):
        with pytest.raises(InputError, match=message):
            write(["the cat " * 40], **options)
    assert len(write("the cat " * 40)) == 1
    encoder = write_small(tmp_path / "encoder", "masked_lm")
    for what in (encoder, from_pretrained(encoder)):
        with pytest.raises(InputError, match=r"expected model_type 'encoder-decoder'|encoder_decoder head, found"):
            pipeline("text2text-generation", what)
    with pytest.raises(InputError, match="found an encoder-decoder"):
        pipeline("embed", write.model)
    with pytest.raises(InputError, match="found an encoder-decoder"):
        pipeline("fill-mask", folder)


@pytest.mark.slow
def test_all_devices_share_a_batch(folder, tmp_path, on_eight_devices):
    script = tmp_path / "script.py"
    script.write_text(f"""
import jax, json
from bert_jax.inference import pipeline
texts = {TEXTS!r}
one, every = (pipeline("text2text-generation", {str(folder)!r}, device=device) for device in (None, "all"))
assert {{len(leaf.sharding.device_set) for leaf in jax.tree.leaves(every.model.params)}} == {{8}}
found = {{}}
for options in ({{}}, {{"num_beams": 3}}, {{"do_sample": True}}):
    found[str(options)] = one(texts, **options) == every(texts, **options)
print(json.dumps(found))
""")
    found = on_eight_devices(script)
    assert len(found) == 3 and all(found.values())
