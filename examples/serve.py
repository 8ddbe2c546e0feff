"""Answers over HTTP of what `jgs export --with-graph` wrote, with Starlette and uvicorn.

    python examples/serve.py MODEL [PORT]

    curl localhost:8000/predict -d '{"nodes": [7, 42]}'
    curl localhost:8000/predict -d '{"features": [[0.5, 1]], "edges": [[7, 42], [N, N]]}'

The second asks for a new node: its id is N, the number of nodes that GET / says, and it reads
nodes 7 and 42. A malformed request gets the status 400 and a line that says why.
"""

import json
import sys

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

import jgs

LIMIT = 1 << 20  # bytes of a request, and a bound of its nodes
if len(sys.argv) < 2:
    sys.exit(__doc__)
jgs.keep_freed_memory()
model = jgs.load_exported(sys.argv[1])


def answer(nodes=None, features=None, edges=None) -> dict:
    if (new := features) is not None:
        src, dst = np.array(edges or [[], []]).reshape(2, -1)
        new = jgs.export.NewNodes(np.array(features, np.float32), src, dst, raw=True)
    elif nodes is None or edges is not None:
        raise jgs.InputError("a request must have nodes or features", "neither", "Give one.")
    found = model.predict(nodes, new=new)
    if model.class_names is not None and isinstance(found, tuple) and not model.spec.multilabel:
        found = found._replace(prediction=model.class_names[found.prediction])
    fields = found._asdict() if isinstance(found, tuple) else {"value": found}
    return {name: array.tolist() for name, array in fields.items()}


async def predict(request) -> JSONResponse:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LIMIT:
            return JSONResponse({"error": f"more than {LIMIT} bytes"}, 413)
    try:
        return JSONResponse(await run_in_threadpool(answer, **json.loads(body)))
    except (ValueError, TypeError, RecursionError) as error:  # InputError is a ValueError
        return JSONResponse({"error": " ".join(str(error).split())}, 400)


said = JSONResponse({"num_nodes": model.num_nodes, **vars(model.spec)})
app = Starlette(routes=[Route("/", said), Route("/predict", predict, methods=["POST"])])
if __name__ == "__main__":
    uvicorn.run(app, port=int((sys.argv[2:] or ["8000"])[0]), log_level="warning")
