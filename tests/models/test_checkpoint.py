import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from resharpen.models import (
    Checkpoint,
    CheckpointError,
    SetComplement,
    Transformer,
    TransformerConfig,
    load_checkpoint,
    save_checkpoint,
    shipped_checkpoints,
)
from resharpen.models.checkpoint import find_checkpoint
from resharpen.models.normalizers import NORMALIZERS
from resharpen.models.placements import PLACEMENTS


@pytest.fixture
def checkpoint() -> Checkpoint:
    cfg = TransformerConfig(d_vocab=5, d_model=8, norm_placement="post", eps=1e-3)
    state = {name: t.clone() for name, t in Transformer(cfg, seed=4).state_dict().items()}
    average = {name: 2 * t for name, t in state.items()}
    return Checkpoint(
        config=cfg,
        weights={"raw": state, "ema-0.99": average},
        task=SetComplement(5).to_dict(),
        seed=4,
        losses=(1.5, 1.25),
    )


def test_round_trip(checkpoint: Checkpoint, tmp_path: Path) -> None:
    loaded = load_checkpoint(save_checkpoint(checkpoint, tmp_path / "mine"))
    assert loaded.config == checkpoint.config
    assert (loaded.task, loaded.seed, loaded.losses) == (checkpoint.task, 4, (1.5, 1.25))
    assert loaded.name == "mine"
    assert set(loaded.weights) == {"raw", "ema-0.99"}
    for kind, state in checkpoint.weights.items():
        for name, tensor in state.items():
            assert torch.equal(loaded.weights[kind][name], tensor)
    assert loaded.digest == checkpoint.digest
    tokens = torch.tensor([[0, 3]])
    raw, average = loaded.model()(tokens), loaded.model("ema-0.99")(tokens)
    assert (raw - average).abs().max() > 1e-3
    assert not loaded.model().training


@pytest.mark.parametrize(
    "change",
    [
        *({"normalizer": name} for name in sorted(NORMALIZERS)),
        *({"norm_placement": name} for name in sorted(PLACEMENTS)),
        {"sigma_reparam": True},
        {"qk_norm": "learned"},
    ],
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_every_remedy_survives_the_disk(change, tmp_path: Path) -> None:
    cfg = TransformerConfig(d_vocab=8, d_model=8, attn_only=False, **change)
    model = Transformer(cfg, seed=3)
    place = save_checkpoint(Checkpoint(cfg, {"raw": model.state_dict()}), tmp_path / "c")
    tokens = torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(load_checkpoint(place).model()(tokens), model(tokens))


def test_what_is_a_checkpoint_of_ours_is_found(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_checkpoint(checkpoint) is checkpoint
    for place in (save_checkpoint(checkpoint, tmp_path / "mine"), str(tmp_path / "mine")):
        found = find_checkpoint(place)
        assert found is not None
        assert found.digest == checkpoint.digest
    shipped = find_checkpoint("set-complement-post")
    assert shipped is not None
    assert shipped.digest == load_checkpoint("set-complement-post").digest
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "gpt2"}')
    for other in (tmp_path / "theirs", tmp_path / "nowhere", "gpt2", checkpoint.model(), {}, None):
        assert find_checkpoint(other) is None
    # A folder of the user's comes before what ships under the same name.
    (tmp_path / "set-complement-post").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint("set-complement-post") is None
    (tmp_path / "mine" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="the checkpoint has no weights"):
        find_checkpoint(tmp_path / "mine")


def test_digest_depends_on_weights_and_configuration(checkpoint: Checkpoint) -> None:
    state = {name: tensor.clone() for name, tensor in checkpoint.weights["raw"].items()}
    state["embed.W_E"][0, 0] += 1e-6
    assert Checkpoint(checkpoint.config, {"raw": state}).digest != checkpoint.digest
    cfg = TransformerConfig(d_vocab=5, d_model=8, norm_placement="post", eps=1e-4)
    assert Checkpoint(cfg, checkpoint.weights).digest != checkpoint.digest


def test_unknown_weights_are_named(checkpoint: Checkpoint) -> None:
    with pytest.raises(ValueError, match=r"no weights 'ema-0.5'; it has raw, ema-0.99"):
        checkpoint.model("ema-0.5")


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(folder: Path, change) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors")


def edit_model(folder: Path, **changes: object) -> None:
    edit_config(
        folder, model={**json.loads((folder / "config.json").read_text())["model"], **changes}
    )


BROKEN = {
    "unknown key": (lambda f: edit_config(f, flavour=1), "unknown key 'flavour'"),
    "unknown model key": (
        lambda f: edit_model(f, flavour=1),
        "unknown configuration key 'flavour'",
    ),
    "bad model value": (lambda f: edit_model(f, d_model=-8), "d_model must be a positive number"),
    "lying config": (
        lambda f: edit_model(f, d_model=16),
        r"has shape \(.*\), but config.json asks",
    ),
    "more layers": (lambda f: edit_model(f, n_layers=2), "lacks tensor 'blocks.1.attn.W_K'"),
    "schema": (lambda f: edit_config(f, schema_version=99), "has schema version 99"),
    "kind": (lambda f: edit_config(f, kind="other"), "does not describe a checkpoint of this tool"),
    "not json": (lambda f: (f / "config.json").write_text("{"), "is not readable JSON"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "is missing"),
    "truncated": (
        lambda f: (f / "model.safetensors").write_bytes(
            (f / "model.safetensors").read_bytes()[:-100]
        ),
        "truncated or not a safetensors file",
    ),
    "empty": (
        lambda f: (f / "model.safetensors").write_bytes(b""),
        "truncated or not a safetensors",
    ),
    "missing tensor": (
        lambda f: edit_weights(f, lambda s: s.pop("unembed.W_U")),
        "lacks tensor 'unembed.W_U'",
    ),
    "extra tensor": (
        lambda f: edit_weights(f, lambda s: s.update(more=torch.zeros(1))),
        "has unknown tensor 'more'",
    ),
    "wrong shape": (
        lambda f: edit_weights(f, lambda s: s.update({"embed.W_E": torch.zeros(5, 7)})),
        r"'embed.W_E' has shape \(5, 7\), but config.json asks for \(5, 8\)",
    ),
    "nan": (
        lambda f: edit_weights(f, lambda s: s["embed.W_E"].fill_(torch.nan)),
        "'embed.W_E' holds NaN",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_checkpoint_gets_one_clear_sentence(
    case: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = save_checkpoint(checkpoint, tmp_path / "mine")
    damage, message = BROKEN[case]
    damage(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="is a pickle, which could run code"):
        load_checkpoint(path)
    assert not (tmp_path / "exploded").exists()


def test_an_unknown_name_lists_what_ships() -> None:
    with pytest.raises(CheckpointError, match="no shipped checkpoint of that name; shipped are"):
        load_checkpoint("no-such-thing")


def test_saving_replaces_a_checkpoint_but_nothing_else(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = save_checkpoint(checkpoint, tmp_path / "mine")
    save_checkpoint(Checkpoint(checkpoint.config, {"raw": checkpoint.weights["raw"]}), folder)
    assert set(load_checkpoint(folder).weights) == {"raw"}
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    with pytest.raises(FileExistsError, match="is not something this tool wrote"):
        save_checkpoint(checkpoint, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"


def test_an_interrupted_save_leaves_the_old_checkpoint_whole(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_checkpoint(checkpoint, tmp_path / "mine")
    digest = load_checkpoint(folder).digest

    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("resharpen.models.checkpoint.save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(checkpoint, folder)
    assert load_checkpoint(folder).digest == digest
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_kill_between_the_renames_loses_no_checkpoint(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = save_checkpoint(checkpoint, tmp_path / "mine")
    folder.rename(tmp_path / ".mine.previous")
    with pytest.raises(CheckpointError, match=r"left the earlier checkpoint at .*\.mine\.previous"):
        load_checkpoint(folder)
    assert load_checkpoint(tmp_path / ".mine.previous").digest == checkpoint.digest
    save_checkpoint(checkpoint, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_ships_is_small_and_loads() -> None:
    names = shipped_checkpoints()
    assert names
    for name in names:
        checkpoint = load_checkpoint(name)
        folder = (
            Path(__import__("resharpen.models.checkpoint", fromlist=["SHIPPED"]).SHIPPED) / name
        )
        size = sum(path.stat().st_size for path in folder.iterdir())
        assert size < 200_000, f"{name} takes {size} bytes"
        assert checkpoint.task is not None
        assert (checkpoint.training is None) != (checkpoint.constructed is None)
