"""BigBird (Zaheer et al. 2020, arXiv:2007.14062): block-sparse attention in long sequences, its own heads."""

from bert_jax.families import bert
from bert_jax.families.base import Family, keys_with
from bert_jax.families.big_bird.parts import BigBirdHeadsConfig, BlockSparseConfig, ScaledConfig
from bert_jax.families.names import CLASSIFICATION_HEAD, Names, architectures, classifiers, dense, norm

_NAMES = Names(
    prefix="bert.",
    encoder=(
        *(entry for entry in bert.encoder("bert.") if not entry.ours.startswith("pooler/")),
        *dense("bert.pooler", "pooler/dense"),
    ),
    heads=classifiers(
        masked_lm=bert.masked_lm(),
        pretraining=(*bert.masked_lm(), *dense("cls.seq_relationship", "nsp")),
        sequence_classification=CLASSIFICATION_HEAD,
        question_answering=(
            *dense("qa_classifier.intermediate.dense", "span/up"),
            *dense("qa_classifier.output.dense", "span/down"),
            *norm("qa_classifier.output.LayerNorm", "span/layer_norm"),
            *dense("qa_classifier.qa_outputs", "qa_outputs"),
        ),
    ),
    architectures=architectures("BigBird", pretraining="ForPreTraining"),
    other_architectures={"BigBirdForCausalLM": "masked_lm"},
    tied=bert.tied_predictions("bert."),
)

BIG_BIRD_FAMILY = Family(
    name="big_bird",
    title="BigBird",
    names=_NAMES,
    tokenizer_class="BigBirdTokenizer",
    token_types=False,
    sign=r"^bert\.pooler\.weight$|^qa_classifier\.",
    classes="BigBird",
    fixed={"attention": BlockSparseConfig(), "embeddings": ScaledConfig(),
           "heads": BigBirdHeadsConfig(classifier_summary="hidden_act", drop_before_summary=True)},
    keys=keys_with(
        "attention_type", "block_size", "num_random_blocks", "rescale_embeddings", "sep_token_id", "qkv_bias",
        qkv_bias="use_bias",
    ),
    assumed={"hidden_act": "gelu_new"},
    defaults={"vocab_size": 50358, "hidden_act": "gelu_new", "max_position_embeddings": 4096, "sep_token_id": 66,
              "attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3},
)  # fmt: skip
