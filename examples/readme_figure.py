"""Draw the README's figure from the result folder of `make demo` (`make figure`).

Needs the `static` extra (kaleido) and a Chrome or Chromium that it can find.
"""

import sys

from resharpen.analyses import StudyResult, plot_error
from resharpen.analyses.figures import retitle

PLACEMENTS = ["none", "pre", "post", "res_post", "peri"]


def main(result_folder: str, image: str) -> None:
    result = StudyResult.load(result_folder)
    train_length = result.provenance.resolved["training"]["length"]
    figure = plot_error(
        result.table, result.curves, train_length=train_length, checkpoints=PLACEMENTS
    )
    retitle(figure, "Set complement, trained to length 8: measured (solid), theory (dashed)")
    # Legible on a code host's light and dark pages alike.
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#222")
    figure.update_xaxes(gridcolor="#ddd")
    figure.update_yaxes(gridcolor="#ddd", range=[-4.3, 0.1])
    figure.write_image(image, width=860, height=480, scale=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
