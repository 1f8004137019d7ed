"""From files to a page."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from otm._core.interval import Interval
from otm._core.means import clustered_mean
from otm.decoding import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError, UnknownMethodError
from otm.gain import (
    Lenience,
    Settings,
    Summary,
    Typical,
    from_files,
    from_top_logprobs,
    read_latency,
    report,
)
from otm.gain.latency import Latency
from otm.gain.reports.blocks import measure_all
from otm.gain.reports.pictures import PLOT_SIZE, label_corners
from otm.optimum.top_logprobs import alpha_interval_from_logprobs

pytest.importorskip("joblib")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

SETTINGS = Settings(
    ks=(1, 2, 4), draft_temperatures=(1.0, 0.7), lossy_settings=(Lenience(0.5), Typical())
)
LATENCY = Latency((1, 8), (1, 9), (0.1, 0.2), ((1.0, 1.1), (1.1, 1.9)))


def report_once(folder: Path) -> Summary:
    return report(
        from_files(folder / "pair.npz"),
        folder / "out",
        SETTINGS,
        gammas=[1, 2, 4],
        latency=LATENCY,
    )


@pytest.fixture
def summary(folder: Path, computed: Callable[..., Summary]) -> Summary:
    """Return the summary of a report that was written to `folder / "out"`."""
    return computed(folder, report_once)


def test_means_are_clustered_by_prompt(folder: Path, summary: Summary) -> None:
    """Catches a table of other numbers than those of the positions."""
    measured = measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "out" / "positions")
    prompts = np.repeat(np.arange(6), 10)
    (row,) = (
        row
        for row in summary.acceptance
        if (row["draft temperature"], row["rule"], row["k"]) == (0.7, "k-Seq", 4)
    )
    values = measured["acceptance"][:, 1, 1]
    assert row["mean"] == pytest.approx(clustered_mean(values[:, 2], prompts))
    (row,) = (
        row
        for row in summary.differences
        if (row["draft temperature"], row["less"], row["k"]) == (0.7, "k-Seq", 4)
    )
    wanted = clustered_mean(measured["acceptance"][:, 1, 0, 2] - values[:, 2], prompts)
    assert row["mean"] == pytest.approx(wanted)
    for row in summary.lossy:
        assert row["gain"].mean <= row["total variation"].mean + 1e-12
    for row in summary.block_efficiency:
        assert 1 <= row["chains"].mean <= row["tree"].mean + 1e-12 <= row["gamma"] + 1 + 1e-9


def test_the_recommendation_is_the_fastest(summary: Summary) -> None:
    """Catches a speed-up of other tokens than those of the table, and times of another K."""
    assert summary.recommendation is not None
    best = summary.recommendation.best
    speeds = {
        (row["rule"], row["K"], row["gamma"], row["draft temperature"]): row["chains"].mean
        / LATENCY.step_time(row["gamma"], row["K"])
        for row in summary.block_efficiency
    }
    found = (
        *tuple(best.setup)[:1],
        best.setup.k,
        best.setup.gamma,
        best.draft_sampling.temperature,
    )
    assert max(speeds.values()) == pytest.approx(speeds[found])
    assert best.speedup.mean == pytest.approx(speeds[found])
    assert best.gap_to_best == pytest.approx((0, 0, 0))
    chains = [each.setup.rule for each in summary.recommendation.candidates if each.setup.k == 1]
    assert set(chains) == {"optimal"}  # with one draft all rules are one


class Page(HTMLParser):
    """Reads a page; what it would load, and its names of parts."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not str(value).startswith("#"):
                self.loaded.append(str(value))
            if name == "id":
                self.names.append(str(value))


def test_the_page_shows_the_numbers_and_needs_nothing_else(folder: Path, summary: Summary) -> None:
    """Catches a table that is left out, and a page that is empty without a network."""
    text = (folder / "out" / "report.html").read_text(encoding="utf-8")
    reader = Page()
    reader.feed(text)
    assert reader.loaded == []
    assert len(set(reader.names)) == len(reader.names)
    assert text.count("<svg") == 4
    assert "<?xml" not in text
    for row in summary.acceptance + summary.differences:
        assert f">{row['mean']}<" in text
    for row in summary.block_efficiency:
        assert f">{row['chains']}<" in text
        assert f">{row['tree']}<" in text
    for row in summary.efficiency_bounds:
        assert f">{row['bound']}<" in text
    assert (
        f"no memoryless lossless verifier has more than {summary.most_tokens} tokens per step"
        in text
    )
    for row in summary.lossy:
        assert f">{row['gain']}<" in text
        assert f">{row['total variation']}<" in text
    assert summary.recommendation is not None
    assert str(summary.recommendation.best.speedup) in text
    written = json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))
    assert written["acceptance"][3]["mean"]["mean"] == summary.acceptance[3]["mean"].mean
    assert written["tokens_known"] is True
    assert not list((folder / "out").glob("*.part"))


def test_the_page_says_what_is_assumed_or_not_known(folder: Path) -> None:
    """Catches an interval for positions of unknown prompts, and an assumption kept quiet."""
    arrays = dict(np.load(folder / "pair.npz"))
    np.savez(folder / "bare.npz", draft=arrays["draft"], target=arrays["target"])
    source = from_files(folder / "bare.npz")
    summary = report(source, folder / "bare", SETTINGS, gammas=[2], latency=LATENCY)
    text = (folder / "bare" / "report.html").read_text(encoding="utf-8")
    assert "With an assumption" in text
    assert summary.intervals in text
    assert "The prompt of each position is unknown" in text
    assert "lossless verifier" not in text
    assert "±" not in re.sub(r"<p.*?</p>", "", text)
    assert "inf" not in re.sub(r"<(style|svg).*?</\1>", "", text, flags=re.DOTALL).lower()
    assert summary.acceptance[0]["mean"].high == math.inf
    written = json.loads((folder / "bare" / "report.json").read_text(encoding="utf-8"))
    assert written["acceptance"][0]["mean"]["high"] is None


def test_a_single_number_of_drafts_has_pictures(folder: Path) -> None:
    """Catches a picture that needs two numbers of drafts."""
    report(from_files(folder / "pair.npz"), folder / "one", Settings(ks=(1,)), gammas=[1])
    text = (folder / "one" / "report.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 3


def test_a_summary_without_tables_can_be_printed() -> None:
    """Catches an error where a notebook only shows an object."""
    summary = Summary("two files", 100, 1, False, False, Settings(), level=0.95)
    assert repr(summary).startswith("This report has no results.\n")


def test_labels_do_not_cover_points_or_labels() -> None:
    """Catches labels on top of each other where points are close."""
    points = np.array([[20.0, 60.0], [22.0, 62.0], [190.0, 60.0]])
    corners = label_corners(points, ["one", "two", "a label at\nthe edge"], points)
    sizes = np.array([[3 * 4.3, 9.5], [3 * 4.3, 9.5], [10 * 4.3, 19.0]])
    for corner, size in zip(corners, sizes, strict=True):
        assert (corner >= 0).all()
        assert (corner + size <= PLOT_SIZE).all()
        others = [(c, s) for c, s in zip(corners, sizes, strict=True) if c is not corner]
        for other, its_size in others:
            assert (corner + size <= other).any() or (other + its_size <= corner).any()


def test_names_of_files_are_texts_on_the_page(folder: Path) -> None:
    """Catches a name that becomes a part of the page."""
    path = folder / "<script>x.npz"
    path.write_bytes((folder / "pair.npz").read_bytes())
    settings = Settings(ks=(1,), lossy_settings=())
    report(from_files(path), folder / "out", settings, gammas=[1])
    text = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;x.npz" in text


KINDS = "logits", "log-probabilities", "probabilities"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("stated", KINDS)
@pytest.mark.parametrize("given", KINDS)
def test_scores_are_taken_for_what_they_are(
    given: str, stated: str, dtype: str, folder: Path
) -> None:
    """Catches probabilities that go through a softmax, and tolerances that reject valid files."""
    arrays = dict(np.load(folder / "pair.npz"))
    logits = {name: arrays[name].astype(np.float64) for name in ("draft", "target")}
    if given != "logits":
        for name, scores in logits.items():
            logits[name] = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    if given == "probabilities":
        logits = {name: np.exp(scores) for name, scores in logits.items()}
    np.savez(folder / "x.npz", **{name: scores.astype(dtype) for name, scores in logits.items()})
    settings = Settings(ks=(1, 3), lossy_settings=())
    fits = stated == given or (given, stated) == ("log-probabilities", "logits")
    source = from_files(folder / "x.npz", kind=stated)
    if not fits:
        with pytest.raises(InvalidInputError, match=r"^row 0 of array 'target' of file 'x.npz'"):
            measure_all(source, settings, folder / "x")
        return
    found = measure_all(source, settings, folder / "x")
    wanted = measure_all(from_files(folder / "pair.npz"), settings, folder / "y")
    tolerance = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-6}[dtype]
    np.testing.assert_allclose(found["acceptance"], wanted["acceptance"], atol=tolerance)


def test_top_lists_give_intervals(tmp_path: Path) -> None:
    """Catches bounds that are exchanged, and tokens of one line that are taken for another's."""
    draft = [{"11": -0.35667, "42": -1.60944}, {"the": -0.7, "a": -1.0}]
    target = [{"42": -0.69315, "11": -0.91629}, {"a": -0.8, "an": -0.9}]
    lines = [
        json.dumps({"prompt": prompt, "draft": p, "target": q})
        for prompt, p, q in zip(["x", "y"], draft, target, strict=True)
    ]
    path = tmp_path / "lists.jsonl"
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    summary = report(from_top_logprobs(path), tmp_path / "out", Settings(ks=(1, 2)))
    intervals: list[Interval] = [
        alpha_interval_from_logprobs({11: -0.35667, 42: -1.60944}, {42: -0.69315, 11: -0.91629}, 2),
        alpha_interval_from_logprobs({0: -0.7, 1: -1.0}, {1: -0.8, 2: -0.9}, 2),
    ]
    row = summary.bounds[1]
    assert row["k"] == 2
    assert row["lower"].mean == pytest.approx(np.mean([float(each.lower) for each in intervals]))
    assert row["upper"].mean == pytest.approx(np.mean([float(each.upper) for each in intervals]))
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert str(row["lower"]) in text
    assert summary.acceptance == summary.block_efficiency == []
    for given in (
        {"draft_temperatures": (0.5,)},
        {"sampling": SamplingParameters(temperature=0.5)},
    ):
        with pytest.raises(InvalidParameterError, match="lists of log-probabilities"):
            report(from_top_logprobs(path), tmp_path / "other", Settings(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        b"[]", b"{}", b'{"draft": {}, "target": {"1": -1}}', b'{"draft": {"1": -1}, "target": 3}',
        b'{"draft": {"1": NaN}, "target": {"1": -1}}', b'{"draft": {"1": 1}, "target": {"1": -1}}',
        b'{"draft": {"1": "x"}, "target": {"1": -1}}', b'{"draft": {"1": -1, "1": -2}}',
        b'{"draft": {"1": -1, "01": -2}, "target": {"1": -1}}',
        b'{"draft": {"1": -1}, "target": {"1": -1}, "prompt": []}',
        b'{"draft": {"1": -1}, "target": {"1": -1}, "sampled": 3}', b"\xff", b"[" * 10_000,
    ],
)  # fmt: skip
def test_lines_that_are_no_lists_are_refused(line: bytes, tmp_path: Path) -> None:
    good = b'{"draft": {"1": -0.5}, "target": {"1": -0.5}}\n'
    (tmp_path / "x.jsonl").write_bytes(good + line + b"\n" + good)
    with pytest.raises(InvalidInputError, match=r"position 1 of file 'x[.]jsonl'") as caught:
        measure_all(from_top_logprobs(tmp_path / "x.jsonl"), Settings(), tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_arguments_are_refused_before_any_work(folder: Path) -> None:
    """Catches an error after an hour."""
    source = from_files(folder / "pair.npz")
    for given in (
        {"gammas": []},
        {"gammas": [-1]},
        {"gammas": [10**6]},  # hours of work
        {"level": 1},
        {"latency": LATENCY, "gammas": [9]},
    ):
        with pytest.raises(InvalidInputError):
            report(source, folder / "out", **given)  # type: ignore[arg-type]
    for wrong in ((source, {"latency": 0.1}), ("pair.npz", {}), (source, {"settings": 3})):
        with pytest.raises(InvalidInputError, match="a report does not accept"):
            report(wrong[0], folder / "out", **wrong[1])  # type: ignore[arg-type]
    assert not (folder / "out").exists()
    one = Settings(ks=4, rules="k-Seq")  # type: ignore[arg-type]
    assert (one.ks, one.rules) == ((1, 4), ("k-Seq",))
    with pytest.raises(UnknownMethodError, match="k-Seq"):
        Settings(rules=("k-seq",))
    for wrong in ({"ks": (0,)}, {"ks": (10**6,)}, {"rules": ()}, {"draft_temperatures": (-1,)}):
        with pytest.raises(InvalidInputError):
            Settings(**wrong)  # type: ignore[arg-type]
    for setting in (0.5, (0.5,), None):
        with pytest.raises(InvalidParameterError, match=r"give a Lenience"):
            Settings(lossy_settings=(setting,))  # type: ignore[arg-type]


@pytest.mark.parametrize("lenience", [0, 3, -1, math.nan, math.inf, "x", None, True])
def test_a_lenience_outside_its_range_is_refused_at_once(lenience: Any) -> None:
    """Catches an error that comes long after the invalid setting."""
    with pytest.raises(InvalidParameterError, match=r"lenience = .* \(0, 1\]"):
        Lenience(lenience)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "x", None, True])
def test_typical_acceptance_outside_its_range_is_refused_at_once(value: Any) -> None:
    for name in ("epsilon", "delta"):
        with pytest.raises(InvalidParameterError, match=f"{name} = .*at least 0"):
            Typical(**{name: value})


@pytest.mark.parametrize("slack", [-1, 0.6, math.nan, "x", None, True])
def test_a_slack_is_checked_before_the_file_is_read(slack: Any, tmp_path: Path) -> None:
    """Catches an error after gigabytes of lines, or only when the report is made."""
    with pytest.raises(InvalidParameterError, match=r"slack = .* \[0, 0\.5\]"):
        from_top_logprobs(tmp_path / "missing.jsonl", slack=slack)
    with pytest.raises(InvalidParameterError, match="vocabulary = 0"):
        from_top_logprobs(tmp_path / "missing.jsonl", vocabulary=0)


def test_files_that_do_not_fit_together_are_refused(folder: Path) -> None:
    arrays = dict(np.load(folder / "pair.npz"))
    wrong = {
        "others": {"a": arrays["draft"], "b": arrays["target"]},
        "shapes": {"draft": arrays["draft"], "target": arrays["target"][:, 1:]},
        "whole": {"draft": arrays["draft"], "target": np.ones(arrays["draft"].shape, dtype=int)},
        "flat": {"draft": arrays["draft"][0], "target": arrays["target"][0]},
        "none": {"draft": arrays["draft"][:0], "target": arrays["target"][:0]},
        "prompts": {**arrays, "prompts": arrays["prompts"][1:]},
        "labels": {**arrays, "prompts": arrays["prompts"] / 2},
    }
    for name, content in wrong.items():
        np.savez(folder / f"{name}.npz", **content)
        with pytest.raises(InvalidInputError):
            from_files(folder / f"{name}.npz")
    np.save(folder / "draft.npy", arrays["draft"])
    with pytest.raises(InvalidInputError, match=r"^file 'draft.npy' holds one array; give a file "):
        from_files(folder / "draft.npy")
    for again in ("draft.npy", f"../{folder.name}/draft.npy"):
        with pytest.raises(InvalidInputError, match=r"^file '.*' is given for the draft and for "):
            from_files(folder / "draft.npy", folder / again)
    with pytest.raises(UnknownMethodError, match="log-probabilities"):
        from_files(folder / "pair.npz", kind="scores")
    with zipfile.ZipFile(folder / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("draft", "target"):
            with archive.open(f"{name}.npy", "w") as file:
                header = {"descr": "<f2", "fortran_order": False, "shape": (2**24 + 1, 1)}
                np.lib.format.write_array_header_1_0(file, header)
                for _ in range(32):
                    file.write(bytes(2**20))
                file.write(bytes(2))
    with pytest.raises(InvalidInputError, match="16,777,217 positions; at most 16,777,216"):
        from_files(folder / "zeros.npz")
    arrays["tokens"][5] = 40
    np.savez(folder / "token.npz", **arrays)
    with pytest.raises(InvalidInputError, match="position 5 has the token 40"):
        measure_all(from_files(folder / "token.npz"), SETTINGS, folder / "token")


@pytest.mark.parametrize(
    ("shape", "says"), [((0, 5), "so it has no rows;"), ((5, 0), "so it has no tokens;")]
)
@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
def test_files_without_rows_or_tokens_are_said_to_be_empty(
    suffix: str, shape: tuple[int, int], says: str, tmp_path: Path
) -> None:
    """Bug: two equal shapes are named, and that they must be alike."""
    empty = np.zeros(shape, dtype=np.float32)
    if suffix == "npy":
        files = [tmp_path / "draft.npy", tmp_path / "target.npy"]
        for file in files:
            np.save(file, empty)
    else:
        files = [tmp_path / f"pair.{suffix}"]
        arrays = {"draft": empty, "target": empty}
        if suffix == "npz":
            np.savez(files[0], **arrays)
        else:
            save_file(arrays, files[0])
    with pytest.raises(InvalidInputError, match=re.escape(f"has the shape {shape}, {says}")):
        from_files(*files)


def test_latencies_are_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "latency.json"
    path.write_text("0.125", encoding="utf-8")
    assert read_latency(path) == Latency.constant(0.125)
    table = {"rows": [1, 8], "tokens": [1, 9], "draft": [1, 1.5], "target": [[10, 11], [12, 20]]}
    path.write_text(json.dumps(table), encoding="utf-8")
    assert read_latency(path).step_time(gamma=8, k=1) == 20.0
    for wrong in (
        {},
        {**table, "x": 1},
        {**table, "rows": 3},
        {**table, "draft": ["x", 1]},
        -1,
        True,
    ):
        path.write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(InvalidInputError, match=r"^file 'latency\.json'"):
            read_latency(path)


def test_paths_may_be_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: names of files, as everybody writes them, end in an AttributeError."""
    monkeypatch.chdir(folder)
    (folder / "lists.jsonl").write_text('{"draft": {"1": -0.4}, "target": {"1": -0.7}}')
    (folder / "latency.json").write_text("0.125")
    pair = dict(np.load("pair.npz"))
    for name, array in pair.items():
        np.save(f"{name}.npy", array)
    source = from_files("draft.npy", "target.npy", prompts="prompts.npy", tokens="tokens.npy")
    np.testing.assert_array_equal(source.tokens, pair["tokens"])
    report(source, "page", Settings(ks=(2,), lossy_settings=()), gammas=[2])
    assert (folder / "page" / "report.html").exists()
    assert from_top_logprobs("lists.jsonl").prompts.size == 1
    assert read_latency("latency.json") == Latency.constant(0.125)
    for wrong in (None, 3, b"pair.npz"):
        with pytest.raises(InvalidInputError, match="is not a path; give the path of a f"):
            from_files(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="is not a path; give the path of a folder"):
            report(source, wrong)  # type: ignore[arg-type]


def test_the_headline_says_what_steps_are_taken_to_cost(folder: Path, summary: Summary) -> None:
    """Bug: a winner without the latency that made it one, which had been given as a number."""
    settings = Settings(ks=(1, 4), lossy_settings=())
    assumed = report(
        from_files(folder / "pair.npz"),
        folder / "assumed",
        settings,
        gammas=[2],
        latency=Latency.constant(0.05),
    )
    for its, name, wanted in (
        (assumed, "assumed", "takes 0.05 times as long"),
        (summary, "out", "the latency table has the times"),
    ):
        assert wanted in its.costs
        assert ("only one chain is compared" in its.costs) == (its is assumed)
        page = (folder / name / "report.html").read_text(encoding="utf-8")
        headline = re.search(r'<header class="answer">.*?</header>', page, re.DOTALL)
        assert headline is not None
        assert its.costs in headline[0]
        assert its.recommendation is not None
        assert f"K = {its.recommendation.best.setup.k}," in headline[0]
        assert "at least" not in headline[0]
        found = json.loads((folder / name / "report.json").read_text(encoding="utf-8"))
        decided, free = (
            {way["K"] for way in found[f"recommendation{part}"]}
            for part in ("", " if chains are free")
        )
        assert (decided, free) == (({1}, {4}) if its is assumed else ({1, 2, 4}, set()))
        assert ("More chains, if they cost nothing" in page) == (its is assumed)
        assert found["costs"] == its.costs
        assert its.latency is not None
        table = {key: value for key, value in found["latency"].items() if key != "target"}
        again = Latency(**{**table, "target": found["latency"]["target"]})
        assert again.step_time(2, 4) == its.latency.step_time(2, 4)


def test_arrays_of_one_axis_are_told_what_shape_logits_have(tmp_path: Path) -> None:
    """Bug: "has no array 'draft'", of a file that has one array and no names."""
    np.save(tmp_path / "draft.npy", np.ones(6))
    np.save(tmp_path / "target.npy", np.ones((6, 2)))
    message = r"'draft\.npy' has the shape \(6,\) and .* \(6, 2\); logits must be \[N, V\]"
    with pytest.raises(InvalidInputError, match=message):
        from_files(tmp_path / "draft.npy", tmp_path / "target.npy")
