"""Tensor names of BigBird (Zaheer et al. 2020, arXiv:2007.14062)."""

from bert_jax.conversion.names import bert, roberta
from bert_jax.conversion.names.table import Names, architectures, classifiers, dense, norm

NAMES = Names(
    prefix="bert.",
    encoder=(
        *(entry for entry in bert.encoder("bert.") if not entry.ours.startswith("pooler/")),
        *dense("bert.pooler", "pooler/dense"),
    ),
    heads=classifiers(
        masked_lm=bert.masked_lm(),
        pretraining=(*bert.masked_lm(), *dense("cls.seq_relationship", "nsp")),
        sequence_classification=roberta.CLASSIFIER,
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
