"""Every task is exported: an artifact gives its run's answers, at moments and of pairs."""

import dataclasses
import datetime
import functools
import json
import os
import subprocess

import jax
import numpy as np
import pytest
from cases import cases
from forks import quick_python
from refusals import command_refused, refused
from small_data import communities, events, moments, papers, small, typed_moments
from trained import of_data

import jgs
from jgs.dist.communicators.comm import Alone
from jgs.export import Spec
from jgs.export.__main__ import main as export
from jgs.export.program import needed_state
from jgs.export.spec import today
from jgs.predict import Run
from jgs.train.config import Config


def two_relations():
    """`typed_moments`, where items also read their users."""
    data = typed_moments()
    (item, user), time = data.graph.edge_index(), np.asarray(data.graph.edge_time)
    to, back = ("item", "of", "user"), ("user", "by", "item")
    graph = jgs.Graph.from_relations(
        dict(data.graph.schema.node_types),
        {to: (item - 30, user), back: (user, item - 30)},
        edge_time={to: time, back: time},
    )
    return dataclasses.replace(data, graph=graph)


COMMON = "--hidden 8 --batch-size 20 --dropout 0 --no-progress"
CONTEXTS = "--sampler context --context-size 6 --model relgt --layers 1"
LINKS = "--task links"
AT = 9000  # a moment of all data with times
# By name the data and the flags. Without times a run on pairs reads all neighbours, as here.
RUNS = {
    "classes by type": (papers, "--fanouts cites=3,*=2 --model rsage"),
    "numbers at moments": (functools.partial(moments, True), "--fanouts 2 --half-life 1000"),
    "classes at moments": (typed_moments, "--fanouts *=2 *=1 --model rsage --latest"),
    "contexts at moments": (typed_moments, f"{CONTEXTS} --fanouts 3 --latest"),
    "contexts by visits": (two_relations, f"{CONTEXTS} --fill visits --walks 20 4"),
    "contexts": (communities, f"{CONTEXTS} --fanouts 3 2 --task edges --learned 4"),
    "edges": (communities, "--task edges --fanouts 60 --learned 4 --label rating"),
    "links": (communities, f"{LINKS} --fanouts 60 --learned 4 --decoder dot --split random"),
    "links by type": (
        papers,
        f"{LINKS} --fanouts 300 --model rsage --decoder distmult --split random",
    ),
    "links at moments": (
        events,
        f"{LINKS} --temporal --eval-negatives 5 --fanouts 2 --latest --learned 0",
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`made(name)`: the run of a name, and the folder of its artifact."""

    @functools.cache
    def made(name):
        make, flags = RUNS[name]
        folder = tmp_path_factory.mktemp("task")
        make().save(folder / "data")
        run = of_data(f"{COMMON} {flags} --dataset {folder / 'data'}")
        own = {"at": AT} if "top_k" in run.flags and run.timed else {}
        own["batch_sizes"] = (1, 4) if name == "numbers at moments" else (4,)
        jgs.export_run(run, folder / "model", with_graph=True, **own)
        return run, folder / "model"

    return made


def question(run, model, rng, num=9):
    """What both are asked, and what the run is told beside."""
    asked, more = {}, {}
    if model.spec.pairs is None:
        nodes = rng.integers(0, model.num_nodes if run.schema is None else 30, num)
        if "fanouts" in run.flags:
            more["fanouts"] = run.config.options["fanouts"]
    else:
        ends = (range(model.num_nodes),) * 2
        if model.spec.pairs["named"]:
            asked["relation"] = "writes"
            ends = run.schema.nodes("author"), run.schema.nodes("paper")
        nodes = np.stack([rng.integers(e.start, e.stop, num) for e in ends], axis=1)
    if run.timed:
        asked["time"] = rng.integers(AT - 5000, AT, num)
    return nodes, asked, more


def close(found, wanted):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, wanted
    )


@cases("name", *RUNS)
def test_an_artifact_gives_the_runs_answers(name, made, monkeypatch):
    """In batches and alone, by kernels and plain, and for dates as for numbers."""
    run, folder = made(name)
    model = jgs.load_exported(folder)
    nodes, asked, more = question(run, model, np.random.default_rng(0))
    wanted = run.logits(nodes, **asked, **more)
    found = model.logits(nodes, **asked)
    close(found, wanted)
    close(model.predict(nodes, **asked), run.predict(nodes, **asked, **more))
    own = asked | ({"time": int(asked["time"][4])} if run.timed else {})
    close(model.logits(nodes[4:5], **own), wanted[4:5])
    assert model.logits(nodes[:0], **own).shape == (0, *wanted.shape[1:])
    twice = np.concatenate([nodes, nodes[::-1]])
    both = {n: np.append(v, v[::-1]) if n == "time" else v for n, v in asked.items()}
    first, second = np.split(model.logits(twice, **both), 2)
    np.testing.assert_array_equal(first, second[::-1])
    key = jax.random.key(4)
    if run.config.options.get("fanouts") and not run.config.options.get("latest"):
        other = model.logits(nodes, key=key, **asked)
        np.testing.assert_array_equal(other, model.logits(nodes, key=key, **asked))
    if name in ("classes at moments", "links by type"):
        monkeypatch.setattr(jgs, "__version__", "9.9.9")  # the plain programs run
        plain = jgs.load_exported(folder)
        assert not plain.kernel
        close(plain.logits(nodes, **asked), wanted)


@cases("name", "links", "links by type", "links at moments")
def test_the_best_targets_are_the_runs(name, made):
    run, folder = made(name)
    model, more = jgs.load_exported(folder), {"time": AT} if run.timed else {}
    named = {"relation": "writes"} if model.spec.pairs["named"] else {}
    sources = np.array([3, 17, 3, 40, 41, 42])
    for new in (False, True)[: 1 if run.timed else 2]:
        best, scores = model.recommend(sources, 5, new_only=new, **named)
        wanted, values = run.recommend(sources, 5, new_only=new, **named, **more)
        close(scores, values)
        assert (best == wanted).mean() > 0.9  # where scores are equal to rounding
        ends = np.stack([np.repeat(sources, 5), best.ravel()], axis=1)
        close(model.score(ends, **named, **more), scores.ravel())
        some, _ = model.recommend([17], 5, new_only=new, **named)
        np.testing.assert_array_equal(some[0], best[1])
    if not run.timed:  # a node that came after the export
        late, known = model.num_nodes, model.graph.candidates
        assert not any(known.linked(node, None).size for node in (late, late + 1))
    every, scores = model.recommend([3], 200, **named)
    own = run.schema.nodes("paper") if named else range(model.num_nodes)
    assert set(every[every >= 0].tolist()) == {*own} - {3}
    assert (scores[every < 0] == -np.inf).all()
    if not run.timed:  # nodes that came later were linked to none at the export
        later = model.num_nodes + np.arange(2)
        assert not any(model.graph.candidates.linked(node, None).size for node in later)
    model.graph.gone = np.isin(np.arange(model.num_nodes), best)
    others, _ = model.recommend(sources, 5, **named)
    assert not {*others.ravel()} & {*best.ravel()}
    assert (others >= 0).all()
    model.graph.gone = None
    few = model.prepare(own[5:8], **more)
    assert few.nodes.tolist() == [*own[5:8]]
    assert set(model.recommend([3], 2, **named)[0][0].tolist()) <= {*own[5:8]}


def test_targets_that_do_not_exist_yet_are_not_recommended(tmp_path):
    data = events()
    graph, late = data.graph, np.where(np.arange(60) < 50, 0, AT + 1)
    src, dst = graph.edge_index()
    time = np.asarray(graph.edge_time)
    graph = jgs.Graph.from_edges(src, dst, 60, edge_time=time, node_time=late)
    dataclasses.replace(data, graph=graph).save(tmp_path / "data")
    run = of_data(f"{COMMON} {RUNS['links at moments'][1]} --dataset {tmp_path / 'data'}")
    jgs.export_run(run, tmp_path / "model", with_graph=True, batch_sizes=(1,), at=AT)
    best, _ = jgs.load_exported(tmp_path / "model").recommend([3], 60)
    assert set(best[best >= 0].tolist()) == {*range(50)} - {3}


def test_an_artifact_reads_another_graph(made):
    """Next week's graph has more edges; answers are those of a run on it."""
    run, folder = made("numbers at moments")
    model, old = jgs.load_exported(folder), run.source().graphs[0]
    rng = np.random.default_rng(2)
    src, dst = np.concatenate([old.edge_index(), rng.integers(0, 60, (2, 700))], axis=1)
    time = np.append(np.asarray(old.edge_time), rng.integers(0, AT, 700))
    now = jgs.Graph.from_edges(src, dst, 60, edge_time=time)
    nodes, asked, _ = question(run, model, rng)
    wanted = run.logits(nodes, graph=now, **asked)
    assert not np.allclose(wanted, run.logits(nodes, **asked))
    store = model.store(now, run.source().every_row)
    close(model.logits(nodes, graph=store, **asked), wanted)
    features = run.source().every_row
    opened = jgs.load_exported(folder, graph=now, features=features)
    close(opened.logits(nodes, **asked), wanted)


_SERVE = """
import sys
before = {*sys.modules}
import jgs
model = jgs.load_exported(sys.argv[1])
model.recommend([3, 4], 2)
model.predict([[3, 4]], time="1970-01-01T02:00" if model.spec.time_unit else 7200)
training = {"flax", "optax", "orbax", "jgs.train", "jgs.models", "jgs.sampling"}
assert not training & (sys.modules.keys() - before)
"""


def test_links_are_served_without_training_code(made):
    command = [quick_python(), "-c", _SERVE, str(made("links at moments")[1])]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@cases("name", "classes by type", "links")
def test_programs_are_written_again(name, made, tmp_path, capsys):
    run, folder = made(name)
    model, copy = jgs.load_exported(folder), tmp_path / "model"
    nodes, asked, _ = question(run, model, np.random.default_rng(1))
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    capsys.readouterr()
    assert export(["--again", str(copy)]) == 0
    said, spec = json.loads(capsys.readouterr().out), model.spec
    assert Spec.from_text("said", json.dumps({n: said[n] for n in spec.fields()})) == spec
    now = jgs.load_exported(copy).logits(nodes, **asked)
    np.testing.assert_array_equal(now, model.logits(nodes, **asked))


def test_an_artifact_says_until_when_it_is_read(made, monkeypatch):
    spec = jgs.load_exported(made("links")[1]).spec
    assert spec.exported == datetime.datetime.now(datetime.UTC).date().isoformat()

    class Late(datetime.datetime):
        @classmethod
        def now(cls, zone):
            return cls(2026, 8, 31, tzinfo=zone)

    monkeypatch.setattr(datetime, "datetime", Late)
    assert today() == {"exported": "2026-08-31", "readable_until": "2027-02-28"}


SEAL = {"num_features": 8, "pool_rows": 10}  # of a checkpoint


@cases(
    "make, flags, shape, words",
    (small, "--task links --sampler seal", SEAL, "answers by a sample*seal"),
    (small, "--fanouts -1", None, "must be positive*(-1,)"),
    (typed_moments, "--sampler labor --fanouts *=2 --model rsage", None, "by itself*Labor"),
)
def test_what_is_not_exported(make, flags, shape, words, tmp_path):
    make().save(tmp_path / "data")
    run = of_data(f"{COMMON} {flags} --dataset {tmp_path / 'data'}", shape)
    refused(words, jgs.export_run, run, tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_embeddings_are_a_file_and_no_artifact(made, tmp_path, monkeypatch):
    run = Run(Config(task="embed"), None, {"data": {}}, Alone(), {"rows": np.zeros((4, 3))})
    refused("labels, numbers or links*embed", jgs.export_run, run, tmp_path / "no")
    contexts = made("contexts at moments")[0]
    says = "fanouts must be for a sampler*Context"
    refused(says, jgs.export_run, contexts, tmp_path / "no", fanouts=(2,))
    visits, says = made("contexts by visits")[0], "grow must not read*Leave out live"
    refused(says, jgs.export_run, visits, tmp_path / "no", live=True)
    says, own = "after their moment alone*inclusive=event", ("inclusive=event",)
    monkeypatch.setattr(visits, "config", dataclasses.replace(visits.config, data_options=own))
    refused(says, jgs.export_run, visits, tmp_path / "no", live=True)
    graph = two_relations().graph  # seeds without times need no index, so that may be live
    state = visits.task.served(visits).sampler.init(graph)
    assert needed_state(state, graph, False) == ((), ())


def test_what_does_not_fit_is_refused_in_one_line(made, tmp_path, capsys):
    timed, typed, links, pairs = (
        jgs.load_exported(made(name)[1])
        for name in ("classes at moments", "classes by type", "links by type", "edges")
    )
    run = made("classes by type")[0]
    other = run.source().graphs[0]._with(schema=None)
    visits, folder = made("contexts by visits")
    of = visits.source().every_row
    graph = visits.source().graphs[0]._with(edge_time=None)
    for words, call in {
        "must have times*got none": lambda: timed.predict([1]),
        "must have times*float64": lambda: timed.predict([1], time=np.nan),
        "one for all 2*int64[3]": lambda: timed.predict([1, 2], time=[1, 2, 3]),
        "must be whole numbers*2024": lambda: timed.predict([1], time="2024-05-01"),
        "time must be for*rows at moments": lambda: typed.predict([1], time=3),
        "node ids in [0, 155)": lambda: typed.predict([155]),
        "integers*float64": lambda: typed.predict([1.5]),
        "node ids in [0, 5)": lambda: typed.predict([5], node_type="venue"),
        "one of author, paper, venue*user": lambda: typed.predict([1], node_type="user"),
        "node_type must be for*graph with node types": lambda: jgs.load_exported(
            made("numbers at moments")[1]
        ).predict([1], time=3, node_type="user"),
        "new nodes must be for*rsage": lambda: typed.predict(
            new=jgs.export.NewNodes(np.ones((1, 3)), [], [])
        ),
        "relation must be for*pairs": lambda: typed.predict([1], relation="cites"),
        "recommend must be for*links": lambda: pairs.recommend([1], 2),
        "pairs must be integers [n, 2]": lambda: pairs.predict([1, 2]),
        "pairs must be node ids in [0, 60)": lambda: pairs.predict([[1, 60]]),
        "the relation of the pairs must be named": lambda: links.predict([[1, 2]]),
        "types author and paper*author and author": lambda: links.predict(
            [[1, 2]], relation="writes"
        ),
        "k must be an int": lambda: links.recommend([1], 0, relation="writes"),
        "the graph must have edge_time": lambda: jgs.load_exported(
            folder, graph=graph, features=of
        ),
        "node types and relations": lambda: typed.store(other, run.source().every_row),
        "at must say the moment": lambda: jgs.export_run(
            made("links at moments")[0], tmp_path / "no", with_graph=True
        ),
        "at must be for the candidates": lambda: jgs.export_run(run, tmp_path / "no", at=3),
    }.items():
        refused(words, call)
    command_refused(capsys, "--again alone ... --out", export, ["--again", "a", "--out", "b"])
    assert not (tmp_path / "no").exists()
