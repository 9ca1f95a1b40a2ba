"""The parts of ESM: embeddings that are rescaled for mask tokens, and a head that predicts contacts."""

import dataclasses
from typing import Any

from bert_jax.config.embeddings import EmbeddingsConfig
from bert_jax.config.fields import setting
from bert_jax.config.heads import HeadsConfig
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class RescaledConfig(EmbeddingsConfig):
    """Embeddings scaled as if mask tokens had been dropped out (Rives et al. 2021, doi:10.1073/pnas.2016239118)."""

    token_dropout: bool = setting(False, "whether an ESM zeroes mask tokens and rescales other embeddings", shapes=True)
    mask_token_id: int | None = setting(None, "id of the mask token, for token_dropout", least=0)

    def builds(self) -> str:
        return "bert_jax.families.esm.modules.RescaledEmbeddings" if self.token_dropout else super().builds()

    def check(self, config: Any) -> None:
        if self.token_dropout and self.mask_token_id is None:
            raise InputError(
                "model config: mask_token_id: expected the id of the mask token with token_dropout, found none"
            )


@dataclasses.dataclass(frozen=True)
class ContactsConfig(HeadsConfig):
    """The usual heads, and one that reads attention maps (Rao et al. 2021, doi:10.1101/2020.12.15.422761)."""

    contact_head: bool = setting(True, "whether a regression over attention maps predicts a protein's contacts")

    def further_heads(self) -> tuple[str, ...]:
        return ("bert_jax.families.esm.contacts.Contacts",) if self.contact_head else ()
