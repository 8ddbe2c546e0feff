#!/usr/bin/env bash
# One would guess: a query of integers gives NumPy integers. DuckDB's fetchnumpy() keeps BIGINT as
# int64, and `sum` of a BIGINT column is an integer in DuckDB.
#
# What happens: `sum` of integers has the type HUGEINT, of 128 bits, and fetchnumpy() makes float64
# of it, without a warning. From 2**53 on different sums, and ids that went through HUGEINT, become
# one number: five accounts are three afterwards. The same relation as an Arrow table has decimals
# of 38 digits, all exact. `sum(x)::BIGINT` stays int64.
#
# Seen on 2026-11-28, DuckDB 2.0.1, NumPy 2.4.6, pyarrow 26.0.1, Python 3.11:
#   BIGINT -> int64, 5 different; HUGEINT -> float64, 3 different; Arrow: decimal128(38, 0), 5
#
# What jgs does: `Graph.from_table(relation)` reads a DuckDB relation by Arrow, and its integers are
# exact; float64 ids from fetchnumpy() are refused.
set -euo pipefail
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1 numpy pyarrow
"$folder/env/bin/python" - <<'PROGRAM'
import duckdb
import numpy
import pyarrow

print("duckdb", duckdb.__version__, "numpy", numpy.__version__, "pyarrow", pyarrow.__version__)
connection = duckdb.connect()
connection.execute("create table transfers (account bigint)")
connection.execute("insert into transfers select 9007199254740992 + i from range(5) t(i)")
relation = connection.sql(
    "select max(account) as account, sum(account) as total, sum(account)::bigint as narrow "
    "from transfers group by transfers.account order by 1"
)
print([str(kind) for kind in relation.types])
found = relation.fetchnumpy()
counts = {name: (str(array.dtype), len(set(array.tolist()))) for name, array in found.items()}
print(counts)
arrow = relation.to_arrow_table()
exact = len(set(arrow.column("total").to_pylist()))
print(arrow.schema.field("total").type, exact)
assert str(relation.types[1]) == "HUGEINT", "changed: sum has another type"
assert counts["account"] == counts["narrow"] == ("int64", 5), "changed: bigint"
assert counts["total"][0] == "float64" and counts["total"][1] < 5, "changed: sums are exact"
assert str(arrow.schema.field("total").type) == "decimal128(38, 0)" and exact == 5, "changed"
PROGRAM
