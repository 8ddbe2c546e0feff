"""`jgs.graph.Live` beside other threads and processes, and after errors and interruptions."""

import os
import shutil
import threading

import numpy as np
import pytest
from refusals import refused
from test_live import RELATIONS, SIZES, names, small
from test_live_folder import assert_same, begun, changed, facts

from jgs import Graph
from jgs.files import writing
from jgs.graph.live import Change, Live, live, state
from jgs.graph.live.base import bases, write_base_apart


def together(*calls):
    """Starts a thread for each call, and returns them."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def test_changes_that_wait_for_a_reader_see_one_another():
    graph, ids = small(num_nodes=5), []
    with graph.reading():
        threads = together(*[lambda: ids.extend(graph.add_nodes(1))] * 2)
        while graph._turns.waiting < 2:
            pass
        # Readers that come by turns do not keep changes away; one that reads already goes on.
        reader = together(lambda: graph.reading().__enter__())[0]
        with graph.reading():
            reader.join(0.05)
            assert reader.is_alive()
    for thread in (*threads, reader):
        thread.join(10)
    assert sorted(ids) == [3, 4]
    assert graph.num_nodes == 5


def test_who_reads_a_graph_changes_nothing():
    graph = small()
    with graph.reading():
        refused("within live.reading()", graph.append, [0], [1], time=[4])
        refused("within live.reading()", graph.merge)
    graph.append([0], [1], time=[4])


def test_several_threads_merge(tmp_path):
    graph, errors = begun(tmp_path / "live"), []

    def merge():
        try:
            for _ in range(4):
                graph.merge()
        except BaseException as error:
            errors.append(error)

    threads = together(merge, merge)
    for seed in range(12):
        changed(graph, seed)
    for thread in threads:
        thread.join(30)
    assert errors == []
    last = facts(graph)
    graph.close()
    assert_same(facts(Live.open(tmp_path / "live")), last)


def test_a_folder_of_a_graph_that_could_not_be_written_is_begun_again(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(live, "write_base", fails)
        with pytest.raises(OSError, match="No space"):
            begun(tmp_path / "live")
    changed(graph := begun(tmp_path / "live"), 1)
    graph.close()
    (base,) = bases(tmp_path / "live").values()
    shutil.rmtree(base)  # the log has changes: nothing may be begun over them
    refused("a folder must have one log", begun, tmp_path / "live")
    refused("got no base", Live.open, tmp_path / "live")


def test_a_folder_that_cannot_be_opened_is_not_locked(tmp_path):
    begun(tmp_path / "live").close()
    (base,) = bases(tmp_path / "live").values()
    manifest = base / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole[:-30])
    with pytest.raises(ValueError, match=r"manifest.*Restore it from a copy") as _caught:
        Live.open(tmp_path / "live")
    manifest.write_text(whole)
    changed(Live.open(tmp_path / "live"), 1)


def test_a_merge_removes_what_a_killed_one_left(tmp_path):
    changed(graph := begun(tmp_path / "live"), 1)
    left = tmp_path / "live" / ".base-00000000000000000000.x1.new" / "new"
    left.mkdir(parents=True)
    (left / "indices.npy").write_text("secret")
    graph.merge()
    after = ["base-00000000000000000001", "log"]
    assert sorted(os.listdir(tmp_path / "live")) == after
    graph.close()
    left.mkdir(parents=True)  # it was killed after it had written the next base
    shutil.copytree(tmp_path / "live" / after[0], tmp_path / "live" / f"{after[0][:-1]}0")
    (tmp_path / "live" / "log" / f"{0:020}.log").write_text("secret")
    Live.open(tmp_path / "live", writes=False)
    assert len(os.listdir(tmp_path / "live")) == 4
    Live.open(tmp_path / "live").close()
    assert sorted(os.listdir(tmp_path / "live")) == after
    assert sorted(os.listdir(tmp_path / "live" / "log")) == [".lock", f"{1:020}.log"]


def test_a_process_that_writes_a_base_ends_with_that_which_began_it(tmp_path, monkeypatch):
    changed(begun(tmp_path / "live"), 1)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    refused("its status 1", write_base_apart, tmp_path / "live", 1)
    assert list(bases(tmp_path / "live")) == [0]


def _read_only(*_):
    raise OSError(30, "Read-only file system")


def test_a_log_from_before_the_base_and_a_disk_that_is_only_read(tmp_path, monkeypatch):
    folder = tmp_path / "live"
    changed(graph := begun(folder), 1)
    shutil.copytree(folder / "log", tmp_path / "old")
    changed(graph, 2)
    graph.merge()
    graph.close()
    with monkeypatch.context() as patch:
        patch.setattr(writing, "open", _read_only, raising=False)
        refused("must be writable*Read-only", Live.open, folder)
    shutil.rmtree(folder / "log")
    refused("must have a log*Restore it", Live.open, folder)
    shutil.move(tmp_path / "old", folder / "log")
    for writes in (True, False):
        refused("in [2, 1]; got 1.*restore its log", Live.open, folder, writes=writes)


def test_a_reader_that_opens_during_a_merge_has_the_new_base(tmp_path, monkeypatch):
    writer, read = begun(tmp_path / "live"), live.read_base
    changed(writer, 1)

    def late(path):
        if path.name.endswith("0"):
            monkeypatch.setattr(live, "read_base", read)
            writer.merge()
        return read(path)

    monkeypatch.setattr(live, "read_base", late)
    assert_same(facts(Live.open(tmp_path / "live", writes=False)), facts(writer))


def test_a_forked_process_writes_nothing(tmp_path, monkeypatch):
    graph = begun(tmp_path / "live")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        refused("another process, which has forked", changed, graph, 1)
    changed(graph, 1)


def test_a_change_that_was_interrupted_is_never_half_there(tmp_path, monkeypatch):
    graph = begun(tmp_path / "live")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(graph._state.rows, "insert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        changed(graph, 4)
    for read in (lambda: graph.graph, graph.packed, lambda: changed(graph, 1)):
        refused("must be whole*Open its folder again", read)
    graph.close()
    changed(alike := begun(tmp_path / "alike"), 4)
    assert_same(facts(Live.open(tmp_path / "live")), facts(alike))  # it was in the log


def test_rows_are_set_where_a_numpy_array_holds_the_features(monkeypatch):
    monkeypatch.setattr("jgs.graph.live.snapshot._WAIT", 0.02)
    graph = small(features=np.ones((3, 1)), num_nodes=4)
    held = np.asarray(graph.features)
    graph.set_rows([0], [[3]])
    held = held, np.asarray(graph.features)
    graph.add_nodes(1, rows=[[5]])
    assert [array.ravel().tolist() for array in held] == [[1, 1, 1, 0], [3, 1, 1, 0]]
    assert np.array(graph.features).ravel().tolist() == [3, 1, 1, 5]


def test_a_graph_at_a_position_takes_no_later_changes(tmp_path):
    graph = begun(tmp_path / "live")
    changed(graph, 1)
    then = graph.at(0)
    changed(graph, 2)
    refused("must be in [0, 1]", then.advance, 2)  # it has come since
    refused("must be in [2, -1]", graph.advance, 2)  # it would make its own changes again
    then.advance(1)
    refused("must be in [1, 1]", then.advance, 0)
    refused("a closed one", then.follow)
    refused("a closed one", changed, then, 1)
    for wrong in (True, 0.5, "0"):
        refused("a position must be", graph.at, wrong)


def test_numbers_that_several_edges_have_or_none():
    pairs = Graph.from_edges([0, 1], [1, 2], 3)
    both = Live(pairs.symmetrized())
    assert both.delete_edges([0]) == 2  # an edge and its reverse
    assert both.packed().edge_order.tolist() == [1, 1]
    loops = Live(pairs.with_self_loops())
    assert names(loops) == [0, 1, 2, 3, 4]
    assert loops.append([0], [1]).tolist() == [5]
    assert loops.delete_edges([3]) == 1
    assert names(loops) == [0, 1, 2, 4, 5]


def test_edges_are_found_by_number_and_source_however_many_came(monkeypatch):
    monkeypatch.setattr(state, "_LEAST", 40)
    graph, there, rng = small(), [0, 1, 2, 3], np.random.default_rng(0)
    for _ in range(60):  # many small runs, and the index is made again
        there += graph.append(*rng.integers(0, 3, (2, 2)), time=[4, 4]).tolist()
        gone = rng.choice(there, 2)
        assert graph.delete_edges(gone) == len(set(gone))
        there = sorted(set(there) - set(gone.tolist()))
        assert names(graph) == there
    assert graph._state._index[0].size < 100
    assert graph.delete_nodes([0, 1, 2]) == len(there)


def test_complex_columns_are_logged(tmp_path):
    graph = Graph.from_edges([0], [1], 2, edge_columns={"z": np.array([1j], np.complex64)})
    made = Live(graph, folder=tmp_path / "live")
    made.append([1], [0], edge_columns={"z": [2 + 1j]})
    assert made.at(1).packed().edge_columns["z"].tolist() == [2 + 1j, 1j]


def test_what_has_another_form_is_refused_and_changes_nothing(tmp_path):
    graph = begun(tmp_path / "live")
    typed = Live(
        Graph.from_relations(SIZES, {RELATIONS[0]: ([6], [4])}), {"u": np.ones((7, 1), np.int8)}
    )
    x = {"edge_columns": {"x": [[0, 0]]}}
    for wrong, match in (
        (lambda: graph.append([[0], [1, 2]], [0], time=[1], **x), "unequal lengths"),
        (lambda: graph.append([0], [1], time=[1], edge_columns=[[0, 0]]), "must be a dict"),
        (lambda: graph.append([0], [1], time=[1], edge_columns={3: [0]}), "edge column"),
        (lambda: typed.append([0], [1], relation=1.5), "a relation must be one of"),
        (lambda: graph.delete_nodes([0], type="u"), "in a graph with a schema"),
        (lambda: typed.add_nodes(0, type=["u"]), "type must be the name"),
        (lambda: typed.set_rows([0], [[1.5]], type="u"), "int8[1, 1]"),
        (lambda: typed.set_rows([0], [[300]], type="u"), "which is int8; got [300] at"),
        (lambda: typed.set_rows([0, 1], [[1], [2, 3]], type="u"), "unequal lengths"),
        (lambda: graph.apply(("append", {})), "a change must be one of"),
        (lambda: graph.apply(Change("append", {"src": [0]})), "append's fields*missing"),
        (lambda: graph.apply(Change("delete_edges", None)), "delete_edges's fields"),
    ):
        refused(match, wrong)
    assert (graph.position, typed.position) == (0, 0)
