"""A run on a database whose facts are edges: their columns are what the model learns from."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from small_runs import trainer

train = trainer("""
    --hidden 16 --batch-size 80 --epochs 5 --lr 2e-2 --no-progress --dropout 0
    --model tgat --fanouts *=4
""")


@pytest.fixture
def shop(tmp_path):
    """Users who bought at a high or a low price, and so they will in the next month."""
    rng, folder = np.random.default_rng(0), tmp_path / "shop"
    folder.mkdir()
    users, first = 240, np.datetime64("2024-01-01", "us")
    kind = rng.integers(0, 2, users)
    user = np.tile(np.arange(users), 7)
    day = np.repeat([5, 35, 65, 95, 125, 155, 185], users)
    age = rng.normal(size=users)  # says nothing, and a user without columns would be known
    pq.write_table(pa.table({"id": range(users), "age": age}), folder / "users.parquet")
    pq.write_table(pa.table({"id": range(3)}), folder / "shops.parquet")
    sales = {
        "user": user,
        "shop": rng.integers(0, 3, user.size),
        "at": first + day.astype("m8[D]"),
    }
    price = kind[user] * 10 + rng.normal(size=user.size)
    pq.write_table(pa.table(sales | {"price": price}), folder / "sales.parquet")
    tables = {"users": {"pkey": "id"}, "shops": {"pkey": "id"}}
    tables["sales"] = {"time_col": "at", "fkeys": {"user": "users", "shop": "shops"}}
    said = {"val_timestamp": "2024-04-20", "test_timestamp": "2024-05-20", "tables": tables}
    (folder / "manifest.yaml").write_text(yaml.safe_dump(said))
    (folder / "high.sql").write_text(
        "SELECT s.user, t.timestamp, avg(s.price) > 5 FROM timestamps t JOIN sales s "
        "ON s.at > t.timestamp AND s.at <= t.timestamp + INTERVAL '{timedelta}' GROUP BY ALL"
    )
    return folder


@pytest.mark.parametrize(("read", "least", "most"), [("auto", 0.9, 1), ("none", 0, 0.7)])
def test_the_columns_of_facts_are_learned_from(shop, tmp_path, read, least, most, capsys):
    asked = f"task_sql={shop}/high.sql entity=users horizon=30days facts=edges"
    found = train(shop, tmp_path / "run", "--data-options", asked, "--edge-features", read)
    assert least < found["test_accuracy"] <= most
    assert ("tgat reads: sales_price" in capsys.readouterr().err) == (read == "auto")
