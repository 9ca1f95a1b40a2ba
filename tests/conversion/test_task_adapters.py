"""Jina Embeddings v3 with the adapters of its tasks, in the authors' files and in those of transformers."""

import json
import logging

import pytest

from bert_jax import from_pretrained
from bert_jax.conversion.huggingface import convert
from bert_jax.errors import InputError

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

from safetensors.torch import save_file  # noqa: E402
from test_hf_families import VOCABULARY, batch, oracle, relative, run  # noqa: E402
from test_retrieval_families import renamed, unit_mean, write_files, write_sentence_transformers  # noqa: E402

TASKS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
PROMPTS = {"retrieval.query": "Represent the query: ", "retrieval.passage": "Represent the document: "}
PROMPTS |= dict.fromkeys(TASKS[2:], "")
ALPHA, RANK = 3, 2
FILE = {
    "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "vocab_size": VOCABULARY, "hidden_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "hidden_act": "gelu",
    "max_position_embeddings": 64, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1,
    "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "emb_pooler": "mean", "use_flash_attn": True,
    "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"},
    "lora_adaptations": TASKS, "lora_alpha": ALPHA, "lora_rank": RANK, "lora_dropout_p": 0.0, "truncate_dim": None,
    "task_instructions": PROMPTS, "matryoshka_dimensions": [8, 16], "load_trained_adapters": True,
}  # fmt: skip
NAMES = (
    ("self_attn.o_proj", "mixer.out_proj"), ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2"),
    ("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."),
)  # fmt: skip


def model_of():
    return oracle("jina_embeddings_v3", "encoder", layer_norm_eps=1e-5)


def adapted_names(tensors):
    return [name for name in tensors if name.endswith(".weight") and "norm" not in name.lower() and "_ln" not in name]


def in_the_authors_layout(model):
    """Their tensors with adapters for all tasks, and a function from a task to the model with its adapter."""
    qkv = [("self_attn.Wqkv", [f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj")])]
    plain = renamed(model.state_dict(), (("self_attn.Wqkv", "mixer.Wqkv"), *NAMES), qkv)
    torch.manual_seed(3)
    tensors, updates = {}, {}
    for name, tensor in plain.items():
        if name not in adapted_names(plain):
            tensors[name] = tensor
            continue
        rows, columns = tensor.shape
        is_table = name.endswith("_embeddings.weight")
        shapes = ((rows, RANK), (RANK, columns)) if is_table else ((RANK, columns), (rows, RANK))
        a, b = (torch.randn(len(TASKS), *shape) * 0.2 for shape in shapes)
        layer = name.removesuffix(".weight")
        tensors |= {f"{layer}.parametrizations.weight.original": tensor,
                    f"{layer}.parametrizations.weight.0.lora_A": a,
                    f"{layer}.parametrizations.weight.0.lora_B": b}  # fmt: skip
        updates[name] = (a @ b if is_table else b @ a) * ALPHA / RANK

    def adapted(task):
        merged = dict(plain)
        for name, update in updates.items():
            merged[name] = plain[name] + (update[TASKS.index(task)] if task else 0)
        named = {}
        for name, tensor in merged.items():
            for new, old in NAMES:
                name = name.replace(old, new)
            parts = tensor.chunk(3) if "mixer.Wqkv" in name else (tensor,)
            for part, values in zip(("q_proj", "k_proj", "v_proj"), parts, strict=False):
                named[name.replace("mixer.Wqkv", f"self_attn.{part}")] = values
        other = model_of()
        other.load_state_dict(named)
        return other

    return {f"roberta.{name}": tensor for name, tensor in tensors.items()}, adapted


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A directory in the authors' layout, and the function of `in_the_authors_layout`."""
    directory = tmp_path_factory.mktemp("v3")
    tensors, adapted = in_the_authors_layout(model_of())
    write_files(directory, FILE, tensors)
    write_sentence_transformers(directory, PROMPTS, transformer="custom_st.Transformer")
    modules = json.loads((directory / "modules.json").read_text())
    modules[0]["kwargs"] = ["task"]
    (directory / "modules.json").write_text(json.dumps(modules))
    return directory, adapted


@pytest.mark.parametrize("task", ["", *TASKS])
def test_the_adapter_of_a_task(theirs, task):
    directory, adapted = theirs
    ours, expected = from_pretrained(directory, task=task), adapted(task)
    inputs = batch(expected, "encoder")
    assert (ours.config.family, ours.head, ours.settings.task) == ("jina_embeddings_v3", "sentence_embedding", task)
    assert (ours.settings.default_prompt, ours.settings.prompt()) == (task, PROMPTS.get(task, ""))
    vectors = unit_mean(run(expected, inputs)[0], inputs["attention_mask"])
    assert relative(ours(**inputs).sentence_embedding, vectors) < 1e-5
    plain = from_pretrained(directory, head="encoder", task=task)(**inputs, output_hidden_states=True)
    at = inputs["attention_mask"] > 0
    for found, state in zip(plain.hidden_states, run(expected, inputs).hidden_states, strict=True):
        assert relative(found[at], state.numpy()[at]) < 1e-5
    assert relative(plain.pooler_output, run(expected, inputs).pooler_output) < 1e-5


def test_no_task_means_no_adapter_and_is_said(theirs, caplog):
    directory, adapted = theirs
    with caplog.at_level(logging.WARNING):
        ours = from_pretrained(directory)
    assert f"no task is chosen, so no adapter is used; tasks: {', '.join(TASKS)}" in caplog.text
    inputs = batch(adapted(""), "encoder")
    vectors = unit_mean(run(adapted(""), inputs)[0], inputs["attention_mask"])
    assert ours.settings.default_prompt == "" and relative(ours(**inputs).sentence_embedding, vectors) < 1e-5


@pytest.mark.parametrize(
    ("file", "content", "task"),
    [
        ("sentence_bert_config.json", {"model_args": {"default_task": "separation"}}, "separation"),
        (
            "config_sentence_transformers.json",
            {"prompts": PROMPTS, "default_prompt_name": "retrieval.passage"},
            "retrieval.passage",
        ),
    ],
)
def test_the_files_choose_a_task(theirs, file, content, task):
    directory, adapted = theirs
    before = (directory / file).read_text()
    try:
        (directory / file).write_text(json.dumps(content))
        ours = from_pretrained(directory)
        assert ours.settings.task == ours.settings.default_prompt == task
        assert from_pretrained(directory, task="text-matching").settings.task == "text-matching"
        inputs = batch(adapted(task), "encoder")
        vectors = unit_mean(run(adapted(task), inputs)[0], inputs["attention_mask"])
        assert relative(ours(**inputs).sentence_embedding, vectors) < 1e-5
    finally:
        (directory / file).write_text(before)


def test_a_merged_model_is_one_of_transformers(theirs, tmp_path):
    directory, adapted = theirs
    convert(directory, tmp_path / "merged", lambda directory: None, task="retrieval.query")
    expected = adapted("retrieval.query")
    again, info = type(expected).from_pretrained(
        tmp_path / "merged", attn_implementation="eager", output_loading_info=True
    )
    assert not any(info.values()), info
    inputs = batch(expected, "encoder")
    assert relative(run(again.eval(), inputs)[0], run(expected, inputs)[0]) < 1e-5
    ours = from_pretrained(tmp_path / "merged")  # which has no adapters any more
    assert (ours.settings.prompt(), ours.settings.task) == (PROMPTS["retrieval.query"], "")
    with pytest.raises(InputError, match="task 'separation' is not known; the model has no task adapters"):
        from_pretrained(tmp_path / "merged", task="separation")


def test_adapters_in_folders_as_transformers_has_them(tmp_path):
    model = model_of()
    model.save_pretrained(tmp_path)
    torch.manual_seed(4)
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "task_type": "FEATURE_EXTRACTION"}
    merged = {}
    for task in ("retrieval_query", "text_matching"):
        tensors, named = {}, dict(model.state_dict())
        for name in adapted_names(named):
            rows, columns = named[name].shape
            layer, is_table = name.removesuffix(".weight"), name.endswith("_embeddings.weight")
            a, b = (
                torch.randn(RANK, rows if is_table else columns),
                torch.randn(columns if is_table else rows, RANK) / 10,
            )
            ends = ("lora_embedding_A", "lora_embedding_B") if is_table else ("lora_A.weight", "lora_B.weight")
            tensors |= {f"base_model.model.{layer}.{end}": part for end, part in zip(ends, (a, b), strict=True)}
            update = b @ a * ALPHA / RANK
            named[name] = named[name] + (update.T if is_table else update)
        (tmp_path / task).mkdir()
        save_file(tensors, tmp_path / task / "adapter_model.safetensors")
        (tmp_path / task / "adapter_config.json").write_text(json.dumps(settings))
        merged[task] = named
    for task, name in (("retrieval_query", "retrieval.query"), ("text_matching", "text-matching")):
        model.load_state_dict(merged[task])
        inputs = batch(model, "encoder")
        ours = from_pretrained(tmp_path, task=name)
        assert relative(ours(**inputs).last_hidden_state, run(model, inputs)[0]) < 1e-5


def test_a_number_of_dimensions_in_the_config(theirs, tmp_path):
    tensors, _ = in_the_authors_layout(model_of())
    ours = from_pretrained(write_files(tmp_path, FILE | {"truncate_dim": 16}, tensors), task="separation")
    assert ours.settings.dimension() == 16 and dict(ours.settings.prompts) == PROMPTS


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({}, "retrieval.querry", "task 'retrieval.querry' is not known; did you mean 'retrieval.query'?"),
        ({"lora_adaptations": "x"}, None, "lora_adaptations: expected a list of names, found 'x'"),
        ({"lora_adaptations": TASKS[:4]}, "separation", "expected adapters of 4 tasks for a weight of shape"),
        ({"task_instructions": {"separation": 3}}, None, "task_instructions: expected an object of texts, found"),
        ({"lora_alpha": 0}, None, "lora_alpha: expected a positive number, found 0"),
        ({"truncate_dim": 0}, None, "truncate_dim: expected a positive integer, found 0"),
        ({"position_embedding_type": "absolute"}, None, "expected a tensor"),
        ({"use_reg_tokens": True}, None, "use_reg_tokens: expected False, found True"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(tmp_path, changes, task, message):
    tensors, _ = in_the_authors_layout(model_of())
    write_files(tmp_path, FILE | changes, tensors)
    with pytest.raises(InputError) as error:
        from_pretrained(tmp_path, task=task)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_transformer_module_of_another_family_is_refused(tmp_path):
    oracle("bert", "encoder").save_pretrained(tmp_path)
    write_sentence_transformers(tmp_path, {}, transformer="custom_st.Transformer")
    with pytest.raises(InputError, match=r"of sentence_transformers, found 'custom_st\.Transformer'"):
        from_pretrained(tmp_path)
