"""The report: self-contained, escaped, complete; and its summary for the terminal."""

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from resharpen.analyses.figures import (
    plot_dispersion,
    plot_displacement,
    plot_error,
    plot_head_map,
    plot_patterns,
)
from resharpen.analyses.figures.head_map import NEUTRAL
from resharpen.analyses.figures.theme import GRID, INK
from resharpen.analyses.findings import Verdict
from resharpen.analyses.head_classes import classify_heads
from resharpen.analyses.head_verdicts import judge_heads
from resharpen.analyses.report import WIDTH, render_report, render_text

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, text and scripts; complains of tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.stack, self.texts, self.scripts = [], [], [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.scripts.append(data)
        elif self.stack and self.stack[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        """The visible text."""
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def figures(study_table, study_curves, patterns):
    """Three figures, in the order of the report."""
    return {
        "error": plot_error(study_table, study_curves, train_length=8),
        "displacement": plot_displacement(study_table, study_curves),
        "patterns": plot_patterns(patterns, title="Patterns of </script><b>none</b>"),
    }


@pytest.fixture(scope="module")
def source(study_result, figures):
    """The report's HTML."""
    return render_report(study_result, figures)


@pytest.fixture(scope="module")
def page(source):
    """The report, parsed."""
    return Page(source)


def test_it_needs_nothing_from_elsewhere(page, source):
    """No element loads anything, and the policy in the page forbids it."""
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith("#"), (tag, name, value)
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
    styles = source[source.index("<style>") : source.index("</style>")]
    assert "url(" not in styles
    assert "@import" not in styles
    (policy,) = (
        attributes["content"]
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_plotly_stands_in_it_once(page, study_result):
    """4.6 MiB are enough; without figures none at all."""
    assert sum("plotly.js v" in script[:200] for script in page.scripts) == 1
    bare = render_report(study_result)
    assert len(bare) < 100_000
    assert "<script" not in bare


def test_size_is_plotly_and_little_more(source):
    """The figures themselves are small."""
    assert len(source) < 5_300_000


def test_figures_come_as_they_were_given(page, figures):
    """In order, with heading and caption, their data unchanged."""
    data = [script for script in page.scripts if script.lstrip().startswith('{"data"')]
    assert len(data) == len(figures)
    for script, figure in zip(data, figures.values(), strict=True):
        assert json.loads(script) == json.loads(figure.to_json())
        meta = figure.layout.meta
        assert meta["title"] in page.text
        assert meta["caption"] in page.text
    targets = [a["data-target"] for t, a in page.elements if a.get("class") == "figure-data"]
    assert targets == [a["id"] for t, a in page.elements if a.get("class") == "plot"]


def test_a_figure_without_meta_is_headed_by_its_name(study_result, figures):
    """A figure that somebody else made."""
    figure = type(figures["error"])(figures["error"])
    figure.layout.meta = None
    assert "<h3>my &lt;figure&gt;</h3>" in render_report(study_result, {"my <figure>": figure})


def test_order_of_the_page(page, study_result):
    """Sentences, verdicts, figures, findings, provenance."""
    marks = [
        study_result.sentences[0],
        "the error passes 0.1 at length 23",
        "Markers, solid lines and bands are measured",
        "Findings: theory beside measurement",
        "Provenance",
    ]
    places = [page.text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_lists_come_after_the_figures_and_are_text(study_result, figures):
    """In order, each with its heading; empty ones are left out."""
    lists = {
        "Pigs <fly>: does not hold": ["<b>one</b> & another", "two"],
        "Nothing to say": [],
        "Where theory and measurement disagree": ["nowhere"],
    }
    page = Page(source := render_report(study_result, {"error": figures["error"]}, lists))
    assert "<h2>Pigs &lt;fly&gt;: does not hold</h2>" in source
    assert "<li>&lt;b&gt;one&lt;/b&gt; &amp; another</li><li>two</li>" in source
    assert "Nothing to say" not in source
    marks = [
        "Markers, solid lines and bands are measured",
        "Pigs <fly>: does not hold",
        "Where theory and measurement disagree",
        "Findings: theory beside measurement",
    ]
    places = [page.text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_text_from_outside_is_escaped(page, source):
    """Sentences, reasons, names of curves, titles: text, not markup."""
    for text in ("findings <below>.", "& <so> nothing", "is <too> tight", "</script><b>none</b>"):
        assert text in page.text
    for markup in ("<below>", "<so>", "<too>", "<b>none</b>"):
        assert markup not in source


def test_violations_are_told_at_the_top_and_none_is_hidden(study_result, page):
    """Before the figures, and outside anything folded."""
    assert "1 of 25 theory curves violated" in page.text
    all_violated = replace(
        study_result, findings=tuple(replace(f, violated=True) for f in study_result.findings)
    )
    text = render_report(all_violated)
    assert "25 of 25 theory curves violated" in text
    assert text.count('<span class="badge violated">') == 25
    # Nothing folded before the settings at the very end.
    assert text.index("<details>") > text.index("Provenance")
    kept = tuple(finding for finding in study_result.findings if not finding.violated)
    none = render_report(replace(study_result, findings=kept))
    assert "theory curves violated" not in none
    assert 'class="badge violated"' not in none


def test_provenance_is_told(page, study_result):
    """Commit, seeds, packages, checkpoints with their hashes, what was asked."""
    record = study_result.provenance
    for text in (record.created, record.python, "ab" * 32, '"preset": "quick"', "0, 1, 2, 3, 4"):
        assert text in page.text
    assert f"pandas {record.packages['pandas']}" in page.text
    dirty = replace(record, commit="c0ffee", dirty=True, completed=False)
    text = Page(render_report(replace(study_result, provenance=dirty))).text
    assert "c0ffee with uncommitted changes" in text
    assert "Not completed." in text


def test_figures_follow_the_scheme_of_the_reader(source):
    """Both schemes have their colours, and the script maps the figures' ink and grid to them."""
    assert source.count("prefers-color-scheme: dark") == 2
    inks = f"ink = {json.dumps(INK)}, grid = {json.dumps(GRID)}, neutral = {json.dumps(NEUTRAL)}"
    assert f"let {inks};" in source
    assert 'addEventListener("change", repaint)' in source


def test_an_empty_result_has_a_report(study_result):
    """A study that was stopped at once."""
    empty = replace(
        study_result,
        table=study_result.table.iloc[:0],
        curves=(),
        findings=(),
        verdicts=(),
        sentences=(),
        provenance=replace(study_result.provenance, completed=False, checkpoints={}, seeds=()),
    )
    text = Page(render_report(empty)).text
    assert "Not completed." in text
    assert "Verdicts" not in text
    assert render_text(empty).startswith("NOT COMPLETED")


def test_terminal_summary_fits_and_is_aligned(study_result):
    """At most 100 columns; the columns of every table start where their rule starts."""
    text = render_text(study_result)
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    rules = [i for i, line in enumerate(lines) if line and set(line) <= {"-", " "}]
    assert len(rules) == 3
    for index in rules:
        starts = [match.start() for match in re.finditer("-+", lines[index])]
        for line in (lines[index - 1], lines[index + 1]):
            for start in starts[1:]:
                assert line[start - 2 : start].strip() == ""


def test_terminal_summary_says_what_matters(study_result):
    """Every sentence, the error of every checkpoint with its interval, reasons, violations."""
    text = " ".join(render_text(study_result).split())
    for sentence in study_result.sentences:
        assert sentence in text
    assert "Total variation, mean ± half the 95 % interval over seeds:" in text
    rows = study_result.table.query("quantity == 'total_variation' and checkpoint == 'none'")
    at_31 = rows[rows["length"] == 31]["mean"]
    half = 2.7764451 * at_31.std(ddof=1) / math.sqrt(5)
    assert f"{at_31.mean():.3f} ±{half:.3f}" in text
    assert "25 theory curves compared, 1 violated." in text
    assert "VIOLATES the upper bound 'a bound that is <too> tight'" in text
    assert "and 12 more, none violated" in text
    assert "peri: length 31 was not measured & <so> nothing is said" in text


def test_terminal_summary_shows_every_violation(study_result):
    """However many."""
    many = replace(
        study_result, findings=tuple(replace(f, violated=True) for f in study_result.findings)
    )
    assert sum(line.startswith("! ") for line in render_text(many).splitlines()) == 25


def test_long_names_are_cut_not_numbers(study_result):
    """A name gives way, the number beside it does not."""
    long = tuple(replace(f, name=f.name * 5) for f in study_result.findings)
    text = render_text(replace(study_result, findings=long))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "0.0778 nats inside" in text


def verdict_on(subject, level, label="dispersing", verdict="WARN"):
    """A verdict with a reason that can be found again."""
    return Verdict(
        subject, level, label, verdict, 0.9, 0.25, 64.0, math.nan, f"reason of {subject}"
    )


@pytest.mark.parametrize("n_heads", [16, 17])
def test_many_heads_are_counted_by_layer(study_result, n_heads):
    """To 16 one line a head; past it one line a layer, and in the page all of them, folded."""
    heads = [verdict_on(f"L{head // 9} H{head % 9}", "head") for head in range(n_heads - 1)]
    heads.append(verdict_on("L1 H8", "head", "odd <class>", "UNKNOWN"))
    layers = [verdict_on("layer 0", "layer"), verdict_on("layer 1", "layer", "focused", "PASS")]
    verdicts = (*heads, *layers, verdict_on("model", "model"))
    result = replace(study_result, verdicts=verdicts)
    text, source = render_text(result), render_report(result)
    page = Page(source)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "reason of model" in text
    assert "reason of L0 H3" in page.text
    assert "odd <class>" in page.text
    if n_heads == 16:
        assert "reason of L0 H3" in text
        assert "counted by layer" not in text
        assert "The verdict on every head" not in page.text
        return
    assert "reason of L0 H3" not in text
    lines = text.splitlines()
    start = lines.index("17 heads, counted by layer:")
    assert lines[start + 1].split() == ["layer", "verdict", "dispersing", "odd", "<class>", "first",
                                        "below"]  # fmt: skip
    assert lines[start + 3].split() == ["layer", "0", "WARN", "9", "64"]
    assert lines[start + 4].split() == ["layer", "1", "PASS", "7", "1", "64"]
    assert source.index("By layer") < source.index("The verdict on every head (17)")
    assert source.index("reason of model") < source.index("<details>")
    assert source.index("reason of L0 H3") > source.index("<details>")


def test_a_head_map_has_a_section_of_its_own(study_result, many_heads):
    """Before the other figures, with a menu of the page's own; under 10 MB with 270 heads."""
    classes = classify_heads(many_heads)
    verdicts = tuple(judge_heads(classes))
    result = replace(study_result, table=many_heads, verdicts=verdicts)
    map_ = plot_head_map(many_heads, classes)
    other = plot_dispersion(many_heads, layers=[0])
    source = render_report(result, {"other": other, "map": map_})
    assert len(source.encode()) < 10_000_000
    page = Page(source)
    assert page.text.index("Attention heads") < page.text.index(map_.layout.meta["caption"])
    assert page.text.index(map_.layout.meta["caption"]) < page.text.index("Figures Markers")
    menus = [attributes for tag, attributes in page.elements if tag == "select"]
    assert menus == [{"data-target": "heads-1"}]
    assert [a["id"] for t, a in page.elements if a.get("class") == "plot"] == ["heads-1", "plot-1"]


BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")

PROBE = """<script>
addEventListener("securitypolicyviolation", event => failures.push(event.blockedURI));
setTimeout(async () => {
  const plots = [...document.querySelectorAll(".plot")];
  const told = {
    failures,
    drawn: plots.map(plot => plot.querySelectorAll(".main-svg").length > 0),
    ink: plots.map(plot => plot._fullLayout.font.color),
    width: document.documentElement.scrollWidth <= innerWidth,
  };
  const patterns = plots[2], {sliders, updatemenus} = patterns.layout;
  await Plotly.update(patterns, ...sliders[0].steps[3].args);
  await Plotly.restyle(patterns, ...updatemenus[0].buttons[1].args);
  dispatchEvent(new Event("beforeprint"));
  told.printed = plots.map(plot => plot._fullLayout.font.color);
  const shown = trace => trace.visible === true && trace.opacity === 1;
  told.kept = patterns._fullData.filter(shown).map(trace => trace.name);
  document.body.innerHTML = "<pre></pre>";
  document.querySelector("pre").textContent = "TOLD" + JSON.stringify(told) + "END";
}, 500);
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome to open the report in")
def test_it_opens_in_a_browser(source, tmp_path):
    """Dark, offline: every figure drawn in the dark ink, no error; print is light, choices stay."""
    page = source.replace("<body>", '<body><script>const failures = []; addEventListener("error", '
                          "event => failures.push(event.message));</script>", 1)  # fmt: skip
    file = tmp_path / "report.html"
    file.write_text(page.replace("</body>", PROBE), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000"]
    flags += ["--blink-settings=preferredColorScheme=0", "--window-size=900,900"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    done = subprocess.run(
        [str(BROWSER), *flags, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(done.stdout[done.stdout.rindex("TOLD") + 4 : done.stdout.rindex("END")])
    assert told["failures"] == []
    assert told["drawn"] == [True] * 3
    assert told["ink"] == ["#e6e8ea"] * 3
    assert told["width"]
    assert told["printed"] == ["#000000"] * 3
    assert told["kept"] == ["length 31, head 1"]
