"""A dense weighted graph with labels: words of a text, and how often they stand together.

    PYTHON word_graph.py OUT.npz

It stands for POS of node2vec (Grover and Leskovec 2016, section 4.1), which cannot be fetched
here: 4,777 nodes, 184,812 weighted edges and 40 labels. The text is the docstrings of Python's
standard library. Nodes are the 4,000 words that are most frequent in five eighths of its
sentences. Two words have an edge if they stand one or two places apart, weighted by how often.
A word's labels are the Penn Treebank tags that TextBlob's tagger gives to a fiftieth of its
places or more, if five words have the tag. It runs in gensim's environment.
"""

import ast
import re
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
from textblob.en import tag

NUM_WORDS, REACH, LEAST_SHARE, LEAST_WORDS = 4000, 2, 0.02, 5
LEFT_OUT = {"site-packages", "test", "tests", "lib2to3"}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sentences() -> list[str]:
    """The sentences of four words and more of all docstrings, in the order of the files."""
    root, found = Path(sysconfig.get_paths()["stdlib"]), []
    for path in sorted(root.rglob("*.py")):
        if LEFT_OUT & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        nodes = (node for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
        texts = [text for node in nodes if (text := ast.get_docstring(node))]
        for part in re.split(r"\n\s*\n", re.sub(r"[`*]", "", "\n\n".join(texts))):
            if ">>>" not in part:
                found += re.split(r"(?<=[.!?:;])\s+", re.sub(r"\s+", " ", part))
    words = [re.findall(r"[A-Za-z]+(?:'[a-z]+)?|[0-9]+|[.,;:!?()]", one) for one in found]
    return [" ".join(one) for one in words if sum(word[0].isalpha() for word in one) >= 4]


def main() -> None:
    tagged = [tag(text, tokenize=False) for i, text in enumerate(sentences()) if i % 8 < 5]
    texts = [
        [(word.lower(), name) for word, name in one if word[0].isalnum()] for one in tagged
    ]
    count = Counter(word for text in texts for word, _ in text)
    number = {word: i for i, (word, _) in enumerate(count.most_common(NUM_WORDS))}
    pairs: Counter = Counter()
    tags: Counter = Counter()
    for text in texts:
        ids = [number.get(word) for word, _ in text]
        tags.update((i, name) for i, (_, name) in zip(ids, text, strict=True) if i is not None)
        for apart in range(1, REACH + 1):
            for one, other in zip(ids, ids[apart:], strict=False):
                if one is not None and other is not None and one != other:
                    pairs.update([(one, other), (other, one)])
    names = sorted({name for _, name in tags})
    labels = np.zeros((NUM_WORDS, len(names)), np.uint8)
    times = np.array([times for _, times in count.most_common(NUM_WORDS)])
    for (word, name), seen in tags.items():
        labels[word, names.index(name)] = seen >= LEAST_SHARE * times[word]
    np.savez(
        sys.argv[1],
        edge_index=np.array(list(pairs), np.int32).T,
        edge_weight=np.array(list(pairs.values()), np.float32),
        num_nodes=NUM_WORDS,
        labels=labels[:, labels.sum(axis=0) >= LEAST_WORDS],
    )


if __name__ == "__main__":
    main()
