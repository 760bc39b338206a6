"""What a measure is: a pure function of named arrays, with a unit and a range."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from ...models.facts import Facts

UNITS = ("nats", "ratio", "l2", "1", "logit")
"""Every unit that a quantity may have."""

ARRAYS: dict[str, str] = {
    "weights": "attention weights, over their sum where that is not one [*row, key]",
    "unnormalised": "attention weights as they are, where they need not sum to one [*row, key]",
    "scores": "attention scores after scaling, soft-cap and bias [*row, key]",
    "visible": "which keys the row can see, boolean [*row, key]",
    "relevant": "which keys the task needs, boolean [*row, key]",
    "stream": "residual stream [*row, d_model]",
    "contribution": "what a sub-layer adds to the stream [*row, d_model]",
    "outputs": "the attention contribution of many sequences [batch, d_model]",
    "scale": "what a norm divides by [*row, 1]",
    "scale_alone": "what it divides by when the same token stands alone [*row, 1]",
    "logits": "next-token logits [*row, d_vocab_out]",
    "frozen_logits": "the same with every norm's scale frozen [*row, d_vocab_out]",
    "target": "exact next-token distribution [*row, d_vocab_out]",
    "present": "which output tokens the input holds, boolean [*row, d_vocab_out]",
    "absent": "which output tokens may follow, boolean [*row, d_vocab_out]",
}
"""The arrays that a measure may read, by name."""


@dataclass(frozen=True, repr=False)
class Measure(Facts):
    """One quantity: what it is called, what it reads, and how to compute it.

    Attributes:
        name: Spelled as in the table's ``quantity`` column.
        function: Takes the arrays of ``reads`` in that order, returns one number a row
            (``output_variance``: one number a batch).
        reads: Names of arrays, keys of :data:`ARRAYS`.
        unit: One of :data:`UNITS`.
        range: Lowest and highest value it can take.
        doc: One line for tables and hover texts.
    """

    name: str
    function: Callable[..., Tensor]
    reads: tuple[str, ...]
    unit: str
    range: tuple[float, float]
    doc: str

    def __post_init__(self) -> None:
        """Check the record.

        Raises:
            ValueError: If the name is no identifier, an array or the unit is unknown, nothing is
                read, or the range is empty.
        """
        if not self.name.isidentifier():
            raise ValueError(f"the name of a measure must be an identifier; got {self.name!r}")
        unknown = [array for array in self.reads if array not in ARRAYS]
        if unknown or not self.reads:
            raise ValueError(
                f"measure {self.name!r} must read some of {', '.join(ARRAYS)}; got {self.reads}"
            )
        if self.unit not in UNITS:
            raise ValueError(
                f"the unit of measure {self.name!r} must be one of {', '.join(UNITS)}; "
                f"got {self.unit!r}"
            )
        if not self.range[0] < self.range[1]:
            raise ValueError(f"the range of measure {self.name!r} is empty: {self.range}")

    def __call__(self, arrays: Mapping[str, Tensor]) -> Tensor:
        """Compute the quantity from named arrays; arrays that it does not read are ignored.

        Raises:
            ValueError: If an array that it reads is missing.
        """
        missing = [array for array in self.reads if array not in arrays]
        if missing:
            raise ValueError(
                f"measure {self.name!r} reads {', '.join(self.reads)}; missing: "
                f"{', '.join(missing)}"
            )
        return self.function(*(arrays[array] for array in self.reads))
