"""One process of `benchmarks.words` and `.embeddings_gensim`: gensim's Word2Vec on given walks.

The JSON argument has `walks`, a file of int32 `[n, T]`, `num_nodes` after a walk's end;
`vectors`, the file to write, float32 `[N, D]`; `num_nodes`; `width`, `window`, `negatives`,
`epochs`, `workers` and `seed`. It runs in gensim's environment.
"""

import json
import sys
import time

import numpy as np
from gensim.models import Word2Vec


def main() -> None:
    task = json.loads(sys.argv[1])
    walks = np.load(task["walks"])
    order = np.random.default_rng(task["seed"]).permutation(len(walks))
    num_nodes = task["num_nodes"]
    sentences = [[str(v) for v in walk if v < num_nodes] for walk in walks[order].tolist()]
    model = Word2Vec(
        vector_size=task["width"],
        window=task["window"],
        negative=task["negatives"],
        workers=task["workers"],
        seed=task["seed"],
        min_count=0,
        sg=1,
        hs=0,
        sample=0,
    )
    model.build_vocab(sentences)
    began = time.perf_counter()
    model.train(sentences, total_examples=len(sentences), epochs=task["epochs"])
    seconds = time.perf_counter() - began
    vectors = np.zeros((num_nodes, task["width"]), np.float32)
    for node in map(int, model.wv.index_to_key):
        vectors[node] = model.wv[str(node)]
    np.save(task["vectors"], vectors)
    print(json.dumps({"words": walks.size * task["epochs"] / seconds}))


if __name__ == "__main__":
    main()
