"""The grammar's next symbols against its own rules: inside probabilities, and running them."""

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from scipy import stats

from resharpen.models.tasks.languages import find_language
from resharpen.models.tasks.languages.dyck_grammar import going_on

P, Q = 0.5, 0.25
EMPTY = (1 - math.sqrt(1 - 4 * Q * (1 - P - Q))) / (2 * Q)
"""Probability of the empty string: the smaller root of ``Q e^2 - e + 1 - P - Q``."""


@cache
def inside(string: tuple[int, ...], types: int) -> float:
    """Probability that the rules generate a string: over all derivations, without trees or counts.

    Of S S where one side is empty the other is the string itself, hence the division.
    """
    if not string:
        return EMPTY
    total = sum(
        Q * inside(string[:cut], types) * inside(string[cut:], types)
        for cut in range(1, len(string))
    )
    if string[0] < types and string[-1] == types + string[0]:
        total += P / types * inside(string[1:-1], types)
    return total / (1 - 2 * Q * EMPTY)


@pytest.mark.parametrize(("types", "longest"), [(1, 12), (2, 8), (3, 6)])
def test_the_product_of_next_symbols_is_the_probability_of_the_string(types, longest):
    language = find_language(f"dyck-{types}")
    for length in range(0, longest + 1, 2):
        tried = np.array(list(itertools.product(range(2 * types), repeat=length)))
        tried = tried.reshape((2 * types) ** length, length).astype(np.int64)
        strings = tried[language.accepts(tried)]
        assert len(strings) == language.count(length)
        distribution = language.grammar(strings)
        assert distribution is not None
        np.testing.assert_allclose(distribution.sum(-1), 1, rtol=1e-14)
        np.testing.assert_array_equal(distribution > 0, language.legal(strings))
        ended = np.pad(strings, ((0, 0), (0, 1)), constant_values=2 * types)
        steps = np.take_along_axis(distribution, ended[..., None], axis=2)[..., 0]
        expected = [inside(tuple(string), types) for string in strings.tolist()]
        np.testing.assert_allclose(steps.prod(1), expected, rtol=1e-12)


def test_the_number_of_blocks_has_the_generating_function():
    """``2 - sqrt(3 - 2 t)``, its coefficients by Newton's binomial series."""
    tails, mass = [1.0], []
    binomial = 1.0
    for n in range(40):
        mass.append((2.0 if n == 0 else 0.0) - math.sqrt(3) * binomial * (-2 / 3) ** n)
        binomial *= (0.5 - n) / (n + 1)
        tails.append(tails[-1] - mass[-1])
    on = going_on(39)
    found = np.cumprod(on)
    np.testing.assert_allclose(found, tails[1:], atol=1e-14)
    assert sum(found) == pytest.approx(1, abs=1e-6), "one block on average: strings end"
    assert on[0] == pytest.approx(0.7320508) and on[1] == pytest.approx(0.2113249)
    assert going_on(4000)[-1] == pytest.approx(2 / 3, abs=1e-3)
    np.testing.assert_array_equal(going_on(3), on[:4])


def run_the_rules(generator: np.random.Generator, types: int, length: int) -> tuple[int, ...]:
    """The first symbols of one string, by rewriting the leftmost S; the end is ``2 types``."""
    stack: list[int | None] = [None]
    written: list[int] = []
    while len(written) < length:
        if not stack:
            return (*written, 2 * types)
        top = stack.pop()
        if top is not None:
            written.append(top)
            continue
        u = generator.random()
        if u < P:
            kind = int(generator.integers(types))
            stack += [types + kind, None, kind]
        elif u < P + Q:
            stack += [None, None]
    return tuple(written)


def test_running_the_rules_gives_these_next_symbols():
    types, length, n = 2, 5, 12_000
    generator = np.random.Generator(np.random.Philox(11))
    counts = Counter(run_the_rules(generator, types, length) for _ in range(n))
    language = find_language(f"dyck-{types}")
    expected: dict[tuple[int, ...], float] = {}

    def walk(prefix: tuple[int, ...], probability: float) -> None:
        if len(prefix) == length:
            expected[prefix] = probability
            return
        row = language.grammar(np.array([prefix], dtype=np.int64).reshape(1, -1))
        assert row is not None
        for symbol in np.flatnonzero(row[0, -1]).tolist():
            after = (*prefix, symbol)
            if symbol == 2 * types:
                expected[after] = probability * row[0, -1, symbol]
            else:
                walk(after, probability * row[0, -1, symbol])

    walk((), 1.0)
    assert sum(expected.values()) == pytest.approx(1, rel=1e-12)
    assert set(counts) <= set(expected)
    common = [key for key, share in expected.items() if share * n >= 8]
    seen = [counts[key] for key in common]
    wanted = [n * expected[key] for key in common]
    seen.append(n - sum(seen))
    wanted.append(n - sum(wanted))
    assert stats.chisquare(seen, wanted).pvalue > 1e-3


def test_nothing_follows_a_closer_too_many():
    row = find_language("dyck-2").grammar(np.array([[0, 2, 2, 0, 2], [0, 3, 0, 2, 2]]))
    assert row is not None and np.isfinite(row).all()
    assert not row[0, 3:].any() and not row[1, 2:].any() and row[:, 0].any()


def test_the_row_of_a_block_is_its_own():
    """``( ( ) ( ) ) (``: two blocks inside, one outside, none in the last."""
    row = find_language("dyck-1").grammar(np.array([[0, 0, 1, 0, 1, 1, 0]]))
    assert row is not None
    on = going_on(2)
    np.testing.assert_allclose(row[0, :, 0], on[[0, 0, 0, 1, 0, 2, 1, 0]])
