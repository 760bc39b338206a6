"""How numbers, units, places and intervals are said, in the terminal, the report and the figures.

One spelling everywhere: three significant digits, the unit behind the number, a place from the
outside in (checkpoint, layer, head, site, seed), an interval in square brackets.
"""

import math

from ..models.facts import plural

__all__ = [
    "format_interval",
    "format_number",
    "format_place",
    "plural",
    "quantity_words",
    "site_words",
    "unit_words",
]

# Dimensionless units are not said; the l2 norm has no unit of its own.
_SILENT_UNITS = frozenset({"1", "ratio", "l2", ""})


def format_number(value: float, unit: str = "") -> str:
    """`0.0312`, `1.2e-06`, `3 nats`, `1000000`; NaN is `unknown`.

    Three significant digits; powers of ten below 0.001 and from a million on.
    """
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        text = "infinity" if value > 0 else "-infinity"
    elif value == 0:
        text = "0"
    elif 1e-3 <= abs(value) < 1e6:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:.{digits}f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
    else:
        text = f"{value:.2g}"
    return f"{text}{unit_words(unit)}"


def unit_words(unit: str) -> str:
    """The unit as it follows a number, with its space; empty for dimensionless units."""
    return "" if unit in _SILENT_UNITS else f" {unit}"


def format_interval(value: float, low: float, high: float) -> str:
    """`-0.98 [-1.01, -0.95]`; without the brackets if the interval is unknown.

    Two decimals, up to four where the interval is narrower than they can show.
    """
    if math.isnan(value):
        return "unknown"
    if math.isnan(low) or math.isnan(high):
        return f"{value:.2f}"
    digits = 2 if high - low >= 0.02 else 3 if high - low >= 0.002 else 4
    # Adding 0.0 turns a rounded -0.0 into 0.0.
    ends = [round(number, digits) + 0.0 for number in (value, low, high)]
    return "{0:.{3}f} [{1:.{3}f}, {2:.{3}f}]".format(*ends, digits)


def format_place(
    checkpoint: str | None,
    layer: int | None = None,
    head: int | None = None,
    site: str | None = None,
    seed: int | None = None,
    *,
    short: bool = False,
) -> str:
    """`post, layer 0, head 1, ln1_post, seed 3`, short `post L0 H1 ln1_post seed 3`.

    What is None is left out; empty if everything is.
    """
    parts = [checkpoint] if checkpoint else []
    if layer is not None:
        parts.append(f"L{layer}" if short else f"layer {layer}")
    if head is not None:
        parts.append(f"H{head}" if short else f"head {head}")
    if site is not None:
        parts.append(site_words(site, with_layer=layer is None))
    if seed is not None:
        parts.append(f"seed {seed}")
    return (" " if short else ", ").join(parts)


def quantity_words(quantity: str) -> str:
    """`max_weight` as `max weight`."""
    return quantity.replace("_", " ")


def site_words(site: str, with_layer: bool = True) -> str:
    """A hook name, short: `blocks.0.ln1_post.hook_scale` as `L0 ln1_post`."""
    parts = site.split(".")
    layer = ""
    if parts[0] == "blocks" and len(parts) > 2:
        layer, parts = f"L{parts[1]} ", parts[2:]
    if len(parts) > 1 and parts[-1] in ("hook_scale", "hook_normalized"):
        parts = parts[:-1]
    name = ".".join(part.removeprefix("hook_") for part in parts)
    return f"{layer}{name}" if with_layer else name
