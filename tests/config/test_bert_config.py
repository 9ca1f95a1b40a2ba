"""BertConfig: named sizes, Hugging Face's config.json both ways, and refusals."""

import json

import pytest
from random_models import WITH_LAYERS

from bert_jax.config import BertConfig
from bert_jax.config.layers import GatedConfig, StackConfig
from bert_jax.config.parts import PLACES, declared_settings, kinds_of
from bert_jax.config.values import SIZES
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.families.albert.parts import TiedConfig
from bert_jax.families.big_bird.parts import BlockSparseConfig
from bert_jax.families.deberta.parts import DisentangledConfig
from bert_jax.families.longformer.parts import GlobalTokensConfig


@pytest.mark.parametrize("size", SIZES)
def test_named_sizes(size):
    config = BertConfig.named(size)
    assert config.intermediate_size == 4 * config.hidden_size
    assert config.head_size == 64


def test_config_json_round_trip(tmp_path):
    config = BertConfig.named("mini", hidden_act="gelu_tanh", id2label=("no", "yes", "maybe"), num_labels=3)
    config.to_json_file(tmp_path / "config.json", "BertForSequenceClassification")
    assert BertConfig.from_json_file(tmp_path / "config.json") == config
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["hidden_act"] == "gelu_new"
    assert written["architectures"] == ["BertForSequenceClassification"]
    assert written["label2id"] == {"no": 0, "yes": 1, "maybe": 2}


def test_labels_are_ordered_by_number():
    names = {str(i): f"name{i}" for i in range(12)}
    assert BertConfig.from_hf({"model_type": "bert", "id2label": names}).id2label == tuple(
        f"name{i}" for i in range(12)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads 5 must divide hidden_size 768"),
        ({"hidden_size": 0}, "hidden_size must be a positive integer, found 0"),
        ({"hidden_size": 7.5}, "hidden_size must be a positive integer, found 7.5"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be a rate"),
        ({"hidden_act": "gelo"}, "did you mean 'gelu'"),
        ({"id2label": ("a",)}, "num_labels is 2 but id2label has 1"),
        *(
            ({"attention": attention}, f"expected num_attention_heads with {name}, found 4")
            for name, attention in (
                ("pos_att_type", DisentangledConfig(4, pos_att_type=("c2p",))),
                ("max_global_tokens", GlobalTokensConfig(4, max_global_tokens=2)),
                ("attention_type block_sparse", BlockSparseConfig(4, block_size=16)),
            )
        ),
    ],
)
def test_nonsense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        BertConfig(**change)


def test_files_that_are_not_a_bert_are_refused(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(InputError, match="no such file"):
        BertConfig.from_json_file(path)
    path.write_text("{")
    with pytest.raises(InputError, match="expected JSON"):
        BertConfig.from_json_file(path)
    path.write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match=r"model_type 'gpt2' is not supported; known: albert, bert"):
        BertConfig.from_json_file(path)
    with pytest.raises(InputError, match="did you mean 'large'"):
        BertConfig.named("larg")


@pytest.mark.parametrize("family", WITH_LAYERS)
def test_config_json_round_trip_of_every_family(family):
    config = BertConfig.named("base", family, num_labels=3, id2label=("no", "yes", "maybe"))
    hf = config.to_hf()
    assert hf["model_type"] == (FAMILIES[family].model_type or family)
    assert BertConfig.from_hf(hf) == config
    activation = "relu" if family.startswith("jina-bert") else FAMILIES[family].fixed.get("hidden_act", "gelu_tanh")
    changed = config.replace(num_hidden_layers=7, vocab_size=1000, max_position_embeddings=99, hidden_act=activation)
    assert BertConfig.from_hf(changed.to_hf()) == changed


def test_what_a_family_cannot_say_is_refused():
    with pytest.raises(InputError, match=r"feed_forward: expected FeedForwardConfig\(.*, as in every roberta"):
        BertConfig.named("base", "roberta", feed_forward=GatedConfig()).to_hf()
    with pytest.raises(InputError, match="norm_placement: expected 'post', as in every roberta"):
        BertConfig.named("base", "roberta", norm_placement="pre").to_hf()
    with pytest.raises(InputError, match="num_experts: expected no setting, as the stack of this roberta has, found 2"):
        BertConfig.named("base", "roberta", num_experts=2)
    with pytest.raises(InputError, match="'norm_placment' is not known; did you mean 'norm_placement'"):
        BertConfig().replace(norm_placment="pre")
    with pytest.raises(InputError, match="did you mean 'roberta'"):
        BertConfig.named("base", "robberta")
    with pytest.raises(InputError, match="model size 'tinny' is not known"):
        BertConfig.named("tinny", "modernbert")


@pytest.mark.parametrize("family", WITH_LAYERS)
def test_any_config_of_a_family_is_written_as_it_is_or_refused(family):
    """Other parts, and settings that are None, so that `to_hf` never says less than the config, nor fails otherwise."""
    config = BertConfig.named("tiny", family)
    others = [{place: kind()} for place in PLACES for kind in kinds_of(place)]
    optional = [name for name, field in declared_settings(BertConfig).items() if field.annotation.endswith("| None")]
    others += [{name: None} for name in optional if name in config.settings()]
    written = 0
    for change in others:
        try:
            changed = config.replace(**change)
            hf = changed.to_hf()
        except InputError:
            continue
        assert BertConfig.from_hf(hf) == changed.replace(carried=()), change
        written += 1
    assert written >= len(PLACES)


def test_null_as_the_base_of_local_layers_is_that_of_global_ones():
    hf = BertConfig.named("tiny", "modernbert").to_hf()
    del hf["rope_parameters"]
    assert BertConfig.from_hf(hf | {"local_rope_theta": None}).positions.theta(64) == 160_000.0
    assert BertConfig.from_hf({key: hf[key] for key in hf if key != "local_rope_theta"}).positions.theta(64) == 10_000.0


def test_positions_are_counted_and_not_rows():
    config = BertConfig.from_hf({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1})
    assert (config.max_position_embeddings, config.positions.position_offset) == (512, 2)
    assert config.to_hf()["max_position_embeddings"] == 514


def test_a_config_as_the_authors_of_nomicbert_wrote_it():
    theirs = {
        "model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "n_positions": 8192,
        "activation_function": "swiglu", "attn_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-12,
        "prenorm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "vocab_size": 30528,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "type_vocab_size": 2,
    }  # fmt: skip
    config = BertConfig.from_hf(theirs)
    assert (config.hidden_size, config.max_position_embeddings, config.positions.rope_theta) == (768, 8192, 1000)
    assert config.feed_forward.gated and config.hidden_act == "silu" and not config.attention.attention_bias
    with pytest.raises(InputError, match="qkv_proj_bias: expected False, found True"):
        BertConfig.from_hf(theirs | {"qkv_proj_bias": True})


@pytest.mark.parametrize(
    ("layers", "groups", "inner", "rows"),
    [(4, 0, 1, (0, 1, 2, 3)), (4, 1, 1, (0, 0, 0, 0)), (4, 4, 1, (0, 1, 2, 3)), (5, 2, 1, (0, 0, 0, 1, 1)),
     (6, 1, 2, (0, 1, 0, 1, 0, 1)), (8, 2, 2, (0, 1, 0, 1, 2, 3, 2, 3))],
)  # fmt: skip
def test_layers_share_the_parameters_of_their_group(layers, groups, inner, rows):
    config = BertConfig(num_hidden_layers=layers, stack=TiedConfig(groups, inner) if groups else StackConfig())
    assert (config.parameter_rows, config.num_parameter_rows) == (rows, len(set(rows)))


def test_a_config_of_an_albert_counts_the_uses_of_its_groups():
    hf = {"model_type": "albert", "num_hidden_layers": 6, "num_hidden_groups": 2, "inner_group_num": 2}
    config = BertConfig.from_hf(hf | {"hidden_act": "gelu_new"})
    assert (config.num_hidden_layers, config.num_parameter_rows, config.hidden_act) == (12, 4, "gelu_tanh")
    assert config.to_hf()["num_hidden_layers"] == 6
    with pytest.raises(
        InputError, match=r"num_hidden_groups: expected at most 6 \(num_hidden_layers / inner_group_num\)"
    ):
        BertConfig.from_hf(hf | {"num_hidden_groups": 7})
    with pytest.raises(InputError, match="inner_group_num 5 must divide num_hidden_layers 12"):
        config.replace(inner_group_num=5)
    with pytest.raises(InputError, match="hidden_act 'geglu' is not known"):
        BertConfig.from_hf(hf | {"hidden_act": "geglu"})
    with pytest.raises(InputError, match="position_embedding_type: expected 'absolute', found 'relative_key'"):
        BertConfig.from_hf(hf | {"position_embedding_type": "relative_key"})


def test_which_layers_of_a_modernbert_see_everything():
    assert BertConfig.named("base", "modernbert").windows == (None, 64, 64) * 7 + (None,)
    kinds = ["full_attention", "sliding_attention"] * 2
    hf = {"model_type": "modernbert", "num_hidden_layers": 4, "local_attention": 32, "layer_types": kinds}
    assert BertConfig.from_hf(hf).windows == (None, 16, None, 16)
    with pytest.raises(InputError, match="expected every n-th layer, from the first, to be full_attention"):
        BertConfig.from_hf(hf | {"layer_types": kinds[::-1]})
    with pytest.raises(InputError, match="factor: expected a positive number for yarn, found None"):
        BertConfig.from_hf(hf | {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}})


def test_embeddings_are_narrow_in_a_small_electra_alone():
    widths = {size: BertConfig.named(size, "electra").embedding_width for size in ("small", "base", "large")}
    assert widths == {"small": 128, "base": 768, "large": 1024}
