"""Several seeds of one model, trained together as one module with a seed axis on every weight."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from ..config import TransformerConfig
from ..transformer import Transformer


class StackedTransformer(nn.Module):
    """``len(seeds)`` transformers side by side; their gradients and AdamW steps are independent.

    One batched matrix product a layer replaces one a seed: 0.6 of the time of training the
    seeds one after another at the sizes of the set-complement recipe (``benchmarks/training.py``).
    """

    def __init__(self, cfg: TransformerConfig, seeds: Sequence[int]) -> None:
        """Draw each seed's initial weights as ``Transformer(cfg, seed=seed)`` does."""
        super().__init__()
        models = [Transformer(cfg, seed=seed) for seed in seeds]
        stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
        # ParameterList, since names with dots are not allowed in a ParameterDict.
        self.names = list(stacked)
        self.weights = nn.ParameterList(nn.Parameter(stacked[name].detach()) for name in stacked)
        template = models[0].to("meta")
        for block in template.blocks:
            block.attn.fused = False
        # In a tuple, so that the template's own parameters are not ours.
        self._template = (template,)

    def forward(
        self, tokens: Int[Tensor, "seed batch pos"]
    ) -> Float[Tensor, "seed batch pos d_vocab_out"]:
        """Run each seed's model on its own tokens."""

        def run(weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
            return functional_call(self._template[0], weights, (tokens,))

        return vmap(run)(dict(zip(self.names, self.weights, strict=True)), tokens)

    def state_of(self, index: int) -> dict[str, Tensor]:
        """Copy the weights of one seed, by name, as ``Transformer.load_state_dict`` takes them."""
        return {
            name: weight[index].detach().clone()
            for name, weight in zip(self.names, self.weights, strict=True)
        }
