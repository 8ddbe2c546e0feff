#!/usr/bin/env bash
# One would guess: an attribute that GraphML declares as `long`, and an `id` of GML, are read as integers,
# as by NetworkX and rustworkx. Two users stay two users.
#
# What happens: igraph has one type of numbers, the float64. Integers from 2**53 on are rounded without a
# word: two accounts with ids in a row, as those of large services are, become one, and times in
# nanoseconds lose up to 128 of them. Nodes of GML whose ids round to one number are refused as duplicates;
# others are read, with names that are in no file.
#
# Seen on 2026-12-01, igraph 1.0.0, NetworkX 3.6.1, rustworkx 0.18.1, Python 3.11:
#   igraph: users 1234567890123456768 1234567890123456768, time 1700000000123456768
#   networkx: users 1234567890123456789 1234567890123456790, time 1700000000123456789
#   rustworkx: users 1234567890123456789 1234567890123456790, time 1700000000123456789
#   ids of GML by igraph: 9007199254740992 9007199254740996, in the file 9007199254740993 9007199254740995
#
# What jgs does: it reads both formats by igraph, and refuses a file whose ids or numbers of edges, or
# whose labels, may be such integers, with the advice to write them as text or as a table
# (jgs/data/formats/igraph_files.py).
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet igraph==1.0.0 networkx==3.6.1 rustworkx==0.18.1
cd "$folder"
env/bin/python - <<'PROGRAM'
import pathlib

import igraph
import networkx
import rustworkx

print("igraph", igraph.__version__, "networkx", networkx.__version__, end=" ")
print("rustworkx", rustworkx.__version__)
USERS, TIME = (1234567890123456789, 1234567890123456790), 1700000000123456789
IDS = 9007199254740993, 9007199254740995
pathlib.Path("calls.graphml").write_text(f"""<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="u" for="node" attr.name="user" attr.type="long"/>
  <key id="t" for="edge" attr.name="time" attr.type="long"/>
  <graph edgedefault="directed">
    <node id="a"><data key="u">{USERS[0]}</data></node>
    <node id="b"><data key="u">{USERS[1]}</data></node>
    <edge source="a" target="b"><data key="t">{TIME}</data></edge>
  </graph>
</graphml>
""")
nodes = " ".join(f"node [ id {node} ]" for node in IDS)
ends = f"edge [ source {IDS[0]} target {IDS[1]} ]"
pathlib.Path("calls.gml").write_text(f"graph [ directed 1 {nodes} {ends} ]\n")


def by_igraph(path):
    graph = igraph.Graph.Read_GraphML(path)
    return graph.vs["user"], graph.es["time"]


def by_networkx(path):
    graph = networkx.read_graphml(path)
    return [graph.nodes[node]["user"] for node in "ab"], [graph.edges["a", "b"]["time"]]


def by_rustworkx(path):
    (graph,) = rustworkx.read_graphml(path)
    return [node["user"] for node in graph.nodes()], [edge["time"] for edge in graph.edges()]


found = {}
for name, read in (("igraph", by_igraph), ("networkx", by_networkx), ("rustworkx", by_rustworkx)):
    users, times = (tuple(map(int, values)) for values in read("calls.graphml"))
    found[name] = users, times[0]
    print(f"{name}: users", *users, f"time {times[0]}")
ids = tuple(map(int, igraph.Graph.Read_GML("calls.gml").vs["id"]))
print("ids of GML by igraph:", *ids, "in the file", *IDS)
assert found["networkx"] == found["rustworkx"] == (USERS, TIME)
assert found["igraph"][0][0] == found["igraph"][0][1] and found["igraph"][1] != TIME, "changed"
assert ids != IDS, "changed: ids of GML"
PROGRAM
