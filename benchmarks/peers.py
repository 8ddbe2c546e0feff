"""The peers' environment: DGL 2.1 with GraphBolt, beside the torch that it was built for.

The versions are pinned, because no other torch loads DGL's libraries. Of torch's CUDA
packages, only those that `import torch` loads are installed, which takes 4.5 GB of disk
instead of 5.5. gensim, scikit-learn, Kumo Engine, PyG, relational-transformer, GraphSAINT and
the build of TGL's sampler have environments of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Without their dependencies: torchdata and DGL would bring another torch.
WITHOUT_DEPENDENCIES = (
    "torch==2.2.1",
    "dgl==2.1.0",
    "torchdata==0.7.1",
    "nvidia-cuda-runtime-cu12==12.1.105",
    "nvidia-cuda-cupti-cu12==12.1.105",
    "nvidia-cudnn-cu12==8.9.2.26",
    "nvidia-cublas-cu12==12.1.3.1",
    "nvidia-cufft-cu12==11.0.2.54",
    "nvidia-curand-cu12==10.3.2.106",
    "nvidia-cusparse-cu12==12.1.0.106",
    "nvidia-nvjitlink-cu12==12.1.105",
    "nvidia-nvtx-cu12==12.1.105",
    "nvidia-nccl-cu12==2.19.3",
)
WITH_DEPENDENCIES = (
    "numpy==1.26.4",
    "setuptools<71",
    "scipy==1.11.4",
    "networkx==3.2.1",
    "pandas==2.2.3",
    "pydantic==2.9.2",
    "pyyaml==6.0.2",
    *("psutil", "requests", "tqdm"),  # for DGL
    *("filelock", "typing-extensions", "sympy", "jinja2", "fsspec"),  # for torch
)
KUMO = ("kumo-engine==1.0.0",)
# torch-sparse and torch-cluster are compiled, which takes some minutes.
PYG_TORCH = ("torch==2.13.0", "numpy==2.4.6", "scipy==1.17.1", "setuptools<80", "wheel")
PYG_COMPILED = ("torch-scatter==2.1.2", "torch-sparse==0.6.18", "torch-cluster==1.6.3")
PYG = "torch_geometric==2.8.1"
RUSTLER = ("relational-transformer==1.10.0",)
GRAPHSAINT = ("cython==0.29.37", "numpy==1.26.4", "setuptools<71")
GRAPHSAINT_SOURCE = "https://github.com/GraphSAINT/GraphSAINT"
_GRAPHSAINT_COMMIT = "c9b1e340d7b951465ac4a9251eef93832e68b003"
# GraphSAINT's samplers cannot draw nodes alone. This goes before their method par_sample.
_SAMPLE_NODES = """
    def sample_nodes(self):
        cdef int p = 0
        with nogil, parallel(num_threads=self.num_proc):
            for p in prange(self.num_proc,schedule='dynamic'):
                self.sample(p)
        self.node_sampled.swap(vector[vector[int]](self.num_proc*self.num_sample_per_proc))

"""
TGL = ("pybind11==2.13.6", "setuptools<71")
TGL_SOURCE = "https://github.com/amazon-science/tgl"
_TGL_COMMIT = "241b336b7e54186f71273d8f2e0d0f08ca52389e"
# TGL's layers run on a GPU alone, and with a DGL that is older than 1.0.
_TGL_LAYERS = (("cuda:0", "cpu"), ("copy_src", "copy_u"), ("copy_edge", "copy_e"))
# Its second layer reads a pointer that was not set, except in uniform draws at the times of
# edges. This sets it.
_TGL_POINTER = (
    "            double t_ptr_s = omp_get_wtime();\n            if (use_ptr)",
    """            else
            {
                root_nodes = &(ret[ret.size() - 1 - num_history].nodes);
                root_ts = &(ret[ret.size() - 1 - num_history].ts);
            }
            double t_ptr_s = omp_get_wtime();
            if (use_ptr)""",
)
# Its constructor takes lists, which would take minutes. This goes before it.
_TGL_FROM_ARRAYS = """
        .def(py::init([](py::array_t<int> indptr, py::array_t<int> indices,
                         py::array_t<int> eid, py::array_t<float> ts,
                         int threads, int workers, int layers, std::vector<int> fanouts,
                         bool recent, bool prop_time, int history, float window) {
            auto vec = [](auto &a) { return std::vector(a.data(), a.data() + a.size()); };
            auto p = vec(indptr), i = vec(indices), e = vec(eid);
            auto t = vec(ts);
            return new ParallelSampler(p, i, e, t, threads, workers, layers, fanouts, recent,
                                       prop_time, history, window);
        }))"""
RECBOLE = "recbole==1.2.1"
GENSIM = ("gensim==4.4.0", "numpy==2.3.5", "scipy==1.16.3", "textblob==0.20.1")
SKLEARN = ("scikit-learn==1.9.1", "numpy==2.3.5", "scipy==1.16.3")
_MAKE_VENV = Path(__file__).parents[1] / "tools" / "make_venv.py"


class Missing(Exception):
    """The peers cannot be installed here; the message says why."""


def python(cache: Path) -> Path:
    """The interpreter of the peers' environment in `cache`, made when missing or outdated.

    Raises `Missing`.
    """
    steps = [["--no-deps", *WITHOUT_DEPENDENCIES], [*WITH_DEPENDENCIES]]
    return _environment(cache / "peers", steps, "import dgl.graphbolt")


def gensim_python(cache: Path) -> Path:
    """The interpreter of gensim's own environment; otherwise as `python`."""
    return _environment(cache / "gensim", [[*GENSIM]], "import gensim")


def sklearn_python(cache: Path) -> Path:
    """The interpreter of scikit-learn's own environment; otherwise as `python`."""
    return _environment(cache / "sklearn", [[*SKLEARN]], "import sklearn")


def kumo_python(cache: Path) -> Path:
    """The interpreter of Kumo Engine's own environment, without torch; otherwise as
    `python`."""
    steps = [["--no-deps", *KUMO], ["numpy", "pyarrow"]]
    return _environment(cache / "kumo", steps, "import diskgraph")


def pyg_python(cache: Path) -> Path:
    """The interpreter of PyG's own environment, with torch-sparse and torch-cluster; otherwise
    as `python`."""
    steps = [[*PYG_TORCH], ["--no-build-isolation", *PYG_COMPILED], [PYG]]
    return _environment(cache / "pyg", steps, "import torch_geometric, torch_cluster")


def rustler_python(cache: Path) -> Path:
    """The interpreter of an environment with `rt.rustler` of relational-transformer, without
    torch; otherwise as `python`."""
    steps = [["--no-deps", *RUSTLER], ["numpy==2.4.6", "ml_dtypes==0.6.0", "pyarrow==26.0.1"]]
    return _environment(cache / "rustler", steps, "import ml_dtypes, pyarrow")


def graphsaint(cache: Path, source: str) -> tuple[Path, Path]:
    """The interpreter of GraphSAINT's own environment, and the folder of its Cython samplers.

    `source` is what git clones. Raises `Missing`.
    """
    interpreter = _environment(cache / "graphsaint", [[*GRAPHSAINT]], "import Cython, numpy")
    folder = cache / "graphsaint" / "source"
    if not (folder / "built").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _run(["git", "clone", "--quiet", source, folder])
        _run(["git", "-C", folder, "checkout", "--quiet", _GRAPHSAINT_COMMIT])
        sampler = folder / "graphsaint" / "cython_sampler.pyx"
        before = (
            "    @cython.boundscheck(False)\n    @cython.wraparound(False)\n    def par_sample"
        )
        sampler.write_text(sampler.read_text().replace(before, _SAMPLE_NODES + before, 1))
        _run([interpreter, "graphsaint/setup.py", "build_ext", "--inplace"], folder)
        (folder / "built").touch()
    return interpreter, folder


def tgl(cache: Path, source: str) -> Path:
    """The folder of TGL's sources with its C++ sampler, `sampler_core`, built by its `setup.py`
    for the peers' environment, and its layers, which run on a CPU.

    `source` is what git clones. Raises `Missing`.
    """
    interpreter = _environment(cache / "tgl", [[*TGL]], "import pybind11, setuptools")
    folder = cache / "tgl" / "source"
    if not (folder / "built").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _run(["git", "clone", "--quiet", "--no-checkout", source, folder])
        files = ("sampler_core.cpp", "setup.py", "layers.py")
        _run(["git", "-C", folder, "checkout", "--quiet", _TGL_COMMIT, "--", *files])
        named = 'py::class_<ParallelSampler>(m, "ParallelSampler")'
        _edit(folder / "sampler_core.cpp", _TGL_POINTER, (named, named + _TGL_FROM_ARRAYS))
        _edit(folder / "layers.py", *_TGL_LAYERS)
        _run([interpreter, "setup.py", "build_ext", "--inplace"], folder)
        (folder / "built").touch()
    return folder


def recbole(cache: Path) -> Path:
    """RecBole's wheel, which has ml-100k. Raises `Missing`."""
    folder = cache / "recbole"
    if not (found := list(folder.glob("*.whl"))):
        command = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, RECBOLE]
        _run([python(cache), *command])
        found = list(folder.glob("*.whl"))
    return found[0]


def _edit(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in changes:
        text = text.replace(old, new)
    path.write_text(text)


def _environment(folder: Path, steps: list[list[str]], check: str) -> Path:
    interpreter, done = folder / "bin" / "python", folder / "installed.json"
    named = [[each for each in step if not each.startswith("--")] for step in steps]
    wanted = json.dumps(named)
    if not (done.is_file() and done.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([_python311(), _MAKE_VENV, folder])
        for step in steps:
            _run([interpreter, "-m", "pip", "install", "--quiet", *step])
        _run([interpreter, "-c", check])
        done.write_text(wanted)
    return interpreter


def _python311() -> str:
    if sys.version_info[:2] == (3, 11):
        return sys.executable
    if found := shutil.which("python3.11"):
        return found
    raise Missing("DGL 2.1's wheels need a python3.11 on the PATH")


def _run(command: list, folder: Path | None = None) -> None:
    environment = os.environ | {"DGLBACKEND": "pytorch", "FORCE_ONLY_CPU": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=environment
        )
    except OSError as error:
        raise Missing(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        raise Missing(" ".join(lines[-3:]) or f"{command[0]} failed")
