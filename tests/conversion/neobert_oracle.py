"""NeoBERT in PyTorch, which transformers does not have: an oracle from its paper (arXiv:2502.19587) and config.json.

Names of tensors and keys are those of the published chandar-lab/NeoBERT: queries, keys and values in one matrix, head
by head; rotations of neighbouring coordinates, here as products of complex numbers; gate and up in one matrix.
"""

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput


class NeoBERTConfig(PretrainedConfig):
    model_type = "neobert"

    def __init__(self, hidden_size=768, num_hidden_layers=28, num_attention_heads=12, intermediate_size=3072,
                 decoder_init_range=0.02, norm_eps=1e-6, vocab_size=30522, pad_token_id=0, max_length=1024,
                 tie_word_embeddings=False, **others):  # fmt: skip
        super().__init__(pad_token_id=pad_token_id, tie_word_embeddings=tie_word_embeddings, **others)
        self.hidden_size, self.num_hidden_layers = hidden_size, num_hidden_layers
        self.num_attention_heads, self.intermediate_size = num_attention_heads, intermediate_size
        self.decoder_init_range, self.norm_eps, self.vocab_size = decoder_init_range, norm_eps, vocab_size
        self.max_length = max_length

    def _get_generation_parameters(self):
        return {}  # max_length is none of these here


class GatedFeedForward(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        width = 8 * -(-int(2 * config.intermediate_size / 3) // 8)
        self.w12 = torch.nn.Linear(config.hidden_size, 2 * width, bias=False)
        self.w3 = torch.nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x):
        gate, up = self.w12(x).split(self.w3.in_features, dim=-1)
        return self.w3(gate * torch.sigmoid(gate) * up)


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.heads, self.width = config.num_attention_heads, size // config.num_attention_heads
        self.qkv = torch.nn.Linear(size, 3 * size, bias=False)
        self.wo = torch.nn.Linear(size, size, bias=False)
        self.ffn = GatedFeedForward(config)
        self.attention_norm = torch.nn.RMSNorm(size, config.norm_eps)
        self.ffn_norm = torch.nn.RMSNorm(size, config.norm_eps)

    def forward(self, x, seen, turn):
        by_head = self.qkv(self.attention_norm(x)).unflatten(-1, (self.heads, 3, self.width))
        query, key, value = (by_head[..., part, :].transpose(1, 2) for part in range(3))  # [B, N, S, H]
        query, key = (self.rotated(part, turn) for part in (query, key))
        scores = (query @ key.transpose(-1, -2) / self.width**0.5).masked_fill(~seen[:, None, None], -1e9)
        attention = scores.softmax(-1)
        x = x + self.wo((attention @ value).transpose(1, 2).flatten(-2))
        return x + self.ffn(self.ffn_norm(x)), attention

    @staticmethod
    def rotated(x, turn):
        points = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(points * turn).flatten(-2)


class NeoBERTBase(PreTrainedModel):
    config_class = NeoBERTConfig
    base_model_prefix = "model"


class NeoBERT(NeoBERTBase):
    def __init__(self, config):
        super().__init__(config)
        self.encoder = torch.nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.transformer_encoder = torch.nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.layer_norm = torch.nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.post_init()

    def forward(self, input_ids, attention_mask, output_hidden_states=False, output_attentions=False):
        x, seen = self.encoder(input_ids), attention_mask > 0
        width = self.transformer_encoder[0].width
        speeds = 10000.0 ** -(torch.arange(0, width, 2) / width)
        angles = torch.arange(input_ids.shape[1])[:, None] * speeds
        states, maps = [x], []
        for layer in self.transformer_encoder:
            x, attention = layer(x, seen, torch.polar(torch.ones_like(angles), angles))
            states.append(x)
            maps.append(attention)
        x = self.layer_norm(x)
        return BaseModelOutput(x, (*states[:-1], x), tuple(maps))


class NeoBERTLMHead(NeoBERTBase):
    def __init__(self, config):
        super().__init__(config)
        self.model = NeoBERT(config)
        self.decoder = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask, **options):
        x, states, maps = self.model(input_ids, attention_mask).to_tuple()
        return MaskedLMOutput(logits=self.decoder(x), hidden_states=states, attentions=maps)


class NeoBERTForSequenceClassification(NeoBERTBase):
    def __init__(self, config):
        super().__init__(config)
        self.model = NeoBERT(config)
        self.dense = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask, **options):
        x, states, maps = self.model(input_ids, attention_mask).to_tuple()
        logits = self.classifier(torch.tanh(self.dense(x[:, 0])))
        return SequenceClassifierOutput(logits=logits, hidden_states=states, attentions=maps)
