"""The regular languages, each as its automaton.

Tomita 1 to 7, parity, ``(aa)*``, ``(aaaa)*``, ``(abab)*``, ``D_n`` and the pattern languages are
those of Bhattamishra et al. (arXiv 2009.11264) and Huang et al. (arXiv 2410.02140); even pairs,
repeat-01, cycle navigation, modular arithmetic and first are FLaRe's (Butoi et al., ICLR 2025);
theory section 15.

Tomita 3 refuses an odd run of ones directly followed by an odd run of zeros. (Elsewhere it is also
read as "at any distance behind".) After ``10`` the string is not in the language but can still
become one, ``100``: a zero after an odd run of ones is legal.

A table gives for each state, a letter, the states after each symbol; ``.`` is dead.
"""

from collections.abc import Mapping

from .language import Machine


def table(alphabet: str, rows: Mapping[str, str], final: str) -> Machine:
    """A machine from its table; the first state of the table is the first state of the machine."""

    def step(state: str, symbol: int) -> str | None:
        after = rows[state][symbol]
        return None if after == "." else after

    return Machine(tuple(alphabet), next(iter(rows)), step, lambda state: state in final)


def repetitions(word: str) -> Machine:
    """``word*``."""
    letters = tuple(sorted(set(word)))

    def step(place: int, symbol: int) -> int | None:
        return (place + 1) % len(word) if letters[symbol] == word[place] else None

    return Machine(letters, 0, step, lambda place: place == 0)


def star_free(depth: int) -> Machine:
    """``D_n = (a D_{n-1} b)*``, ``D_0`` the empty string: brackets of one type, ``n`` deep."""

    def step(open_: int, symbol: int) -> int | None:
        after = open_ + (1, -1)[symbol]
        return after if 0 <= after <= depth else None

    return Machine(("a", "b"), 0, step, lambda open_: open_ == 0)


def cycle_navigation(places: int = 5) -> Machine:
    """Moves on a ring (``<`` back, ``=`` stay, ``>`` on), then the place that they lead to."""

    def step(place: int, symbol: int) -> int | None:
        if place == places:  # The end: the place has been told.
            return None
        if symbol < 3:
            return (place + symbol - 1) % places
        return places if symbol - 3 == place else None

    digits = tuple(map(str, range(places)))
    return Machine(("<", "=", ">", *digits), 0, step, lambda place: place == places)


def modular_arithmetic(precedence: bool, modulus: int = 5) -> Machine:
    """``d op d op .. d = d``: an equation between digits that holds modulo 5.

    FLaRe's *modular arithmetic (simple)* evaluates from left to right, so that ``1 + 2 * 3 = 4``;
    Delétang et al. (arXiv 2207.02098) multiply first, so that ``1 + 2 * 3 = 2``. Theirs is a map
    from the left side to the right one; here both sides are one string, as in FLaRe.

    A state is ``(total, factor, what comes next)``: the value so far is ``total + factor`` where a
    number was read, ``total + factor * number`` where one is to come.
    """

    alphabet = (*map(str, range(modulus)), *"+-*=")

    def step(state: tuple[int, int, str], symbol: int) -> tuple[int, int, str] | None:
        total, factor, wanted = state
        digit, sign = symbol < modulus, alphabet[symbol]
        if wanted == "number" and digit:
            value = factor * symbol % modulus
            if precedence:
                return (total, value, "operator")
            return ((total + value) % modulus, 0, "operator")
        if wanted == "result" and digit and symbol == total:
            return (0, 0, "end")
        if wanted != "operator" or digit:
            return None
        value = (total + factor) % modulus
        if sign == "=":
            return (value, 0, "result")
        if sign == "*":
            return (total, factor, "number") if precedence else (0, value, "number")
        return (value, 1 if sign == "+" else modulus - 1, "number")

    return Machine(alphabet, (0, 1, "number"), step, lambda state: state[2] == "end")


REGULAR: dict[str, Machine] = {
    # 1*
    "tomita-1": table("01", {"s": ".s"}, "s"),
    # (10)*
    "tomita-2": table("01", {"s": ".o", "o": "s."}, "s"),
    # o: odd run of ones; z, e: odd and even run of zeros behind it.
    "tomita-3": table("01", {"s": "so", "o": "zs", "z": "e.", "e": "zo"}, "soe"),
    # No 000.
    "tomita-4": table("01", {"s": "as", "a": "bs", "b": ".s"}, "sab"),
    # An even number of zeros and of ones.
    "tomita-5": table("01", {"s": "zo", "z": "sb", "o": "bs", "b": "oz"}, "s"),
    # Zeros less ones, a multiple of 3.
    "tomita-6": table("01", {"s": "pm", "p": "ms", "m": "sp"}, "s"),
    # 0*1*0*1*
    "tomita-7": table("01", {"a": "ab", "b": "cb", "c": "cd", "d": ".d"}, "abcd"),
    # An even number of ones.
    "parity": table("01", {"s": "so", "o": "os"}, "s"),
    # An odd number of ones: what FLaRe calls parity.
    "odd-parity": table("01", {"s": "so", "o": "os"}, "o"),
    # The first and the last bit are the same (so 01 and 10 together occur evenly often), or none.
    "even-pairs": table("01", {"s": "ad", "a": "ab", "b": "ab", "c": "cd", "d": "cd"}, "sad"),
    # The first bit is 1.
    "first": table("01", {"s": ".y", "y": "yy"}, "y"),
    "repeat-01": repetitions("01"),
    "aa-star": repetitions("aa"),
    "aaaa-star": repetitions("aaaa"),
    "abab-star": repetitions("abab"),
    # aa*bb*cc*dd*ee*
    "abcde-blocks": table(
        "abcde",
        {"s": "a....", "a": "ab...", "b": ".bc..", "c": "..cd.", "d": "...de", "e": "....e"},
        "e",
    ),
    # {a,b}*d{b,c}*
    "ab-d-bc": table("abcd", {"s": "ss.t", "t": ".tt."}, "t"),
    # {0,1,2}*02*
    "012-0-2": table("012", {"s": "yss", "y": "ysy"}, "y"),
    "cycle-navigation": cycle_navigation(),
    "modular-arithmetic-simple": modular_arithmetic(precedence=False),
    "modular-arithmetic-precedence": modular_arithmetic(precedence=True),
}
"""Regular languages by name."""
