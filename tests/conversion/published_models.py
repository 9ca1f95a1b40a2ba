"""The published equations of models that transformers does not have, in PyTorch over dicts of named tensors."""

import math

import torch
import torch.nn.functional as F


def random_tensors(shapes, seed=0):
    """Random tensors that need gradients: scales of norms around 1, all others around 0."""
    torch.manual_seed(seed)
    return {
        name: torch.normal(1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0, 0.15, shape)
        .requires_grad_(True)
        for name, shape in shapes.items()
    }  # fmt: skip


def norm(x, tensors, name, epsilon):
    return F.layer_norm(x, x.shape[-1:], tensors[f"{name}.weight"], tensors[f"{name}.bias"], epsilon)


def dense(x, tensors, name):
    return F.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))


def embedded(tensors, prefix, layer_norm, inputs, epsilon):
    x = tensors[f"{prefix}embeddings.word_embeddings.weight"][inputs["input_ids"].long()]
    types = inputs.get("token_type_ids", torch.zeros_like(inputs["input_ids"])).long()
    return norm(x + tensors[f"{prefix}embeddings.token_type_embeddings.weight"][types], tensors, layer_norm, epsilon)


def heads_of(x, count):
    return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)


def attended(query, key, value, bias):
    """Softmax attention of heads `[B, N, S, H]`, joined to `[B, S, N * H]`, and its probabilities."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias
    probabilities = scores.softmax(-1)
    return (probabilities @ value).transpose(1, 2).flatten(2), probabilities


def mask_bias(inputs):
    return (1.0 - inputs["attention_mask"].float())[:, None, None, :] * torch.finfo(torch.float32).min


# --- Jina BERT: jinaai/jina-bert-implementation and jinaai/jina-bert-v2-qk-post-norm --------------------------------


def slopes_of(count):
    """Slopes of ALiBi as published by its authors, for any number of heads."""

    def of_power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(count).is_integer():
        return of_power(count)
    closest = 2 ** math.floor(math.log2(count))
    return of_power(closest) + slopes_of(2 * closest)[0::2][: count - closest]


def jina_shapes(config, head):
    """Names and shapes of the tensors of a Jina BERT; `config` has `qk` beside the keys of config.json."""
    d, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kind, qk = config["feed_forward_type"], config["qk"]
    shapes = {"embeddings.word_embeddings": (v, d), "embeddings.token_type_embeddings": (config["type_vocab_size"], d)}
    norms, biased = ["embeddings.LayerNorm"], {}
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        biased |= {f"{layer}.attention.self.{part}": (d, d) for part in ("query", "key", "value")}
        biased[f"{layer}.attention.output.dense"] = (d, d)
        norms.append(f"{layer}.attention.output.LayerNorm")
        if qk:
            norms += [f"{layer}.attention.self.layer_norm_q", f"{layer}.attention.self.layer_norm_k"]
            norms += [f"{layer}.layer_norm_1", f"{layer}.layer_norm_2"]
            up, rows = ("up_layer", f) if kind == "original" else ("up_gated_layer", 2 * f)
            shapes[f"{layer}.mlp.{up}"] = (rows, d)
            biased[f"{layer}.mlp.down_layer"] = (d, f)
        elif kind == "original":
            biased |= {f"{layer}.intermediate.dense": (f, d), f"{layer}.output.dense": (d, f)}
            norms.append(f"{layer}.output.LayerNorm")
        else:
            shapes[f"{layer}.mlp.gated_layers"] = (2 * f, d)
            biased[f"{layer}.mlp.wo"] = (d, f)
            norms.append(f"{layer}.mlp.layernorm")
    if head in ("encoder", "sequence_classification"):
        biased["pooler.dense"] = (d, d)
    own = {}
    if head == "masked_lm":
        own = {"cls.predictions.transform.dense.weight": (d, d), "cls.predictions.transform.dense.bias": (d,),
               "cls.predictions.transform.LayerNorm.weight": (d,), "cls.predictions.transform.LayerNorm.bias": (d,),
               "cls.predictions.bias": (v,)}  # fmt: skip
    if head == "sequence_classification":
        own = {"classifier.weight": (config["num_labels"], d), "classifier.bias": (config["num_labels"],)}
    prefix = "" if head == "encoder" else "bert."
    named = {f"{name}.weight": shape for name, shape in shapes.items()}
    named |= {f"{name}.{part}": (d,) for name in norms for part in ("weight", "bias")}
    for name, shape in biased.items():
        named |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {prefix + name: shape for name, shape in named.items()} | own


def jina_feed_forward(x, tensors, layer, config):
    """The feed-forward block without its residual sum."""
    kind = config["feed_forward_type"]
    gate = {"geglu": F.gelu, "reglu": F.relu}.get(kind)
    if config["qk"] and gate:
        up, gated = dense(x, tensors, f"{layer}.mlp.up_gated_layer").chunk(2, -1)
        return dense(up * gate(gated), tensors, f"{layer}.mlp.down_layer")
    if config["qk"]:
        return dense(F.gelu(dense(x, tensors, f"{layer}.mlp.up_layer")), tensors, f"{layer}.mlp.down_layer")
    if gate:
        gated, up = dense(x, tensors, f"{layer}.mlp.gated_layers").chunk(2, -1)
        return dense(gate(gated) * up, tensors, f"{layer}.mlp.wo")
    return dense(F.gelu(dense(x, tensors, f"{layer}.intermediate.dense")), tensors, f"{layer}.output.dense")


def jina_bert(tensors, config, inputs, head):
    """Hidden states and attention maps of a Jina BERT, and the logits of its head (None for the encoder)."""
    prefix, epsilon = "" if head == "encoder" else "bert.", config["layer_norm_eps"]
    count, length = config["num_attention_heads"], inputs["input_ids"].shape[1]
    distances = (torch.arange(length)[None] - torch.arange(length)[:, None]).abs()
    bias = mask_bias(inputs) - torch.tensor(slopes_of(count))[:, None, None] * distances
    x = embedded(tensors, prefix, f"{prefix}embeddings.LayerNorm", inputs, epsilon)
    states, maps = [x], []
    for i in range(config["num_hidden_layers"]):
        layer = f"{prefix}encoder.layer.{i}"
        query, key, value = (dense(x, tensors, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        if config["qk"]:
            query = norm(query, tensors, f"{layer}.attention.self.layer_norm_q", epsilon)
            key = norm(key, tensors, f"{layer}.attention.self.layer_norm_k", epsilon)
        context, probabilities = attended(*(heads_of(part, count) for part in (query, key, value)), bias)
        y = dense(context, tensors, f"{layer}.attention.output.dense")
        y = norm(y + x, tensors, f"{layer}.attention.output.LayerNorm", epsilon)
        if config["qk"]:
            y = norm(x + y, tensors, f"{layer}.layer_norm_1", epsilon)
        last = "layer_norm_2" if config["qk"] else "output.LayerNorm"
        last = "mlp.layernorm" if not config["qk"] and config["feed_forward_type"] != "original" else last
        x = norm(y + jina_feed_forward(y, tensors, layer, config), tensors, f"{layer}.{last}", epsilon)
        states.append(x)
        maps.append(probabilities)
    logits = None
    if head == "masked_lm":
        y = F.gelu(dense(x, tensors, "cls.predictions.transform.dense"))
        y = norm(y, tensors, "cls.predictions.transform.LayerNorm", epsilon)
        logits = y @ tensors["bert.embeddings.word_embeddings.weight"].T + tensors["cls.predictions.bias"]
    if head == "sequence_classification":
        logits = dense(torch.tanh(dense(x[:, 0], tensors, "bert.pooler.dense")), tensors, "classifier")
    return states, maps, logits


# --- Nomic Embed v2: nomic-ai/nomic-bert-2048 with experts -----------------------------------------------------------


def has_experts(config, layer):
    return layer % config["moe_every_n_layers"] == 1


def nomic_shapes(config, head):
    """Names and shapes of the tensors of a NomicBERT with experts."""
    d, f, v, e = config["n_embd"], config["n_inner"], config["vocab_size"], config["num_experts"]
    prefix = "" if head == "encoder" else "bert."
    shapes = {f"{prefix}embeddings.word_embeddings.weight": (v, d)}
    shapes[f"{prefix}embeddings.token_type_embeddings.weight"] = (config["type_vocab_size"], d)
    norms, biased = [f"{prefix}emb_ln"], {}
    for i in range(config["n_layer"]):
        layer = f"{prefix}encoder.layers.{i}"
        norms += [f"{layer}.norm1", f"{layer}.norm2"]
        biased |= {f"{layer}.attn.Wqkv": (3 * d, d), f"{layer}.attn.out_proj": (d, d)}
        if has_experts(config, i):
            shapes |= {f"{layer}.mlp.router.layer.weight": (e, d), f"{layer}.mlp.experts.bias": (d,)}
            shapes |= {f"{layer}.mlp.experts.mlp.{name}": (e * f, d) for name in ("w1", "w2")}
        else:
            biased |= {f"{layer}.mlp.fc1": (f, d), f"{layer}.mlp.fc2": (d, f)}
    if head == "masked_lm":
        biased["cls.predictions.transform.dense"] = (d, d)
        norms.append("cls.predictions.transform.layer_norm")
        shapes["cls.predictions.decoder.bias"] = (v,)
    for name, shape in biased.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes | {f"{name}.{part}": (d,) for name in norms for part in ("weight", "bias")}


def rotated(x, base):
    """Rotary positions, whose two halves of a head are coordinates of points."""
    size, length = x.shape[-1], x.shape[-2]
    angles = torch.outer(torch.arange(length).float(), 1 / base ** (torch.arange(0, size, 2).float() / size))
    (a, b), cosines, sines = x.chunk(2, -1), angles.cos(), angles.sin()
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), -1)


def mixture(x, tensors, layer, config):
    """The experts that the router chooses for each token, and their bias once."""
    e, k = config["num_experts"], config["moe_top_k"]
    up, down = (tensors[f"{layer}.experts.mlp.{name}"].view(e, -1, x.shape[-1]) for name in ("w1", "w2"))
    probabilities, chosen = F.linear(x, tensors[f"{layer}.router.layer.weight"]).softmax(-1).topk(k, -1)
    total = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for place in range(x.shape[1]):
            for weight, expert in zip(probabilities[row, place], chosen[row, place], strict=True):
                y = F.gelu(up[expert] @ x[row, place]) @ down[expert]
                total = total.index_put((torch.tensor(row), torch.tensor(place)), weight * y, accumulate=True)
    return total + tensors[f"{layer}.experts.bias"]


def nomic_moe(tensors, config, inputs, head):
    """Hidden states and attention maps of a NomicBERT with experts, and masked-LM logits (None for the encoder)."""
    prefix, epsilon = "" if head == "encoder" else "bert.", config["layer_norm_epsilon"]
    x = embedded(tensors, prefix, f"{prefix}emb_ln", inputs, epsilon)
    states, maps = [x], []
    for i in range(config["n_layer"]):
        layer = f"{prefix}encoder.layers.{i}"
        parts = (heads_of(part, config["n_head"]) for part in dense(x, tensors, f"{layer}.attn.Wqkv").chunk(3, -1))
        query, key, value = parts
        base = config["rotary_emb_base"]
        context, probabilities = attended(rotated(query, base), rotated(key, base), value, mask_bias(inputs))
        x = norm(x + dense(context, tensors, f"{layer}.attn.out_proj"), tensors, f"{layer}.norm1", epsilon)
        if has_experts(config, i):
            y = mixture(x, tensors, f"{layer}.mlp", config)
        else:
            y = dense(F.gelu(dense(x, tensors, f"{layer}.mlp.fc1")), tensors, f"{layer}.mlp.fc2")
        x = norm(x + y, tensors, f"{layer}.norm2", epsilon)
        states.append(x)
        maps.append(probabilities)
    if head == "encoder":
        return states, maps, None
    y = norm(F.gelu(dense(x, tensors, "cls.predictions.transform.dense")), tensors,
             "cls.predictions.transform.layer_norm", epsilon)  # fmt: skip
    logits = y @ tensors["bert.embeddings.word_embeddings.weight"].T + tensors["cls.predictions.decoder.bias"]
    return states, maps, logits
