"""Links are judged by what the data say, compared with sets of Python that know no jgs."""

import jax
import numpy as np
import pytest
from scipy.stats import chisquare
from small_runs import trainer

import jgs
from jgs import Graph
from jgs.sampling import Links, Neighbors, has_edge
from jgs.sampling.loading.loader import Loader
from jgs.sampling.pairs import has_fact, only_facts
from jgs.train.evaluation.link_metrics import Ends, judged

USERS, ITEMS = 25, 12
train = trainer("""
    --task links --model rgcn --fanouts *=2 *=2 --hidden 4 --batch-size 40 --epochs 1
    --no-progress
""")


def tables(folder):
    """Users view nearly all items, buy some of them at later times, and follow each other."""
    rng = np.random.default_rng(0)
    rows = {"user_views_item": [], "user_buys_item": [], "user_follows_user": []}
    for user in range(USERS):
        items = rng.permutation(ITEMS)
        rows["user_views_item"] += [(f"u{user}", f"i{i}", 10) for i in items[:9]]
        rows["user_buys_item"] += [(f"u{user}", f"i{i}", 40) for i in items[:3]]
        rows["user_buys_item"] += [
            (f"u{user}", f"i{i}", 60 + (7 * user + n) % 30) for n, i in enumerate(items[7:10])
        ]
        others = rng.permutation(USERS)[:4]
        moments = rng.integers(1, 90, 4)
        rows["user_follows_user"] += [
            (f"u{user}", f"u{o}", t) for o, t in zip(others, moments, strict=True) if o != user
        ]
    rows["user_follows_user"] += rows["user_follows_user"][:5]  # parallel edges
    for name, edges in rows.items():
        text = "".join(f"{a},{b},{t}\n" for a, b, t in edges)
        (folder / f"edges_{name}.csv").write_text(f"src,dst,time\n{text}")
    return {name.split("_")[1]: {edge[:2] for edge in edges} for name, edges in rows.items()}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The folder of tables, and the facts: pairs of names by relation."""
    folder = tmp_path_factory.mktemp("facts") / "shop"
    folder.mkdir()
    return folder, tables(folder)


def opened(shop, tmp_path, relation, *flags):
    """A run of one step, its job, the names of nodes, and what it says of the test."""
    said = train(shop[0], tmp_path / "run", "--relation", relation, *flags)["test_accuracy"]
    run = jgs.open_run(tmp_path / "run")
    job = run.config.made("task").open(run.config)
    names = [name.partition(":")[2] for name in run.node_ids.values.tolist()]
    return run, job, names, said


@pytest.mark.parametrize("relation", ["buys", "follows"])
def test_pairs_that_links_are_judged_against(shop, tmp_path, relation):
    """A user whom one follows may follow nobody back: that pair is no link."""
    _, job, names, _ = opened(shop, tmp_path, relation, "--metric auc")
    facts, made = shop[1][relation], job.judged["test"]
    pairs = {(names[a], names[b]) for a, b in zip(made.other_src, made.other_dst, strict=True)}
    assert len(pairs) == made.src.size
    assert not pairs & facts
    kinds = {(a[0], b[0]) for a, b in facts}
    assert {(a[0], b[0]) for a, b in pairs} == kinds
    reverses = {(b, a) for a, b in facts}
    others = shop[1]["views"] if relation == "buys" else reverses
    assert pairs & others  # hard ones, which other relations join


def test_new_partners_are_those_without_an_edge_of_the_relation(shop, tmp_path):
    run, _, names, _ = opened(shop, tmp_path, "follows")
    users = np.array([i for i, name in enumerate(names) if name.startswith("u")])
    for relation, kind in (("follows", "u"), ("buys", "i")):
        best, _ = run.recommend(users, USERS + ITEMS, new_only=True, relation=relation)
        for user, row in zip(users, best, strict=True):
            known = {b for a, b in shop[1][relation] if a == names[user]} | {names[user]}
            wanted = {name for name in names if name[0] == kind} - known
            assert {names[v] for v in row[row >= 0]} == wanted


@pytest.mark.parametrize("facts", [300, 1500])
def test_the_law_of_drawn_pairs(facts):
    """Pairs that are no facts come up alike: drawn, or listed where nearly all are facts."""
    users, items = np.arange(40, dtype=np.int32), np.arange(100, 140, dtype=np.int32)
    chance = np.random.default_rng(0)
    known = np.isin(np.arange(1600), chance.permutation(1600)[:facts])
    links = {"src": users[:30], "dst": items[:30]}
    asked = []

    def joined(src, dst):
        asked.append(src.size)
        return known[src * 40 + dst - 100]

    def drawn(seed):
        made = judged(links, Ends(users, items, False), joined, [seed, 0], "pairs", 1)
        return made.other_src * 40 + made.other_dst - 100

    times = np.zeros(1600, int)
    for seed in range(600):
        pairs = drawn(seed)
        assert np.unique(pairs).size == 30
        times[pairs] += 1
    assert np.array_equal(drawn(599), pairs)
    assert not times[known].any()
    assert chisquare(times[~known]).pvalue > 0.01
    assert len(asked) == 601 if facts == 300 else sum(asked) <= 601 * (1024 + 1600)


EDGES = (np.array([0, 1, 2, 0, 3, 3]), np.array([1, 2, 0, 2, 3, 1]))


def both_ways():
    """An untyped graph whose reader added the reverse of each edge."""
    src, dst = EDGES
    back = src != dst
    added = np.append(np.zeros(src.size, bool), np.ones(back.sum(), bool))
    ends = np.append(src, dst[back]), np.append(dst, src[back])
    return Graph.from_edges(*ends, 4, edge_columns={"reverse": added})


def two_relations():
    src, dst = EDGES
    times = np.arange(6) * 10
    edges = {("n", "a", "n"): (src[:3], dst[:3]), ("n", "b", "n"): (src[3:], dst[3:])}
    time = {("n", "a", "n"): times[:3], ("n", "b", "n"): times[3:]}
    return Graph.from_relations({"n": 4}, edges, edge_time=time, both_ways=True)


def pairs_of(graph):
    return set(zip(*graph.edge_index().tolist(), strict=True))


def test_facts_of_pairs():
    src, dst = (a.ravel() for a in np.meshgrid(range(-1, 5), range(-1, 5)))
    facts = set(zip(*(ends.tolist() for ends in EDGES), strict=True))
    pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
    graph = both_ways()
    for one in (graph, graph.sorted()):
        assert np.asarray(has_fact(one, src, dst)).tolist() == [p in facts for p in pairs]
    either = [p in facts or p[::-1] in facts for p in pairs]
    assert np.asarray(has_edge(graph, src, dst)).tolist() == either
    assert pairs_of(only_facts(graph, None)) == facts
    typed = two_relations()
    for number, (_, name, _) in enumerate(typed.schema.relations):
        some = slice(0, 3) if name.endswith("a") else slice(3, 6)
        own = [end[some].tolist() for end in EDGES]
        own = own[::-1] if name.startswith("rev_") else own
        moments = range(some.start * 10, 60, 10)
        when = dict(zip(zip(*own, strict=True), moments, strict=False))
        found = has_fact(typed, src, dst, np.full(src.size, number))
        assert np.asarray(found).tolist() == [p in when for p in pairs]
        for moment in (0, 20, 40):
            at = np.full(src.size, moment)
            with jax.enable_x64(True):
                found = has_fact(typed, src, dst, np.full(src.size, number), at)
            assert np.asarray(found).tolist() == [when.get(p) == moment for p in pairs]
        assert pairs_of(only_facts(typed, number)) == set(when)


@pytest.mark.parametrize("shared", [False, True])
def test_filtered_negatives_may_be_joined_by_another_relation(shared):
    """Of four nodes all pairs but the facts of the item's relation come up."""
    typed = two_relations()
    number = next(i for i, r in enumerate(typed.schema.relations) if r[1] == "b")
    facts = set(zip(*(end[3:].tolist() for end in EDGES), strict=True))
    stage = Links(8, sides="dst", filtered=True, shared=shared, types=("n", "n"), exclude=False)
    items = {"src": EDGES[0][3:], "dst": EDGES[1][3:], "relation": np.full(3, number)}
    seen = set()
    loader = Loader(typed, items, 3, Neighbors((2,)), before=stage, key=jax.random.key(1))
    for _ in range(6):
        for batch in loader:
            seeds, own = np.asarray(batch.seeds), batch.items
            nodes = seeds[np.minimum(np.asarray(own["negative_rows"]), seeds.size - 1)]
            mask = np.asarray(own["negative_mask"])
            nodes = np.broadcast_to(nodes, mask.shape).reshape(3, -1)
            src = np.broadcast_to(np.asarray(own["src"])[:, None], nodes.shape)
            mask = mask.reshape(3, -1)
            seen |= set(zip(src[mask].tolist(), nodes[mask].tolist(), strict=True))
    every = {(a, b) for a in (0, 3) for b in range(4) if a != b}
    assert seen == every - facts
