"""The report in a real browser: offline, light and dark, and a head that is chosen is shown."""

from dataclasses import replace

import numpy as np
import pytest

from resharpen.analyses.figures import plot_dispersion, plot_head_map
from resharpen.analyses.head_classes import classify_heads
from resharpen.analyses.head_verdicts import judge_heads
from resharpen.analyses.report import render_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(study_result, many_heads, tmp_path_factory):
    """The report of 270 heads, on disk."""
    classes = classify_heads(many_heads)
    result = replace(study_result, table=many_heads, verdicts=tuple(judge_heads(classes)))
    figures = {
        "heads": plot_head_map(many_heads, classes),
        "entropy": plot_dispersion(many_heads, layers=[0]),
    }
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render_report(result, figures), encoding="utf-8")
    assert file.stat().st_size < 10_000_000
    return file


@pytest.fixture(params=["light", "dark"])
def page(request, browser, report):
    """The report, opened and drawn; at the end nothing was asked for and nothing went wrong."""
    context = browser.new_context(
        offline=True, color_scheme=request.param, viewport={"width": 1040, "height": 900}
    )
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda asked: requests.append(asked.url))
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.scheme = request.param
    page.goto(report.as_uri())
    page.wait_for_selector("#heads-1 .heatmaplayer")
    page.evaluate("document.querySelector('#heads-1').scrollIntoView({block: 'center'})")
    yield page
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
    assert complaints == []
    context.close()


def cell(page, layer, head):
    """Where on the screen a cell of the map is."""
    return page.evaluate(
        """([x, y]) => {
          const plot = document.querySelector("#heads-1");
          const {left, top} = plot.getBoundingClientRect();
          const {xaxis, yaxis} = plot._fullLayout;
          return [left + xaxis._offset + xaxis.l2p(x), top + yaxis._offset + yaxis.l2p(y)];
        }""",
        [head, layer],
    )


def headline(page):
    """The title of the curves, as it is drawn."""
    return page.locator("#heads-1 .annotation-text").first.text_content()


def wait_for(page, name):
    """Until the curves are those of this head."""
    page.wait_for_function(
        """name => document.querySelector("#heads-1 .annotation-text").textContent
          .startsWith(name + ":")""",
        arg=name,
        timeout=10_000,
    )


def curve(page, name):
    """The points of a curve as plotly drew them."""
    return page.evaluate(
        """name => {
          const traces = document.querySelector("#heads-1")._fullData;
          const {x, y} = traces.find(trace => trace.name === name);
          return {x: [...x], y: [...y]};
        }""",
        name,
    )


def check_curves(page, frame, layer, head):
    """The curves have the numbers of that head."""
    for name, quantity in (
        ("measured", "entropy"), ("max weight", "max_weight"),
        ("effective support", "effective_support"),
    ):  # fmt: skip
        rows = frame[
            (frame["quantity"] == quantity) & (frame["layer"] == layer) & (frame["head"] == head)
        ]
        drawn = curve(page, name)
        np.testing.assert_allclose(drawn["x"], rows["n_key"].to_numpy(float))
        np.testing.assert_allclose(drawn["y"], rows["mean"].to_numpy(), rtol=1e-3)


def test_pointing_shows_a_head_and_a_click_keeps_it(page, many_heads):
    """Title, curves, outline and menu follow; what was pointed at only is forgotten."""
    first = headline(page)
    assert first.startswith("L20 H4: dispersing")
    check_curves(page, many_heads, 20, 4)
    page.mouse.move(*cell(page, 7, 1))
    wait_for(page, "L7 H1")
    check_curves(page, many_heads, 7, 1)
    assert page.locator("#heads-1 .hovertext").count() == 1
    page.mouse.move(5, 5)
    wait_for(page, "L20 H4")

    page.mouse.move(*cell(page, 2, 3))
    page.mouse.click(*cell(page, 2, 3))
    page.mouse.move(5, 5)
    page.wait_for_timeout(300)
    wait_for(page, "L2 H3")
    assert headline(page) != first
    check_curves(page, many_heads, 2, 3)
    label = "select => select.options[select.selectedIndex].text"
    assert page.locator("select").evaluate(label) == "L2 H3"
    outline = page.evaluate("document.querySelector('#heads-1').layout.shapes[0]")
    assert (outline["x0"], outline["y0"]) == (2.5, 1.5)


def test_the_menu_and_a_change_of_scheme(page, many_heads):
    """The page's menu chooses too, and the choice outlives a change of scheme."""
    assert page.locator("select option").count() == 270
    assert page.locator("#heads-1 .updatemenu-container").count() == 0
    page.locator("select").select_option(label="L29 H8")
    wait_for(page, "L29 H8")
    colours = """() => {
      const plot = document.querySelector("#heads-1");
      return [plot._fullLayout.font.color, plot._fullData[0].colorscale[1][1],
              getComputedStyle(document.body).backgroundColor];
    }"""
    light = ["#1c1f23", "#e9ebed", "rgb(255, 255, 255)"]
    dark = ["#e6e8ea", "#3b4148", "rgb(17, 19, 21)"]
    here, there = (light, dark) if page.scheme == "light" else (dark, light)
    assert page.evaluate(colours) == here
    page.emulate_media(color_scheme="dark" if page.scheme == "light" else "light")
    page.wait_for_function(
        """colour => document.querySelector("#heads-1")._fullLayout.font.color === colour""",
        arg=there[0],
    )
    assert page.evaluate(colours) == there
    assert headline(page).startswith("L29 H8:")
    check_curves(page, many_heads, 29, 8)
    page.mouse.click(*cell(page, 0, 0))
    wait_for(page, "L0 H0")


def test_nothing_is_wider_than_the_page(page):
    """At 1040 pixels; on a phone the plot scrolls by itself."""
    wide = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(wide)
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_timeout(300)
    assert page.evaluate(wide)


def test_every_verdict_is_there_when_unfolded(page):
    """270 heads, folded until asked for."""
    summary = page.get_by_text("The verdict on every head (270)")
    rows = page.locator("details:has-text('The verdict on every head') tbody tr")
    assert rows.count() == 270
    assert not rows.first.is_visible()
    summary.click()
    assert rows.first.is_visible()
