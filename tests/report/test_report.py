"""A report's page: its figures are NumPy's, its names are escaped, and it is one whole file."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import jgs
import jgs.data
from jgs import InputError
from jgs.partition.__main__ import main as partition
from jgs.predict import source
from jgs.report import figures, judged, page, write_report
from jgs.report.__main__ import main as report
from jgs.train.__main__ import main as train
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop import open_data

NAMES = ("<script>alert(1)</script>", "a & b", '"blue"', "über")
FLAGS = ["--fanouts", "3", "3", "--hidden", "8", "--batch-size", "30", "--epochs", "3"]
FLAGS += ["--lr", "0.02", "--no-progress"]
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


def dataset(folder, kind):
    """An archive of 400 nodes, and its data set."""
    options = {"num_nodes": 400, "num_edges": 3000, "num_features": 8, "num_classes": 4}
    own = jgs.data.load("synthetic", folder, **options)
    rng, labels = np.random.default_rng(0), {"labels": own.labels, "class_names": NAMES}
    if kind == "labels":
        several = np.stack([own.labels == c for c in range(4)], axis=1).astype(np.float32)
        several[rng.random((400, 4)) < 0.1] = 1
        labels = {"labels": several}
    if kind == "numbers":
        labels = {"labels": (own.labels + rng.random(400)).astype(np.float32)}
    if kind == "many":
        labels = {"labels": np.arange(400) % 40}
    arrays = {name: getattr(own, name) for name in ("train_idx", "val_idx", "test_idx")}
    arrays |= {name: np.asarray(getattr(own.graph, name)) for name in ("indptr", "indices")}
    np.savez(folder / "own.npz", features=np.asarray(own.features), **arrays, **labels)
    return jgs.data.load(str(folder / "own.npz"), folder)


@pytest.fixture(scope="module", params=["classes", "parts", "labels", "numbers", "many"])
def trained(request, tmp_path_factory):
    """What the labels are, a run, its data set, and its page."""
    folder = tmp_path_factory.mktemp(request.param)
    data = dataset(folder, request.param)
    run_dir = folder / "run <b>"
    argv = ["--dataset", str(folder / "own.npz")]
    if request.param == "parts":
        parts = ["--partition", str(folder / "parts")]
        more = ["--parts", "2", "--method", "ldg", "--out", parts[1]]
        assert partition([*argv, *more]) == 0
        argv = parts
    assert train([*argv, "--run-dir", str(run_dir), *FLAGS]) == 0
    assert report(["--run-dir", str(run_dir), "--no-progress"]) == 0
    return request.param, run_dir, data, Page((run_dir / "report.html").read_text())


def test_the_page_is_one_whole_file_and_always_the_same(trained, tmp_path, capsys):
    kind, run_dir, _, found = trained
    text = (run_dir / "report.html").read_bytes()
    assert write_report(run_dir, tmp_path / "a.html")["out"] == str(tmp_path / "a.html")
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
        assert NAMES[0] in [row[0] for row in found.tables["Figures of each class"]]


def test_the_data_are_opened_once(trained, tmp_path, monkeypatch):
    kind, run_dir, *_ = trained
    place, name = (source, "open_parts") if kind == "parts" else (jgs.data, "load")
    opened, own = [], getattr(place, name)
    monkeypatch.setattr(place, name, lambda *a, **o: opened.append(a) or own(*a, **o))
    monkeypatch.delattr(open_data, "PartedData")  # how training would open them
    monkeypatch.delattr(open_data, "WholeData")
    write_report(run_dir, tmp_path / "a.html")
    assert len(opened) == 1


def test_the_command_trains_the_same_run(trained):
    _, run_dir, _, found = trained
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


def test_figures_are_those_of_numpy(trained):
    kind, run_dir, data, found = trained
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
    matrix = found.tables.get("Rows are classes, columns predicted classes")
    assert (matrix is None) == (kind not in ("classes", "parts"))
    if matrix:
        wanted = np.zeros((4, 4), int)
        np.add.at(wanted, (truth, given.prediction), 1)
        assert [row[1:] for row in matrix[1:]] == wanted.astype(str).tolist()
        assert [row[0] for row in matrix[1:]] == list(NAMES)


def test_what_is_sampled_is_said(trained, monkeypatch, tmp_path):
    _, run_dir, data, _ = trained
    monkeypatch.setattr(judged, "MOST", 50)
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


def test_a_folder_without_a_run_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "jgs.report", "--run-dir", str(tmp_path / "none")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch("error: .* must be the folder of a run, .*\n", done.stderr)


def test_wrong_arguments(tmp_path, trained):
    for given, said in (
        ({"split": "tset"}, "split must be one of train, val, test; got 'tset'"),
        ({"examples": -1}, "examples must be at least 0"),
        ({"out": tmp_path / "none" / "a.html"}, "out must name a file"),
    ):
        with pytest.raises(InputError, match=said):
            write_report(trained[1], **given)


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
