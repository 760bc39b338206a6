"""Every language against brute force over all its prefixes up to eight symbols.

Membership is written down once more here, without states: by regular expressions, by counting, by
erasing brackets, by evaluating. What may follow a prefix is found from the members themselves
(``extended``: every extension by up to ``bound`` symbols is tried) or from a second predicate.
"""

import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import stats

from resharpen.models.tasks.languages import FAMILIES, LANGUAGES, find_language

Predicate = Callable[[str], bool]

LONGEST = 8


def matches(pattern: str) -> Predicate:
    return lambda s: re.fullmatch(pattern, s) is not None


def every(alphabet: str, longest: int) -> list[str]:
    return ["".join(w) for n in range(longest + 1) for w in itertools.product(alphabet, repeat=n)]


def extended(member: Predicate, alphabet: str, bound: int) -> Predicate:
    """Whether some extension by up to ``bound`` symbols is a member."""
    strings = every(alphabet, LONGEST + 1 + bound)
    prefixes = {s[:end] for s in filter(member, strings) for end in range(len(s) + 1)}
    return lambda s: s in prefixes


def tomita_3(s: str) -> bool:
    runs = [(symbol, len(list(run))) for symbol, run in itertools.groupby(s)]
    return not any(
        a == "1" and n % 2 and b == "0" and m % 2 for (a, n), (b, m) in itertools.pairwise(runs)
    )


def erased(s: str, pairs: tuple[str, ...]) -> str:
    """What remains when neighbouring brackets have been taken away until there are none."""
    while any(pair in s for pair in pairs):
        for pair in pairs:
            s = s.replace(pair, "")
    return s


def nesting(s: str, openers: str) -> int:
    depth = highest = 0
    for symbol in s:
        depth += 1 if symbol in openers else -1
        highest = max(highest, depth)
    return highest


def dyck(pairs: tuple[str, ...], bound: float = math.inf) -> tuple[Predicate, Predicate]:
    openers = "".join(pair[0] for pair in pairs)

    def member(s: str) -> bool:
        return not erased(s, pairs) and nesting(s, openers) <= bound

    def viable(s: str) -> bool:
        return set(erased(s, pairs)) <= set(openers) and nesting(s, openers) <= bound

    return member, viable


def shuffle(pairs: tuple[str, ...]) -> tuple[Predicate, Predicate]:
    def parts(s: str) -> list[str]:
        return [erased("".join(c for c in s if c in pair), (pair,)) for pair in pairs]

    return (
        lambda s: not any(parts(s)),
        lambda s: all(set(part) <= {pair[0]} for part, pair in zip(parts(s), pairs, strict=True)),
    )


def reset() -> tuple[Predicate, Predicate]:
    def pieces(s: str) -> list[str]:
        return [erased(piece, ("()",)) for piece in s.split("#")]

    return (
        lambda s: not pieces(s)[-1] and viable(s),
        viable := lambda s: all(set(piece) <= {"("} for piece in pieces(s)),
    )


def blocks(letters: str) -> tuple[Predicate, Predicate]:
    members = {"".join(c * n for c in letters) for n in range(1, LONGEST + 2)}
    prefixes = {s[:end] for s in members for end in range(len(s) + 1)}
    return lambda s: s in members, lambda s: s in prefixes


def ring(s: str) -> bool:
    moves = {"<": -1, "=": 0, ">": 1}
    return re.fullmatch("[<=>]*[0-4]", s) is not None and sum(moves[c] for c in s[:-1]) % 5 == int(
        s[-1]
    )


def arithmetic(value: Callable[[str], int]) -> tuple[Predicate, Predicate]:
    value = cache(value)

    def right(s: str) -> bool:
        return value(s[:-2]) % 5 == int(s[-1])

    shape = re.compile("([0-4][-+*])*([0-4](=[0-4]?)?)?")
    return (
        lambda s: s[-2:-1] == "=" and shape.fullmatch(s) is not None and right(s),
        lambda s: shape.fullmatch(s) is not None and (s[-2:-1] != "=" or right(s)),
    )


SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def from_the_left(s: str) -> int:
    value = int(s[0])
    for sign, digit in zip(s[1::2], s[2::2], strict=True):
        value = SIGNS[sign](value, int(digit))
    return value


BITS: dict[str, tuple[Predicate, int]] = {
    "tomita-1": (matches("1*"), 1),
    "tomita-2": (matches("(10)*"), 2),
    "tomita-3": (tomita_3, 2),
    "tomita-4": (lambda s: "000" not in s, 1),
    "tomita-5": (lambda s: s.count("0") % 2 == s.count("1") % 2 == 0, 3),
    "tomita-6": (lambda s: (s.count("0") - s.count("1")) % 3 == 0, 3),
    "tomita-7": (matches("0*1*0*1*"), 1),
    "odd-parity": (lambda s: s.count("1") % 2 == 1, 1),
    "parity": (lambda s: s.count("1") % 2 == 0, 1),
    "even-pairs": (
        lambda s: (s.count("01") + sum(s[i : i + 2] == "10" for i in range(len(s)))) % 2 == 0,
        2,
    ),
    "first": (lambda s: s[:1] == "1", 1),
    "repeat-01": (matches("(01)*"), 2),
}
"""Membership, and how far the nearest string of the language can be from a live prefix."""

OTHERS: dict[str, tuple[str, Predicate, int]] = {
    "aa-star": ("a", matches("(aa)*"), 2),
    "aaaa-star": ("a", matches("(aaaa)*"), 4),
    "abab-star": ("ab", matches("(abab)*"), 4),
    "012-0-2": ("012", matches("[012]*02*"), 1),
    "d-1": ("ab", matches("(ab)*"), 2),
    "d-2": ("ab", matches("(a(ab)*b)*"), 2),
    "d-3": ("ab", matches("(a(a(ab)*b)*b)*"), 3),
}

CASES: dict[str, tuple[Predicate, Predicate]] = {
    **{name: (member, extended(member, "01", bound)) for name, (member, bound) in BITS.items()},
    **{
        name: (member, extended(member, alphabet, bound))
        for name, (alphabet, member, bound) in OTHERS.items()
    },
    "abcde-blocks": (matches("a+b+c+d+e+"), matches("(a+(b+(c+(d+e*)?)?)?)?")),
    "ab-d-bc": (matches("[ab]*d[bc]*"), matches("[ab]*(d[bc]*)?")),
    "cycle-navigation": (ring, lambda s: re.fullmatch("[<=>]*", s) is not None or ring(s)),
    "modular-arithmetic-simple": arithmetic(from_the_left),
    "modular-arithmetic-precedence": arithmetic(eval),
    "dyck-1": dyck(("()",)),
    "dyck-2": dyck(("()", "[]")),
    "dyck-1-2": dyck(("()",), 2),
    "dyck-2-3": dyck(("()", "[]"), 3),
    "dyck-3-1": dyck(("()", "[]", "{}"), 1),
    "shuffle-dyck-1": shuffle(("()",)),
    "shuffle-dyck-2": shuffle(("()", "[]")),
    "reset-dyck-1": reset(),
    "counter-2": blocks("ab"),
    "counter-3": blocks("abc"),
    "majority": (lambda s: s.count("1") > s.count("0"), lambda s: True),
    "balance": (lambda s: s.count("1") == s.count("0"), lambda s: True),
}

EVERY = pytest.mark.parametrize("name", CASES)

SPELLING = {"(0": "(", "(1": "[", "(2": "{", ")0": ")", ")1": "]", ")2": "}"}
"""Symbols of one character each."""


def spelled(name: str) -> list[str]:
    return [SPELLING.get(symbol, symbol) for symbol in find_language(name).alphabet]


@cache
def viable_prefixes(name: str) -> list[tuple[list[str], np.ndarray]]:
    """All prefixes of strings of the language, by length, and which symbols keep them alive.

    No other string up to length 8 is a member.
    """
    viable, alphabet = CASES[name][1], spelled(name)
    strings, layers = [""], []
    assert viable("")
    for _ in range(LONGEST + 1):
        goes_on = np.array([[viable(s + c) for c in alphabet] for s in strings], dtype=bool)
        goes_on = goes_on.reshape(-1, len(alphabet))
        layers.append((strings, goes_on))
        strings = [strings[row] + alphabet[column] for row, column in np.argwhere(goes_on)]
    return layers


def encoded(name: str, strings: list[str]) -> np.ndarray:
    place = {symbol: index for index, symbol in enumerate(spelled(name))}
    return np.array([[place[c] for c in s] for s in strings], dtype=np.int64).reshape(
        len(strings), -1
    )


def test_every_language_is_tried() -> None:
    assert set(LANGUAGES) <= set(CASES)
    tried = {re.sub("[0-9]+", "#", name) for name in CASES}
    assert {re.sub("[KMN]", "#", name) for name in FAMILIES} <= tried


@EVERY
def test_what_may_follow_agrees_with_every_string_up_to_length_8(name: str) -> None:
    language = find_language(name)
    member = CASES[name][0]
    for length, (layer, goes_on) in enumerate(viable_prefixes(name)):
        if not layer:
            continue
        legal = language.legal(encoded(name, layer))
        assert legal.shape == (len(layer), length + 1, goes_on.shape[1] + 1)
        ends = np.array([member(s) for s in layer])
        np.testing.assert_array_equal(legal[:, -1], np.column_stack([goes_on, ends]))
        assert legal.any(-1).all(), "something may follow every live prefix"
        np.testing.assert_array_equal(language.accepts(encoded(name, layer)), ends)


@EVERY
def test_nothing_may_follow_an_illegal_symbol(name: str) -> None:
    language = find_language(name)
    alphabet = spelled(name)
    for layer, goes_on in viable_prefixes(name)[:5]:
        for after in ("", *alphabet[:2]):
            broken = [layer[row] + alphabet[c] + after for row, c in np.argwhere(~goes_on)]
            if broken:
                legal = language.legal(encoded(name, broken))
                assert not legal[:, -1 - len(after) :].any()


@EVERY
def test_counts_agree_with_enumeration(name: str) -> None:
    language = find_language(name)
    member, _ = CASES[name]
    counted = [sum(map(member, layer)) for layer, _ in viable_prefixes(name)]
    assert [language.count(length) for length in range(LONGEST + 1)] == counted
    assert [language.has(length) for length in range(LONGEST + 1)] == [n > 0 for n in counted]
    assert language.count(-1) == 0 and not language.has(-1)


@EVERY
def test_strings_are_uniform_over_those_of_their_length(name: str) -> None:
    """Chi-square over all strings of the longest length with at most 300 of them."""
    language = find_language(name)
    member, _ = CASES[name]
    by_length = [list(filter(member, layer)) for layer, _ in viable_prefixes(name)]
    strings = max((s for s in by_length if 0 < len(s) <= 300), key=len)
    length = len(strings[0])
    generator = np.random.Generator(np.random.Philox(7))
    n = 60 * len(strings)
    drawn = language.draw(length, generator.random((n, language.width(length))))
    assert drawn.shape == (n, length)
    counts = Counter(map(tuple, drawn.tolist()))
    cells = [tuple(row) for row in encoded(name, strings).tolist()]
    assert set(counts) == set(cells)
    if len(cells) > 1:
        assert stats.chisquare([counts[cell] for cell in cells]).pvalue > 1e-3


@EVERY
def test_long_strings_are_in_the_language(name: str) -> None:
    language = find_language(name)
    member, _ = CASES[name]
    length = next(n for n in range(60, 80) if language.has(n))
    uniforms = np.random.Generator(np.random.Philox(1)).random((30, language.width(length)))
    alphabet = spelled(name)
    drawn = language.draw(length, uniforms)
    for row in drawn.tolist():
        string = "".join(alphabet[symbol] for symbol in row)
        if name.startswith("counter"):
            k = len(alphabet)
            assert string == "".join(c * (length // k) for c in alphabet)
        else:
            assert member(string)
    assert language.accepts(drawn).all()


def test_tomita_3_a_zero_after_an_odd_run_of_ones_is_legal() -> None:
    language = find_language("tomita-3")
    after_10 = language.legal(np.array([[1, 0]]))[0]
    assert after_10[1].tolist() == [True, True, True], "after 1: both bits, and the end"
    assert after_10[2].tolist() == [True, False, False], "after 10: 100 is in the language"
    assert language.accepts(np.array([[1, 0, 0]])).all()


def test_the_two_readings_of_arithmetic_differ() -> None:
    for value, name in ((4, "simple"), (2, "precedence")):
        sentence = encoded(f"modular-arithmetic-{name}", [f"1+2*3={v}" for v in range(5)])
        accepted = find_language(f"modular-arithmetic-{name}").accepts(sentence)
        assert accepted.tolist() == [v == value for v in range(5)]


def test_counts_of_long_strings_are_exact() -> None:
    half = 150
    assert find_language("dyck-2").count(2 * half) == 2**half * math.comb(2 * half, half) // (
        half + 1
    )
    assert find_language("parity").count(2000) == 2**1999
    # Strings without 000: every one of length n starts 1, 01 or 001 or is 0 or 00.
    tribonacci = [1, 2, 4]
    while len(tribonacci) < 1200:
        tribonacci.append(sum(tribonacci[-3:]))
    assert find_language("tomita-4").count(1199) == tribonacci[1199]
    # Two independent Dyck-1 strings, shuffled: Catalan numbers of neighbouring index.
    n = 40
    catalan = [math.comb(2 * k, k) // (k + 1) for k in range(n + 2)]
    assert find_language("shuffle-dyck-2").count(2 * n) == catalan[n] * catalan[n + 1]
    assert find_language("majority").count(301) == 2**300


@pytest.mark.parametrize(("k", "m"), [(1, 2), (2, 3), (3, 40)])
def test_hewitts_distribution(k: int, m: int) -> None:
    language = find_language(f"dyck-{k}-{m}")
    uniforms = np.random.Generator(np.random.Philox(3)).random((40, language.width(20)))
    strings = language.draw(20, uniforms)
    distribution = language.grammar(strings)
    assert distribution is not None
    met = set()
    for row, string in enumerate(strings.tolist()):
        stack: list[int] = []
        for place in range(21):
            expected = [0.0] * (2 * k + 1)
            if len(stack) < m:
                expected[:k] = [1 / (2 * k)] * k
                expected[k + stack[-1] if stack else -1] = 0.5
            else:
                expected[k + stack[-1]] = 1.0
            met.add(len(stack))
            np.testing.assert_allclose(distribution[row, place], expected, atol=1e-15)
            if place < 20:
                symbol = string[place]
                if symbol < k:
                    stack.append(symbol)
                else:
                    assert stack.pop() == symbol - k
        assert not stack
    assert met == set(range(1 + min(m, max(met))))
    # Behind a closer too many.
    assert not language.grammar(np.array([[0, k, k, 0]]))[0, 3:].any()  # type: ignore[index]


def test_languages_without_a_grammar_have_no_distribution() -> None:
    assert find_language("parity").grammar(np.zeros((1, 3), dtype=np.int64)) is None


@pytest.mark.parametrize(
    ("name", "length", "near"),
    [
        ("tomita-2", 7, (6, 8)),
        ("counter-3", 7, (6, 9)),
        ("abab-star", 1, (4,)),
        ("dyck-2", 1, (2,)),
    ],
)
def test_nearest_lengths(name: str, length: int, near: tuple[int, ...]) -> None:
    assert find_language(name).nearest(length) == near


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tomita-8", "unknown language 'tomita-8'; known languages: tomita-1, .*dyck-K-M"),
        ("dyck-2-x", "unknown language"),
        ("dyck", "unknown language"),
        ("dyck-02", "unknown language 'dyck-02'"),
        ("dyck-" + "9" * 5000, "unknown language 'dyck-999"),
        ("dyck-0", r"number of the language dyck-K must lie in 1..64; got 'dyck-0'"),
        ("counter-27", r"counter-K must lie in 2..26"),
        ("d-0", r"d-N must lie in 1..1024"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_language(name)
