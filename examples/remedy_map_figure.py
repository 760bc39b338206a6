"""Draw the map of docs/remedies from the committed table (`make remedy-map`).

Needs the `static` extra (kaleido) and a Chrome or Chromium that it can find.
"""

import sys

import pandas as pd

from resharpen.analyses.figures import plot_remedy_map

MAP_CSV, IMAGE = "docs/results/remedies/map.csv", "docs/remedies/map.png"


def main(map_csv: str = MAP_CSV, image: str = IMAGE) -> None:
    frame = pd.read_csv(map_csv).fillna({"agrees": ""})
    plain = frame["model"] == frame["remedy"] + " / " + frame["placement"]
    rows = frame[plain & frame["placement"].isin(["none", "res_post"])]
    figure = plot_remedy_map(pd.DataFrame(rows))
    # Legible on a code host's light and dark pages alike.
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font_color="#222")
    figure.write_image(image, width=1400, height=860)


if __name__ == "__main__":
    main(*sys.argv[1:])
