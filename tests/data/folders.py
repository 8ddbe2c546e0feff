"""Makes small data sets in files, and reads back what was made of them."""

import gzip
import json

import numpy as np
import pandas
import pytest
import scipy.sparse
from cases import cases as cases
from mapped import is_mapped as is_mapped
from refusals import refused as refused


def write(folder, files):
    """Writes files by their endings. None removes a file, and leaves out an array or column."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink(missing_ok=True)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".npy"):
            np.save(path, content)
        elif name.endswith(".npz") and scipy.sparse.issparse(content):
            scipy.sparse.save_npz(path, content)
        elif name.endswith(".npz") and isinstance(content, dict):
            np.savez(path, **_given(content))
        elif name.endswith(".parquet"):
            pandas.DataFrame(_given(content)).to_parquet(path, row_group_size=40)
        else:
            text = _text(name, content).encode()
            path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


def _given(content):
    return {name: part for name, part in content.items() if part is not None}


def _text(name, content):
    if isinstance(content, str):
        return content
    if name.endswith(".json"):
        return json.dumps(content)
    if isinstance(content, dict):
        frame = pandas.DataFrame(_given(content))
        return frame.to_csv(index=False, sep="," if ".csv" in name else "\t")
    rows = (np.atleast_1d(row).tolist() for row in content)
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def made(name, files):
    """A fixture: the folder `name` with these files."""

    @pytest.fixture
    def folder(tmp_path):
        return write(tmp_path / name, files)

    return folder


def rows(graph):
    """The sources of each node's edges, in the graph's order."""
    found = np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    return [row.tolist() for row in found]


def edges(data, *names):
    """A tuple for each edge: its ends by name, then its columns `names`; in ascending order."""
    graph, ids = data.graph, data.node_ids
    ends = graph.edge_index() if ids is None else ids[graph.edge_index()]
    fields = {name: getattr(graph, name) for name in ("edge_time", "edge_weight", "edge_type")}
    columns = [np.asarray((fields | graph.edge_columns)[name]).tolist() for name in names]
    return sorted(zip(*ends.tolist(), *columns, strict=True))


def in_order(graph, column):
    """A column of edges in the order of the table."""
    found = np.empty_like(column)
    found[np.asarray(graph.edge_order)] = column
    return found


def splits(data):
    return [ids.tolist() for ids in (data.train_idx, data.val_idx, data.test_idx)]


def rows_of_edges(src, dst, num_nodes, symmetric):
    """What `rows` are by definition. Symmetric ones have no self-loops and each edge once."""
    pairs = list(zip(src.tolist(), dst.tolist(), strict=True))
    if symmetric:
        pairs = {(u, v) for u, v in pairs if u != v}
        pairs |= {(v, u) for u, v in pairs}
    return [sorted(u for u, v in pairs if v == node) for node in range(num_nodes)]
