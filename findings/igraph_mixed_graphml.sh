#!/usr/bin/env bash
# One would guess: GraphML lets each edge say `directed="true"` or `"false"`, whatever the graph's
# default is, so a reader that has no mixed graphs refuses such a file or warns, as NetworkX does.
#
# What happens: python-igraph reads it without a word. The attribute of an edge is ignored and all
# edges follow `edgedefault`. A road network whose one-way streets are marked so loses every
# direction, and in a directed file two-way streets get one direction.
#
# Seen on 2026-11-28, igraph 1.0.0, NetworkX 3.6.1, Python 3.11:
#   undirected with one directed edge: directed False, edges [(0, 1), (1, 2)]
#   directed with one undirected edge: directed True, edges [(0, 1), (2, 1)]
#   NetworkX: "directed=true edge found in undirected graph."
#
# What jgs does: `jgs.data.formats` reads GraphML by igraph, looks for edges that differ from the
# default first, and refuses the file in one line.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet igraph==1.0.0 networkx==3.6.1
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import pathlib

import igraph
import networkx

GRAPH = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <graph id="streets" edgedefault="{}">
    <node id="a"/><node id="b"/><node id="c"/>
    <edge source="a" target="b"/>
    <edge source="c" target="b" directed="{}"/>
  </graph>
</graphml>
"""
print("igraph", igraph.__version__, "networkx", networkx.__version__)
found = {}
for default, other in (("undirected", "true"), ("directed", "false")):
    pathlib.Path("streets.graphml").write_text(GRAPH.format(default, other))
    graph = igraph.Graph.Read_GraphML("streets.graphml")
    found[default] = graph.is_directed(), len(graph.get_edgelist())
    try:
        networkx.read_graphml("streets.graphml")
        said = "read"
    except networkx.NetworkXError as error:
        said = str(error)
    print(default, graph.is_directed(), graph.get_edgelist(), "| networkx:", said)
    assert said != "read", "changed: networkx reads mixed graphs"
assert found == {"undirected": (False, 2), "directed": (True, 2)}, "changed: edges are told apart"
PROGRAM
