"""A report's page: its figures are NumPy's, its names are escaped, and it is one whole file."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from refusals import command_refused, refused
from trained import CLASSES, run_of

import jgs
from jgs.report import figures, page, sections, write_report
from jgs.report.__main__ import main as report
from jgs.train.__main__ import main as train
from jgs.train.config import Config
from jgs.train.flags import parse

VOID = {"meta", "link"}


class Page(HTMLParser):
    """The texts of a page by element, its tables by caption, and all attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.tables, self.attributes = [], {}, {}, []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *each) for each in attributes]
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.tables[self.texts["caption"][-1]] = [*self._rows(), []]
        if tag in ("th", "td"):
            self._rows()[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open:
            self.texts[tag][-1] += data
        if {"th", "td"} & set(self.open):
            self._rows()[-1][-1] += data

    def _rows(self):
        return self.tables.get(self.texts["caption"][-1], [])

    def section(self, title):
        return next(text for text in self.texts["section"] if text.startswith(title))


@pytest.fixture(scope="module", params=["classes", "parts", "labels", "numbers"])
def reported(request, tmp_path_factory):
    """What the labels are, a run, its data set, and its page."""
    run = run_of(tmp_path_factory.getbasetemp(), request.param)
    assert report(["--run-dir", str(run.folder), "--no-progress"]) == 0
    text = (run.folder / "report.html").read_text()
    return request.param, run.folder, run.data, Page(text)


def of_kinds(*kinds):
    return pytest.mark.parametrize("reported", kinds, indirect=True)


def test_the_page_is_one_whole_file_and_always_the_same(reported, tmp_path, monkeypatch):
    kind, run_dir, _, found = reported
    text = (run_dir / "report.html").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert write_report(run_dir, "a.html")["out"] == str(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_bytes() == text
    # Nothing is loaded from elsewhere, and no name of the data has become an element.
    assert {v for _, k, v in found.attributes if k in ("src", "href")} == {"data:,"}
    assert not {"script", "b", "img", "iframe", "object"} & found.texts.keys()
    assert not re.search(r"url\(|@import|https?:", text.decode())
    assert ("meta", "content", page._POLICY) in found.attributes
    pictures = [a for a in found.attributes if a == ("svg", "role", "img")]
    assert len(pictures) == len(found.texts["desc"]) >= 4
    assert all(found.texts["desc"])
    assert all(found.texts["title"])
    assert found.texts["h1"][0].startswith("run <b>: sage on ")
    if kind in ("classes", "parts"):
        assert CLASSES[0] in [row[0] for row in found.tables["Figures of each class"]]


@of_kinds("classes", "parts")
def test_the_command_trains_the_same_run(reported):
    _, run_dir, _, found = reported
    config = jgs.open_run(run_dir).config
    words = page.command_of(config, str(run_dir))
    assert words[:2] == ["jgs", "train"]
    assert "--hidden" in words
    differs = Config(**parse(words[2:])).differs_from(config)
    assert set(differs) <= ({"dataset"} if config.partition else set())  # the parts name it
    assert f"--run-dir '{run_dir}'" in found.texts["pre"][0]
    other = Config(task="links", temporal=True, sampler="labor", layer_dependency=True)
    words = page.command_of(other, "r")
    assert "--layer-dependency" in words
    assert Config(**parse(words[2:])).differs_from(other) == {}


def test_figures_are_those_of_numpy(reported):
    kind, run_dir, data, found = reported
    run, test = jgs.open_run(run_dir), np.sort(data.test_idx)
    truth, given = data.labels[test], run.predict(test)
    result = json.loads((run_dir / "result.json").read_text())
    degree = np.diff(np.asarray(data.graph.indptr))[test]
    if kind == "numbers":
        error = given.astype(float) - truth
        said = found.section("Residuals")
        assert (
            f"RMSE {np.sqrt(np.mean(error**2)):.4g}, MAE {np.mean(np.abs(error)):.4g}" in said
        )
        assert sum(int(row[1]) for row in found.tables["Residuals"][1:]) == len(test)
        worst = test[np.argsort(-np.abs(error), kind="stable")[:6]]
    elif kind == "labels":
        right, wrong = given.prediction & (truth > 0), given.prediction != (truth > 0)
        rows = found.tables["Figures of each label"][1:]
        assert [int(row[1]) for row in rows] == truth.sum(axis=0).tolist()
        recall = right.sum(axis=0) / truth.sum(axis=0)
        assert [row[5] for row in rows] == [f"{r:.3f}" for r in recall]
        far = np.where(wrong.any(axis=1), np.abs(given.probability - truth).max(axis=1), -1)
        worst = test[np.argsort(-far, kind="stable")[:6]]
        inside = (given.probability >= 0.3) & (given.probability < 0.4)
        bins = {row[0]: row[1:] for row in found.tables["Calibration"]}
        assert bins["0.3–0.4"][0] == str(inside.sum())
        assert bins["0.3–0.4"][2] == f"{truth[inside].mean():.3f}"
    else:
        wrong = given.prediction != truth
        assert result["test_accuracy"] == np.mean(~wrong)
        sure = np.where(wrong, given.probability, -1)
        worst = test[np.argsort(-sure, kind="stable")[:6]]
        few = (degree >= 4) & (degree <= 7)
        bins = {row[0]: row[1:3] for row in found.tables["accuracy by degree"]}
        assert bins["4–7"] == [str(few.sum()), f"{np.mean(~wrong[few]):.3f}"]
        edges = np.linspace(0, 1, 11)
        place = np.digitize(given.probability, edges[1:-1])
        gap = [
            abs(np.sum(~wrong[place == b]) - np.sum(given.probability[place == b], dtype=float))
            for b in range(10)
        ]
        assert f"calibration error: {sum(gap) / len(test):.4f}" in found.section("Calibration")
        pairs = {tuple(p) for p in zip(truth[wrong], given.prediction[wrong], strict=True)}
        count = max(np.sum((truth == a) & (given.prediction == b)) for a, b in pairs)
        assert found.tables["The most frequent mistakes"][1][1] == str(count)
    # The examples most wrong, each with its number of in-edges and a picture.
    assert found.texts["h3"] == [f"node {node}" for node in worst]
    begin, end = np.asarray(data.graph.indptr)[worst[0] :][:2]
    said = f"in-edges{end - begin}"
    if kind in ("classes", "parts"):
        row = np.searchsorted(test, worst[0])
        kinds = data.labels[np.asarray(data.graph.indices)[begin:end]]
        if own := np.sum(kinds == truth[row]):
            said += f": from {own} of its class"
        else:
            said += f": from {np.sum(kinds == given.prediction[row])} of the predicted class"
    assert said in found.section("Examples most wrong")
    assert sum("Neighbourhood of" in title for title in found.texts["title"]) == 6
    if kind in ("classes", "parts"):
        _, *matrix = found.tables["Rows are classes, columns predicted classes"]
        wanted = np.zeros((4, 4), int)
        np.add.at(wanted, (truth, given.prediction), 1)
        assert [row[1:] for row in matrix] == wanted.astype(str).tolist()
        assert [row[0] for row in matrix] == list(CLASSES)


@of_kinds("classes")
def test_a_matrix_of_many_classes_is_left_out(reported, monkeypatch, tmp_path):
    monkeypatch.setattr(sections, "_SQUARE", 3)
    write_report(reported[1], tmp_path / "a.html")
    found = Page((tmp_path / "a.html").read_text())
    assert "4 classes are too many for a matrix" in found.section("Mistakes")
    assert "Rows are classes, columns predicted classes" not in found.tables
    assert "The most frequent mistakes" in found.tables


@of_kinds("labels")
def test_what_is_sampled_is_said(reported, monkeypatch, tmp_path):
    _, run_dir, data, _ = reported
    monkeypatch.setattr(figures, "MOST", 50)
    found = write_report(run_dir, tmp_path / "a.html", examples=0, split="val")
    assert (found["nodes"], found["split"]) == (50, "val")
    text = (tmp_path / "a.html").read_text()
    assert f"a random sample of 50 of the {len(data.val_idx)} nodes of the val split" in text
    assert "Examples" not in text


def test_other_tasks_have_curves(tmp_path, capsys):
    data = ["--data-options", "num_nodes=60", "num_edges=300", "num_features=4"]
    argv = [*data, "num_classes=2", "--task", "embed", "--epochs", "2", "--no-progress"]
    assert train([*argv, "--dim", "4", "--run-dir", str(tmp_path / "run")]) == 0
    assert write_report(tmp_path / "run") == {
        "out": str(tmp_path / "run" / "report.html"),
        "run_dir": str(tmp_path / "run"),
    }
    found = Page((tmp_path / "run" / "report.html").read_text())
    assert found.texts["h2"] == ["Command", "Curves", "Predictions"]
    assert len(found.tables["Metrics of each epoch"]) == 3
    assert "run of --task embed" in found.section("Predictions")


@of_kinds("classes")
def test_wrong_arguments(tmp_path, reported, capsys):
    argv = ["--run-dir", str(tmp_path / "none")]
    errors = command_refused(capsys, "must be the folder of a run, ", report, argv)
    assert errors.count("\n") == 1
    for given, said in (
        ({"split": "tset"}, "split must be one of train, val, test; got 'tset'"),
        ({"examples": -1}, "examples must be at least 0"),
        ({"out": tmp_path / "none" / "a.html"}, "out must name a file"),
        ({"out": reported[1] / "config.json"}, "out must end in .html"),
    ):
        refused(said, write_report, reported[1], **given)


def test_figures_at_their_bounds():
    """No rows wrong, a class without rows, one row, probabilities of 0 and 1."""
    given = np.array([0, 1, 1], np.int32)
    assert figures.confused_pairs(given, given, 5) == []
    assert figures.confused_pairs(given, np.array([1, 0, 0]), 1) == [(0, 1, 2)]
    found = figures.by_class(given, np.array([0, 1, 0], np.int32), 3)
    np.testing.assert_array_equal(found.recall, [0.5, 1, np.nan])
    np.testing.assert_array_equal(found.precision, [1, 0.5, np.nan])
    np.testing.assert_allclose(found.f1, [2 / 3, 2 / 3, np.nan])
    degree = np.array([0, 1, 2, 3, 4, 1 << 20])
    bins = [(name, some.tolist()) for name, some in figures.degree_bins(degree)]
    assert bins[:4] == [("0", [0]), ("1", [1]), ("2–3", [2, 3]), ("4–7", [4])]
    assert bins[4] == ("1,048,576–2,097,151", [5])
    found = figures.calibration(np.array([0, 1, 1.0]), np.array([False, True, False]))
    assert found.number.tolist() == [1, 2]
    assert found.error == pytest.approx(1 / 3)
    from scipy.stats import binomtest

    value, interval = figures.share(np.arange(40) < 31)
    wanted = binomtest(31, 40).proportion_ci(method="wilson")
    assert value == 31 / 40
    np.testing.assert_allclose(interval, wanted, atol=1e-4)
