"""Draw the figures of docs/clustering/pretrained.md.

    python clustering_figures.py FOLDER NAME=MODEL ...

Each MODEL is audited on random tokens at 32, 128 and 512 of them, and its clustering figure written
to FOLDER/NAME.png; what the audit says goes to FOLDER/NAME.txt. Needs the `static` extra (kaleido)
and a Chrome or Chromium that it can find.
"""

import sys
from pathlib import Path

from resharpen.analyses import AdaptedAudit, adapted_figures, audit_adapted

LENGTHS = (32, 128, 512)
N_SEQUENCES = 2


def main(folder: str, *models: str) -> None:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for model in models:
        name, _, source = model.partition("=")
        audited = audit_adapted(
            source, probe="random", lengths=LENGTHS, n_sequences=N_SEQUENCES, name=name
        )
        draw(audited, place / f"{name}.png")


def draw(audited: AdaptedAudit, image: Path) -> None:
    figure = adapted_figures(audited)["clustering"]
    image.with_suffix(".txt").write_text("\n".join(figure.layout.meta["notes"]) + "\n")
    # Legible on a code host's light and dark pages alike.
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#222")
    figure.write_image(image, width=900, height=figure.layout.height)


if __name__ == "__main__":
    main(*sys.argv[1:])
