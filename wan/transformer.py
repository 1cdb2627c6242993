"""A transformer model: the number of its parameters, operations and stored activations.

Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC '21,
arXiv 2104.04473 (arithmetic), Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
arXiv 2205.05198 (activations and the cost of recomputing them). Like the sources, this module neglects biases,
normalisation, position embeddings, the router of the experts, and the causal mask, which would halve the quadratic part
of attention.
"""

from dataclasses import dataclass
from typing import Literal

from bicoastal.wan.checks import FieldError, check_whole

Recomputation = Literal["none", "selective", "full"]
RECOMPUTATIONS: tuple[Recomputation, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A decoder of `layers` equal layers of width `hidden`, trained on sequences of `sequence` tokens.

    heads, kv_heads: of attention; fewer kv_heads than heads is grouped-query attention (default: as many).
    ffn_hidden: width inside the feed-forward network (default: 4 hidden). ffn_matrices: 2, or 3 where it is gated
    (SwiGLU). experts: feed-forward networks side by side in each layer, of which a token visits experts_per_token.
    embeddings: 2 where the output layer has a matrix of its own, 1 where it shares the input's. dropout: whether its
    masks are kept. Raises FieldError.
    """

    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    heads: int = 1
    kv_heads: int | None = None
    ffn_hidden: int | None = None
    ffn_matrices: int = 2
    experts: int = 1
    experts_per_token: int = 1
    embeddings: int = 2
    dropout: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        for field in ("layers", "hidden", "sequence", "vocabulary", "heads", "experts", "experts_per_token"):
            check_whole(field, getattr(self, field), 1)
        for field in ("kv_heads", "ffn_hidden"):
            if getattr(self, field) is not None:
                check_whole(field, getattr(self, field), 1)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise FieldError("kv_heads", f"{self.kv_heads} do not divide {self.heads} heads")
        if self.ffn_matrices not in (2, 3):
            raise FieldError("ffn_matrices", f"{self.ffn_matrices!r} is neither 2 nor, where it is gated, 3")
        if self.embeddings not in (1, 2):
            raise FieldError("embeddings", f"{self.embeddings!r} is neither 1 (shared) nor 2")
        if self.experts_per_token > self.experts:
            raise FieldError("experts_per_token", f"{self.experts_per_token} is more than {self.experts} experts")
        if not isinstance(self.dropout, bool):
            raise FieldError("dropout", f"{self.dropout!r} is not true or false")

    @property
    def kv_share(self) -> float:
        """Heads of keys and values per head of queries."""
        return 1.0 if self.kv_heads is None else self.kv_heads / self.heads

    @property
    def ffn_ratio(self) -> float:
        """Width inside the feed-forward network over the width outside it."""
        return 4.0 if self.ffn_hidden is None else self.ffn_hidden / self.hidden

    # -- parameters ---------------------------------------------------------------------------------------------------

    @property
    def attention_parameters(self) -> float:
        """Of one layer: queries and output h^2 each, keys and values likewise, or less of them when grouped."""
        return (2 + 2 * self.kv_share) * self.hidden**2

    @property
    def expert_parameters(self) -> float:
        """Of one feed-forward network: 8 h^2 with two matrices of 4 h^2."""
        return self.ffn_matrices * self.ffn_ratio * self.hidden**2

    @property
    def layer_parameters(self) -> float:
        """Of one layer, all experts: 12 h^2 for a plain dense one."""
        return self.attention_parameters + self.experts * self.expert_parameters

    @property
    def active_layer_parameters(self) -> float:
        """Of one layer, those that one token uses."""
        return self.attention_parameters + self.experts_per_token * self.expert_parameters

    @property
    def embedding_parameters(self) -> int:
        """Of one embedding matrix."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> float:
        """Of the whole model: 12 L h^2 + 2 V h for a plain dense one."""
        return self.layers * self.layer_parameters + self.embeddings * self.embedding_parameters

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    @property
    def attention_core_flops(self) -> float:
        """Floating-point operations of Q K^T and of what it weighs, one layer, one sequence, one forward pass."""
        return 4.0 * self.sequence**2 * self.hidden

    @property
    def forward_flops(self) -> float:
        """Floating-point operations of one layer, one sequence, one forward pass.

        Two for each parameter and token, and attention's core (arXiv 2104.04473, appendix).
        """
        return 2.0 * self.active_layer_parameters * self.sequence + self.attention_core_flops

    def backward_flops(self, recomputation: Recomputation) -> float:
        """Floating-point operations of one layer, one sequence, one backward pass.

        Those of two forward passes, and what is computed again: a whole third one ("full") or attention's core
        ("selective", arXiv 2205.05198 §5).
        """
        again = {"none": 0.0, "selective": self.attention_core_flops, "full": self.forward_flops}
        return 2.0 * self.forward_flops + again[recomputation]

    def training_flops(self, recomputation: Recomputation) -> float:
        """Floating-point operations of the whole model, one sequence, both passes, with the output layer's 6 s h V."""
        layers = self.layers * (self.forward_flops + self.backward_flops(recomputation))
        return layers + 6.0 * self.sequence * self.embedding_parameters

    # -- activations --------------------------------------------------------------------------------------------------

    def activation_bytes(self, recomputation: Recomputation, bytes_per_element: float) -> float:
        """Bytes that one layer's forward pass of one sequence leaves for its backward pass, over all tensor ranks.

        arXiv 2205.05198 eq. 1, 4 and 6 times s h, with tensor and sequence parallelism, so that each of t ranks keeps
        1/t: the inputs of queries, keys and values, these three, the input of the output projection, those of two
        normalisations, of the feed-forward network and of its activation and last matrix. For two bytes per element,
        plain attention and dropout that is 34 and, unless attention's core is recomputed, 5 a s / h more; a layer
        that is recomputed as a whole keeps its input alone.
        """
        tokens = float(self.sequence * self.hidden)
        if recomputation == "full":
            return tokens * bytes_per_element
        elements = 3 + 2 * self.kv_share + 2 + self.experts_per_token * (1 + self.ffn_matrices * self.ffn_ratio)
        masks = 1 + self.experts_per_token if self.dropout else 0
        scores = self.heads * self.sequence / self.hidden if recomputation == "none" else 0.0
        elements += scores * (2 if self.dropout else 1)
        return tokens * (elements * bytes_per_element + masks + (scores if self.dropout else 0.0))
