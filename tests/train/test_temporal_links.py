"""`--task links --temporal`: what a leak would tell, what the past tells; ranks, and resume."""

import numpy as np
import pytest
from refusals import command_refused as refused
from small_data import events, thirds
from small_runs import result, started, trainer, words

import jgs
from jgs import Graph
from jgs.data import Dataset
from jgs.predict.__main__ import main as predict
from jgs.train.config import Config
from jgs.train.evaluation import ranking
from jgs.train.tasks.task import open_job

train = trainer("""
    --task links --temporal --hidden 16 --batch-size 60 --epochs 12 --lr 1e-2 --latest
    --no-progress --learned 0 --dropout 0 --eval-negatives 10 --sides dst
""")


@pytest.fixture(scope="module")
def learned(saved, tmp_path_factory):
    """The folder of a run on the events that the past tells."""
    run_dir = tmp_path_factory.mktemp("events") / "run"
    train(saved(events), run_dir, "--decoder bilinear --fanouts 2")
    return run_dir


def test_the_past_is_learned_and_the_future_is_not(learned, saved, tmp_path):
    """By chance a link is the best of 11 once in 11 times, and its MRR is 0.27."""
    assert result(learned)["test_accuracy"] > 0.5
    answered, flags = saved(events, True), "--decoder bilinear --fanouts 2"
    assert 0.2 < train(answered, tmp_path / "run", flags)["test_accuracy"] < 0.36


def test_any_number_of_ranks_judges_the_same(parted):
    """One model's scores of links and negatives, in the order of the links."""
    of, found = {"partition": str(parted(4, events)), "batch_size": 64, "hidden": 8}, []
    of |= {"task": "links", "temporal": True, "learned": 3, "fanouts": (4,)}
    of |= {"eval_negatives": 5, "eval_negatives_by": "inductive"}
    for ranks in (1, 2):
        job, params = started(ranks, **of)
        found.append((job.judged["val"].other_dst, *job.scores(params, "val")))
        job.close()
    (one, *scores), (two, *others) = found
    np.testing.assert_array_equal(one, two)
    assert len(np.unique(scores[0])) > 20
    for mine, theirs in zip(scores, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_an_opened_run_gives_the_scores_that_were_judged(learned):
    run = jgs.open_run(learned)
    job = open_job(run.config)
    negatives, links = job.judged["test"].other_dst, job.targets.test
    pairs = np.stack([np.repeat(links["src"], 10), negatives.ravel()], axis=1)
    ends = np.stack([links["src"], links["dst"]], axis=1)
    found = ranking.ranks(
        run.scores(ends, time=links["time"]),
        run.scores(pairs, time=np.repeat(links["time"], 10)).reshape(-1, 10),
        negatives >= 0,
    )
    judged = result(learned)["test_accuracy"]
    assert ranking.mrr(found) == pytest.approx(judged, abs=1e-4)


@pytest.mark.parametrize("kind", ["historical", "inductive"])
def test_each_relation_has_negatives_of_its_own(kind, tmp_path):
    """Of its target's type and there before the link; no links of now; of its own past."""
    rng = np.random.default_rng(0)
    sizes = {"user": 6, "item": 20, "shop": 10}
    edges = {
        ("user", name, other): (rng.integers(0, 6, 300), rng.integers(0, sizes[other], 300))
        for name, other in (("buys", "item"), ("visits", "shop"))
    }
    times = {relation: rng.integers(0, 90, 300) for relation in edges}
    born = {"user": np.zeros(6), "item": 5 * np.arange(20), "shop": np.zeros(10)}
    born = {name: each.astype(np.int64) for name, each in born.items()}
    graph = Graph.from_relations(sizes, edges, edge_time=times, node_time=born)
    born, labels = np.concatenate(list(born.values())), np.arange(36) % 2
    features = np.ones((36, 1), np.float32)
    made = Dataset.from_arrays(graph, features, labels, thirds(36), name="typed")
    made.save(tmp_path / "data")
    config = Config(
        task="links", temporal=True, dataset=str(tmp_path / "data"), batch_size=50,
        fanouts=(2,), progress=False, eval_negatives=4, eval_negatives_by=kind,
    )  # fmt: skip
    job = open_job(config)
    src, dst = graph.edge_index()
    every = np.stack([src, dst, graph.edge_type, graph.edge_time], axis=1)
    begin, of_past = job.targets.val["time"].min(), 0
    for split in ("val", "test"):
        links = job.targets._asdict()[split]
        for i, row in enumerate(job.judged[split].other_dst.tolist()):
            source, relation, time = (links[name][i] for name in ("src", "relation", "time"))
            (own,) = graph.schema.ranges(graph.schema.relations[relation][2])
            mine = every[(every[:, 0] == source) & (every[:, 2] == relation)]
            now = {*mine[mine[:, 3] == time, 1].tolist()}
            first: dict[int, int] = {}
            for _, target, _, when in mine.tolist():
                first[target] = min(when, first.get(target, when))
            low = begin if kind == "inductive" else -1
            past = {node for node, when in first.items() if low <= when < time} - now
            real = [node for node in row if node >= 0]
            assert len({*real}) == len(real) > 0
            assert {*real} <= {*own} - now
            assert (born[real] < time).all()
            assert {*real[: len(past)]} <= past
            of_past += len(past) > 0
    assert of_past > 5


def test_times_that_were_dates_are_asked_for_as_dates(tmp_path, capsys):
    """In `--at`, in a file of pairs with a byte order mark, and in Python."""
    table, pairs, out = (tmp_path / name for name in ("messages.csv", "pairs.txt", "out.csv"))
    rows = [
        f"{i % 7},{i * 3 % 8},2024-03-{1 + i // 10:02}T{i % 24:02}:00:00" for i in range(200)
    ]
    table.write_text("\n".join(["src,dst,time", *rows]))
    train(table, tmp_path / "run", "--epochs 1 --fanouts 2 --learned 4")
    argv = words("--run-dir", tmp_path / "run", "--pairs", pairs, "--out", out)
    seconds, found = np.datetime64("2024-03-15", "s").astype(int), []
    for at, text in (
        (["--at", "2024-03-15"], "1 2\n3 4\n"),
        (["--at", str(seconds)], "1\t2\n3\t4\n"),
        ([], f"1 2 {seconds}\n3 4 {seconds}\n"),
        ([], "1 2 2024-03-15\n3 4 2024-03-15T00:00:00\n"),
    ):
        pairs.write_text(text, encoding="utf-8-sig")
        assert predict([*argv, *at]) == 0
        found.append([line.split(",")[-1] for line in out.read_text().splitlines()])
    assert found[1:] == found[:1] * 3
    run = jgs.open_run(tmp_path / "run")
    told = run.predict([[1, 2], [3, 4]], time=np.datetime64("2024-03-15T00:00"))
    np.testing.assert_allclose(told, np.array(found[0][1:], float), rtol=1e-5)
    pairs.write_text("1 2\n")
    says = "a whole number or a date; got today at row 0"
    refused(capsys, says, predict, [*argv, "--at", "today"])
    pairs.write_text("1 2 2024-03-15\n3 x 7\n")
    refused(capsys, "got '3 x 7' in line 2", predict, argv)


def test_dates_of_a_run_whose_times_are_numbers_are_refused(learned):
    with pytest.raises(jgs.InputError, match=r"must be whole numbers.*got 2024-03-15"):
        jgs.open_run(learned).scores([[1, 2]], time="2024-03-15")
