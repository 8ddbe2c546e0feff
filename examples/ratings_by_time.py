"""What will a user give a film? Ratings by time in your own loop: TGAT reads the latest ratings
of the user and of the film, how long ago they were and what they were.
Each rating is predicted at its own time, from ratings before it alone; the latest are the test.

    python examples/ratings_by_time.py [EPOCHS]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jgs
from jgs.models import TGAT, MLPDecoder, PairModel
from jgs.sampling import Links, Loader, Neighbors

USERS, FILMS, RATINGS, DAY = 200, 60, 8000, 86_400


def ratings():
    """Films are good or bad. A user is generous for some months, and then strict."""
    rng = np.random.default_rng(0)
    user, film = rng.integers(0, USERS, RATINGS), rng.integers(0, FILMS, RATINGS)
    time = np.sort(rng.integers(0, 365 * DAY, RATINGS))
    good, generous = rng.integers(-1, 2, FILMS), rng.integers(-1, 2, (USERS, 5))
    stars = 3 + good[film] + generous[user, time // (73 * DAY)] + rng.integers(-1, 2, RATINGS)
    return {"src": user, "dst": film + USERS, "time": time, "stars": stars}


@nnx.jit
def train_step(model, optimizer, batch, x):
    def loss_of(model):
        scores = model(batch, x)  # of each user and film: how far from 3 stars
        error = scores.positive - (batch.items["stars"] - 3)
        return jnp.sum(jnp.where(scores.mask, error**2, 0)) / jnp.sum(scores.mask)

    optimizer.update(model, nnx.grad(loss_of)(model))


@nnx.jit
def predict(model, batch, x):
    return 3 + model(batch, x).positive


def main(epochs: int = 6) -> float:
    """Returns the RMSE of the test's ratings."""
    events, num_nodes = ratings(), USERS + FILMS
    ends = np.stack([events["src"], events["dst"]])
    src, dst = np.concatenate([ends, ends[::-1]], axis=1)  # a rating is an edge both ways
    given = {"stars": np.tile((events["stars"] - 3).astype(np.float32), 2)}
    graph = jgs.Graph.from_edges(
        src, dst, num_nodes, edge_time=np.tile(events["time"], 2), edge_columns=given
    )
    cut, rngs, key = RATINGS * 9 // 10, nnx.Rngs(0), jax.random.key(0)
    train, test = ({k: v[part] for k, v in events.items()} for part in np.s_[:cut, cut:])
    own = {"time_unit": 30.0 * DAY, "edge_columns": ("stars",), "edge_width": 1}
    encoder = TGAT(2, 32, 32, num_layers=2, dropout=0.0, **own, rngs=rngs)
    model = PairModel(encoder, MLPDecoder(32, combine="concat", rngs=rngs), rngs=rngs)
    features = jnp.eye(2)[(np.arange(num_nodes) >= USERS).astype(int)]  # a user, or a film
    optimizer = nnx.Optimizer(model, optax.adam(5e-3), wrt=nnx.Param)
    sampler = Neighbors((10, 5), latest=True, edges=encoder.edge_columns)
    options = {"sampler": sampler, "before": Links(), "key": key}
    with Loader(graph, train, 200, by_time=1000, **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                train_step(model, optimizer, batch, batch.gather(features))
    with Loader(graph, test, 200, shuffle=False, **options) as loader:
        rows = ((b, b.gather(features)) for b in loader)
        told = np.concatenate([np.asarray(predict(model, *row)) for row in rows])
    rmse = float(np.sqrt(np.mean((told[: test["stars"].size] - test["stars"]) ** 2)))
    print(f"RMSE {rmse:.3f}; of the mean {test['stars'].std():.3f}")
    return rmse


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
