import json
from pathlib import Path

import pytest
import torch

from resharpen.models.tasks import LanguageTask, seeded_generator
from resharpen.models.tasks.languages import read_flare

OPEN, INSIDE, FULL = (
    {"s": "(0 (1", "e": True},
    {"s": "(0 (1 )1", "e": False},
    {"s": ")1", "e": False},
)

STRINGS = ["(1 )1", ")1 (1", "", "(1 (1 )1 )1", "(1"]
LABELS = ["1", "0", "1", "1", "0"]
ROWS: list = [[OPEN, INSIDE, OPEN], [OPEN], [OPEN, INSIDE, FULL, INSIDE, OPEN]]


def write(folder: Path, strings=STRINGS, labels: list[str] | None = LABELS, rows=ROWS) -> Path:
    (folder / "main.tok").write_text("".join(f"{line}\n" for line in strings))
    if labels is not None:
        (folder / "labels.txt").write_text("".join(f"{line}\n" for line in labels))
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "next-symbols.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_strings_of_the_language_become_batches(tmp_path: Path) -> None:
    found = read_flare(write(tmp_path))
    assert found.alphabet == ("(0", "(1", ")1")
    assert found.strings == ((1, 2), (), (1, 1, 2, 2))
    assert found.lengths == (0, 2, 4)
    batches = list(found.batches())
    assert [batch.length for batch in batches] == [0, 2, 4]
    batch = batches[2]
    assert batch.tokens.tolist() == [[3, 1, 1, 2, 2]] and batch.bos is True
    assert batch.next_tokens.tolist() == [[1, 1, 2, 2, 3]]
    third = 1 / 3
    expected = torch.tensor(
        [
            [third, third, 0, third],
            [third, third, third, 0],
            [0, 0, 1, 0],
            [third, third, third, 0],
            [third, third, 0, third],
        ]
    )
    torch.testing.assert_close(batch.targets[0], expected)
    assert batch.relevant.shape == (1, 1, 5) and batch.relevant.all()
    with pytest.raises(ValueError, match="no string of length 3; lengths: 0, 2, 4"):
        found.batch(3)


def test_without_labels_every_string_is_of_the_language(tmp_path: Path) -> None:
    kept = [line for line, label in zip(STRINGS, LABELS, strict=True) if label == "1"]
    assert read_flare(write(tmp_path, kept, labels=None)).strings == ((1, 2), (), (1, 1, 2, 2))


def test_the_alphabet_of_other_strings_can_be_given(tmp_path: Path) -> None:
    found = read_flare(write(tmp_path), alphabet=(")1", ")0", "(1", "(0"))
    assert found.strings[0] == (2, 0)
    assert found.batch(0).targets.tolist() == [
        [[0, 0, pytest.approx(1 / 3), pytest.approx(1 / 3), pytest.approx(1 / 3)]]
    ]


@pytest.mark.parametrize("language", ["dyck-2-3", "modular-arithmetic-simple", "majority"])
def test_what_a_task_draws_comes_back(tmp_path: Path, language: str) -> None:
    task = LanguageTask(language)
    length = task.min_length + 8
    batch = task.sample(seeded_generator(0), 20, length)
    words = [[task.alphabet[i] for i in row[1:]] for row in batch.tokens.tolist()]
    rows = [
        [
            {
                "s": " ".join(
                    symbol for symbol, p in zip(task.alphabet, target, strict=False) if p
                ),
                "e": target[-1] > 0,
            }
            for target in row
        ]
        for row in batch.targets.tolist()
    ]
    write(tmp_path, [" ".join(word) for word in words], None, rows)
    read = read_flare(tmp_path, alphabet=task.alphabet).batch(length)
    assert torch.equal(read.tokens, batch.tokens)
    torch.testing.assert_close(read.targets, batch.targets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"labels": ["1", "0"]},
            "labels.txt must have a line for each of the 5 of main.tok; got 2",
        ),
        ({"labels": ["1", "0", "1", "1", "?"]}, "labels.txt, line 5: expected 0 or 1; got '.'"),
        ({"rows": ROWS[:2]}, "a line for each of the 3 strings of the language; got 2"),
        ({"rows": [ROWS[0], "[{", ROWS[2]]}, "next-symbols.jsonl, line 2: expected a JSON list"),
        ({"rows": [ROWS[0], [], ROWS[2]]}, "line 2: expected a list of objects; got"),
        (
            {"rows": [ROWS[0], [{"s": "(1"}], ROWS[2]]},
            "line 2: expected objects .*; got {'s': '.1'}",
        ),
        ({"rows": [ROWS[0], [{"s": 1, "e": True}], ROWS[2]]}, "line 2: expected objects"),
        (
            {"rows": [ROWS[0], [OPEN], ROWS[2][:-1]]},
            "line 3: expected 5 objects for the 4 symbols of main.tok, line 4; got 4",
        ),
        (
            {"rows": [[OPEN, OPEN, OPEN], [OPEN], ROWS[2]]},
            r"line 1: symbol 2 of main.tok, line 1, '\)1', must be among the legal ones",
        ),
        (
            {"rows": [[OPEN, INSIDE, INSIDE], [OPEN], ROWS[2]]},
            "line 1: the string of main.tok, line 1, must be allowed to end; got e = false",
        ),
        (
            {"strings": ["(1 x", *STRINGS[1:]]},
            "main.tok, line 1: expected symbols of the alphabet .*; got 'x'",
        ),
    ],
)
def test_malformed_files_are_refused_with_the_line(
    tmp_path: Path, change: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_flare(write(tmp_path, **change))


def test_next_symbols_outside_a_given_alphabet_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"next-symbols.jsonl, line 1: .*; got '\(0'"):
        read_flare(write(tmp_path), alphabet=("(1", ")1"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("main.tok", b"(1 \xe9", "main.tok: expected text in UTF-8; 'utf-8' codec"),
        ("labels.txt", b"0\n0\n0\n0\n0\n", "the 0 strings of the language; got 3"),
        ("next-symbols.jsonl", b"[" * 100_000, "next-symbols.jsonl, line 1: expected a JSON list"),
        ("next-symbols.jsonl", b"", "a line for each of the 3 strings of the language; got 0"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (write(tmp_path) / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_flare(tmp_path)


def test_a_folder_without_strings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no string of the language"):
        read_flare(write(tmp_path, ["(1"], ["0"], []))


def test_an_alphabet_is_made_of_different_symbols(tmp_path: Path) -> None:
    for alphabet in (("(1", "(1", ")1"), "(1"):
        with pytest.raises(ValueError, match="must be a tuple of different symbols"):
            read_flare(write(tmp_path), alphabet=alphabet)  # type: ignore[arg-type]


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_symbols(tmp_path: Path) -> None:
    expected = read_flare(write(tmp_path)).strings
    for name in ("main.tok", "labels.txt", "next-symbols.jsonl"):
        text = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert read_flare(tmp_path).strings == expected
