"""Several seeds of one model, trained together as one module with a seed axis on every weight."""

from collections.abc import Sequence
from functools import partial

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from ..config import TransformerConfig
from ..transformer import Transformer


class StackedTransformer(nn.Module):
    """``len(seeds)`` transformers side by side; their gradients and AdamW steps are independent.

    One batched matrix product a layer replaces one a seed: 0.6 to 0.7 of the time of training the
    seeds one after another at the sizes of the set-complement recipe (``benchmarks/training.py``).
    A single seed is run as the plain model that it is, without the cost of ``vmap``.

    Attributes:
        cfg: The configuration they share.
        names: Names of the weights, as ``Transformer.state_dict`` has them.
        weights: The weights, each with a leading axis of seeds.
    """

    def __init__(self, cfg: TransformerConfig, seeds: Sequence[int]) -> None:
        """Draw each seed's initial weights as ``Transformer(cfg, seed=seed)`` does."""
        super().__init__()
        self.cfg = cfg
        models = [Transformer(cfg, seed=seed) for seed in seeds]
        stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
        # ParameterList, since names with dots are not allowed in a ParameterDict.
        self.names = list(stacked)
        self.weights = nn.ParameterList(nn.Parameter(stacked[name].detach()) for name in stacked)
        # In evaluation mode: what is dropped is given to `forward`.
        model = models[0].eval()
        self._alone = len(models) == 1
        if self._alone:
            for parameter, weight in zip(model.parameters(), self.weights, strict=True):
                # The same memory, and the gradient is handed over as soon as it is complete.
                parameter.data = weight.data[0]
                parameter.register_post_accumulate_grad_hook(partial(_hand_over, weight))
        else:
            model.to("meta")
            for block in model.blocks:
                block.attn.fused = False
        # In a tuple, so that the model's own parameters are not ours.
        self._model = (model,)

    def forward(
        self,
        tokens: Int[Tensor, "seed batch pos"],
        kept: Float[Tensor, "seed layer batch head query key"] | None = None,
    ) -> Float[Tensor, "seed batch pos d_vocab_out"]:
        """Run each seed's model on its own tokens.

        Args:
            tokens: Token ids.
            kept: Factors on the attention weights, see
                :func:`~resharpen.models.training.dropout.attention_dropout`; ``None`` for no
                dropout.
        """
        (model,) = self._model
        if self._alone:
            for layer, block in enumerate(model.blocks):
                block.attn.kept = None if kept is None else kept[0, layer]
            return model(tokens[0])[None]
        state = dict(zip(self.names, self.weights, strict=True))
        if kept is not None:
            for layer, factors in enumerate(kept.unbind(1)):
                state[f"blocks.{layer}.attn.kept"] = factors

        def run(state: dict[str, Tensor], tokens: Tensor) -> Tensor:
            return functional_call(model, state, (tokens,))

        return vmap(run)(state, tokens)

    def state_of(self, index: int) -> dict[str, Tensor]:
        """Copy the weights of one seed, by name, as ``Transformer.load_state_dict`` takes them."""
        return {
            name: weight[index].detach().clone()
            for name, weight in zip(self.names, self.weights, strict=True)
        }


def _hand_over(weight: nn.Parameter, parameter: Tensor) -> None:
    assert parameter.grad is not None
    gradient = parameter.grad[None]
    weight.grad = gradient if weight.grad is None else weight.grad + gradient
    parameter.grad = None
