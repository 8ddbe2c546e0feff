import dataclasses
import json
import re
import subprocess
from types import MappingProxyType

import pytest
from cases import cases
from forks import quick_python
from refusals import refused

from jgs import InputError
from jgs.data.parts import write_manifest
from jgs.models import RelGT
from jgs.options import flag, options_of
from jgs.report.page import command_of
from jgs.sampling import SAMPLERS, WALKERS
from jgs.train.config import OWNERS, PAGES, SETTINGS, Config
from jgs.train.flags import help_page, parse
from jgs.train.loop import folder
from jgs.train.loop.model import make_sampler, num_layers

COMMANDS = """
    --dataset cora --root r --data-options num_nodes=5 noise=0.5 fast=true name=x
    --model gat --heads 2 --fanouts 5 -1 --replace --weighted --hidden 8 --norm layer
    --dropout 0.25 --edge-features amount kind --input-dropout 0.1
    --batch-size 4 --epochs 2 --lr 0.5 --weight-decay 1e-3
    --seed 9 --eval-memory 7 --scratch e --run-dir d --resume --checkpoint-every 3 --keep 2
    --prefetch 1 --no-keep-memory --no-progress --lr-schedule warmup_cosine --lr-end 0.5
    --warmup-steps 5 --patience 6 --metric f1_macro --log tensorboard
    --precision bfloat16 --accumulate 2 --clip-norm 1 --average ema --average-decay 0.5
    --average-from 1 --loss focal --focal-gamma 3 --label-smoothing 0.1 --class-weights 1 2
    --balanced --huber-delta 2
    --fanout-schedule 3:9,9 --plateau-fraction 0.5 --plateau-epochs 2

    --partition p --comm mpi --coordinator a:1 --num-processes 2 --process-id 1 --interface lo
    --mode vanilla --cache planned --cache-memory 3 --wire float16 --watchdog 9
    --start-timeout 8 --phase-timeout 7 --verify never

    --task links --temporal --time-window 5 --half-life 3
    --task links --temporal --latest --eval-negatives-by inductive --by-time 9
    --sampler labor --importance 1 --layer-dependency --period 4 --reduce max
    --sampler ladies --sizes 7 8 --by-type --model gcn --concat
    --sampler gcnbs --state-age 2 --device gpu:1 --device-memory 5
    --feature-memory 4 --feature-block 3 --feature-dtype int8
    --model rgcn --bases 3 --blocks 2
    --task links --temporal --model tgat --time-width 7 --time-unit 3600
    --task links --temporal --model mixer --num-latest 6 --fanouts 6
    --sampler pinsage --walks 20 3 --restart 0.25 --relations rev_buys buys
    --sampler subgraph --extra-nodes 5 --layers 3
    --sampler frontier --budget 60 --frontier-size 7 --degree-cap 9 --norm-error 0.5
    --sampler saint --draw edge --walk-steps 4
    --sampler shadow --scope-size 3 --disjoint
    --sampler context --context-size 7 --fill pagerank --order latest --epsilon 1e-3
        --model relgt --centroids 3
    --sampler context --model cells --cells 9
    --task embed --sampler walk --causal --half-life 5
    --task embed --sampler node2vec --p 2 --q 3 --dim 4 --walk-length 5 --num-walks 6
        --window 7 --negatives 8 --shared-negatives 9
    --task links --sampler seal --test-share 0.2 --val-share 0.3 --pool-share 0.4
    --task links --split random --val-messages --relation buys --learned 5 --loss bpr
        --num-negatives 3 --negatives-by degree --sides src --shared --filtered
        --eval-negatives 7 --metric-k 3 --decoder mlp --decoder-hidden 6 --combine concat
    --task links --decoder cosine --scale 2
    --task edges --numbers --label rating
    --task nodes --by-time 3 --features sharded
"""
OPTIONS = {n: k for t in OWNERS.values() for name in t for n, k in t.options(name).items()}


def commands():
    """The commands of `COMMANDS` as lists of words; some take several lines."""
    found, begins = [], ("--dataset", "--partition", "--sampler", "--task")
    for line in COMMANDS.split("\n"):
        if line.strip().startswith(begins):
            found.append([])
        found[-1:] and found[-1].extend(line.split())
    return found


def test_every_flag_makes_a_setting_that_is_saved_and_read():
    seen = set()
    for argv in commands():
        given = parse(argv)
        config = Config(**given)
        needed = (*OWNERS, "temporal")  # what decides which others there are
        defaults = Config(**{name: given[name] for name in needed if name in given})
        for name in given.keys() - set(needed):
            assert getattr(config, name) != getattr(defaults, name), name
        seen |= given.keys()
        unsaved = {n: k.default for n, k in SETTINGS.items() if not k.option.saved}
        assert Config.from_json(config.to_json()) == dataclasses.replace(config, **unsaved)
    wanted = {n for n, k in (SETTINGS | OPTIONS).items() if k.option.flag}
    assert seen == wanted
    config = Config(**parse(commands()[0]))
    assert (config.fanouts, config.heads) == ((5, -1), 2)
    assert config.data_arguments() == {"num_nodes": 5, "noise": 0.5, "fast": True, "name": "x"}


@pytest.mark.parametrize("name", [*SAMPLERS, *WALKERS])
def test_the_command_makes_each_sampler(name):
    task = "embed" if name in WALKERS else "links" if name == "seal" else "nodes"
    needed = {"relations": ("buys",)} if name == "metapath" else {}
    config = Config(task=task, sampler=name, **needed)
    made = config.made("sampler") if task == "embed" else make_sampler(config)
    assert type(made) is {**SAMPLERS, **WALKERS}[name]
    assert task == "embed" or num_layers(config) == 2
    other = "nodes" if task == "embed" else "embed"
    with pytest.raises(InputError, match=f"--sampler {name} must be for --task {task}"):
        Config(task=other, sampler=name, **needed)


def test_help_fits_a_screen_and_each_name_has_a_page(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help"])
    assert stop.value.code == 0
    first = capsys.readouterr().out.splitlines()
    assert len(first) <= 60
    heads = [line for line in first if line.endswith(":") and line[0] != " "]
    assert heads[:4] == ["examples:", "data:", "task:", "model:"]
    examples = [line.split()[3:] for line in first if line.startswith("  python -m jgs.train ")]
    assert len(examples) == 3
    for example in examples:
        Config(**parse(example))
    pages = {
        name: help_page(name) for name in (*PAGES, *(n for t in OWNERS.values() for n in t))
    }
    for page in ("\n".join(first), *pages.values()):
        assert all(len(line) <= 80 for line in page.splitlines())
    for name in pages:
        assert re.search(rf"\b{name}\b", "\n".join(first)), name
    for owner, table in OWNERS.items():
        for name in table:
            assert pages[name].strip(), f"{owner} {name} says what it is"
            for option, known in table.options(name).items():
                assert flag(option) in pages[name]
                assert known.option.help
                # Whatever a flag belongs to, it is parsed alike.
                assert option not in SETTINGS
                assert (known.item, known.many) == (OPTIONS[option].item, OPTIONS[option].many)
    for page, group in PAGES.items():
        for name, known in options_of(group).items():
            assert not known.option.flag or (flag(name) in pages[page] and known.option.help)
    everything = help_page("all")
    assert all(page in everything for page in pages.values())
    refused("--help must name a topic", help_page, "labour")


class Eager(RelGT):
    defaults = MappingProxyType({"rate": 0.1})  # which no setting is called


def test_a_model_has_defaults_of_its_own_which_a_user_s_values_replace():
    own, context = RelGT.defaults, {"sampler": "context"}
    for task in ("nodes", "links"):
        config = Config(task=task, model="relgt", **context)
        assert {name: getattr(config, name) for name in own} == own
        assert Config.from_json(config.to_json()) == config
    for line in (config.of_model, help_page("relgt"), help_page("cells")):
        assert f"--lr {own['lr']}" in line
    assert "--lr" not in command_of(config, "run")
    asked = Config(model="relgt", lr=0.01, **context)
    assert asked.lr == Config().lr == 0.01
    assert asked.of_model == f"--lr-schedule {own['lr_schedule']}"
    assert command_of(asked, "run")[-2:] == ["--lr", "0.01"]
    assert Config.from_json(json.dumps(json.loads(config.to_json()) | {"lr": 0.5})).lr == 0.5
    assert Config().of_model == Config(task="embed", sampler="walk").of_model == ""
    model = f"{__name__}:Eager"
    refused("the defaults of a model must be of settings*rate", Config, model=model, **context)


def test_configurations_of_earlier_versions_are_read():
    """They have the options of all samplers, those of others with their defaults."""
    old = {"task": "nodes", "sampler": "labor", "model": "sage", "fanouts": [4, 3]}
    old |= {"sizes": [512, 512], "importance": 2, "walks": [200, 10], "relations": []}
    old |= {"layers": None, "p": 1.0, "dim": 128, "norm_error": 0.0, "draw": "walk"}
    old |= {"heads": 8, "reduce": "max", "test_share": 0.1}
    config = Config.from_json(json.dumps(old))
    assert (config.fanouts, config.importance, config.reduce) == ((4, 3), 2, "max")
    assert "sizes" not in config.options
    for wrong in ({"sizes": [5, 5]}, {"no_such": 1}, {"hidden": "x"}):
        with pytest.raises(InputError, match=r"this version of jgs can read.*Resume with"):
            Config.from_json(json.dumps(old | wrong))
    for text in ("", "[]"):
        refused("a saved configuration must be", Config.from_json, text)


@cases(
    "argv, says",
    ("--fanouts 0", "--fanouts must be other than 0"),
    ("--fanouts 5 -2", "fanout"),
    ("--fanouts five", "--fanouts"),
    ("--fanouts 1000000000000", "fanout"),
    ("--sizes 5 -1", "size"),
    ("--sampler labour", "--sampler must be neighbors, labor*Did you mean labor?"),
    ("--batch-size 0", "--batch-size"),
    ("--batch-size 99999999999999999999", "--batch-size must be at most"),
    ("--hidden 1000000000", "--hidden must be at most"),
    ("--prefetch 1000000", "--prefetch must be at most"),
    ("--feature-memory -1", "--feature-memory"),
    ("--lr 0", "--lr"),
    ("--lr nan", "--lr"),
    ("--dropout 1", "--dropout"),
    ("--dropout -0.1", "--dropout"),
    ("--plateau-fraction 1", "--plateau-fraction"),
    ("--lr-schedule step", "--lr-schedule"),
    ("--loss bpr", "--loss must be one of cross_entropy, focal"),
    ("--fanout-schedule 2:3", "fanout"),
    ("--fanout-schedule soon:3,3", "fanout"),
    ("--fanout-schedule 2:3,3 plateau:4,4", "fanout"),
    ("--sampler subgraph --fanout-schedule 2:3,3", "fanout"),
    ("--data-options noise", "--data-options"),
    ("--epoch 3", "--epoch"),
    ("cora", "cora"),
    ("--partition p --dataset cora", "data alone; got --dataset beside it"),
    # What belongs to another choice.
    ("--dim 8", "--dim must be for --task embed"),
    ("--sampler seal", "--sampler seal must be for --task links"),
    ("--task embed --hidden 7", "--hidden must be for --task nodes"),
    ("--task embed --patience 3", "--patience must be for --task nodes or links"),
    ("--task embed --sampler walk --p 2", "--p must be for --sampler node2vec"),
    ("--task embed --sampler metapath", "must have --relations"),
    ("--task edges --negatives-by degree", "--negatives-by must be for --task links"),
    ("--task links --sampler seal --model gcn", "--model must be for --task nodes or"),
    ("--task links --sampler seal --decoder mlp", "--decoder must be for --task links or"),
    ("--task links --sampler seal --loss bpr", "no other options of --task links"),
    ("--task links --sampler seal --metric auc", "--metric must be for --task nodes or"),
    ("--by-time 0", "--by-time must be at least 1"),
)
def test_values_that_no_run_takes_are_refused_by_name(argv, says):
    refused(says, lambda: Config(**parse(argv.split())))


def test_fields_are_checked_when_made_from_python_too():
    refused("--hidden must be int", Config, hidden="64")
    refused("--hidden must be int", Config, hidden=True)
    assert Config(lr=1).lr == 1.0
    assert Config(fanouts=[3, 4]).fanouts == (3, 4)  # type: ignore[arg-type]


def made(path, **fields):
    with folder.claimed(Config(run_dir=str(path), **fields)):
        return path


def test_a_new_run_needs_an_empty_folder(tmp_path):
    run = str(tmp_path / "run")
    assert folder.configure({"run_dir": run}).run_dir == run
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.new").touch()  # left behind by a kill
    folder.configure({"run_dir": run})
    made(tmp_path / "run")
    refused("must be empty", folder.configure, {"run_dir": run})


def test_resume_takes_what_is_not_given_from_the_folder_and_nothing_else(tmp_path):
    run = str(made(tmp_path / "run", hidden=8, lr=0.5, keep=2))
    config = folder.configure({"run_dir": run, "resume": True, "epochs": 7, "keep": 5})
    assert (config.hidden, config.lr, config.epochs, config.keep) == (8, 0.5, 7, 5)
    assert config.resume
    # Flags that differ are named.
    given = {"run_dir": run, "resume": True, "hidden": 16, "fanouts": (3,), "lr": 0.5}
    with pytest.raises(InputError) as error:
        folder.configure(given)
    assert "--hidden 16 there 8" in str(error.value)
    assert "--fanouts 3 there 10 10" in str(error.value)
    assert "--lr" not in str(error.value)
    refused("shrink", folder.configure, {"run_dir": run, "resume": True, "epochs": 1})
    for other, says in (
        ({"task": "links"}, "got --task links there nodes. "),
        ({"data_options": ("x=1",)}, "got --data-options x=1 there none. "),
    ):
        refused(says, folder.configure, {"run_dir": run, "resume": True, **other})
    refused("--fanout 3. Did you mean --fanouts? See", parse, ["--fanout", "3"])
    for word in ("", " ", "=x", "--=", "--"):  # nothing is near
        refused("unrecognized arguments", parse, [word, "x"])


def test_resume_refuses_folders_of_others_and_takes_empty_ones(tmp_path):
    (tmp_path / "notes.txt").touch()
    for given, says in (
        ({"run_dir": str(tmp_path)}, "config.json"),
        ({"run_dir": str(tmp_path / "notes.txt")}, "folder"),
        ({}, "--run-dir"),
    ):
        refused(says, folder.configure, {**given, "resume": True})
    # A job that always resumes must survive a kill before its folder is made.
    assert folder.configure({"run_dir": str(tmp_path / "new"), "resume": True}).resume


def test_settings_for_parts_need_parts(tmp_path):
    run = str(made(tmp_path / "run"))
    resumed = {"run_dir": run, "resume": True}
    each = ({"mode": "vanilla"}, {"cache": "planned"}, {"cache_memory": 5}, {"verify": "never"})
    for given in each:
        for where in ({}, resumed):
            with pytest.raises(
                InputError, match=r"must be beside --partition|same configuration"
            ):
                folder.configure({**given, **where})
    with pytest.raises(InputError, match="resumed on it; got --partition"):
        folder.configure({**resumed, "partition": "parts"})


def test_a_run_on_parts_has_the_name_of_their_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    write_manifest(tmp_path / "parts", {"dataset": "cora"})
    config = folder.configure({"partition": "parts"})
    assert config.dataset == "cora"
    with folder.claimed(config) as path:
        assert path.name.startswith("cora-")
    resumed = folder.configure({"run_dir": str(path), "resume": True, "cache": "planned"})
    assert (resumed.dataset, resumed.cache) == ("cora", "planned")
    assert resumed.partition == str(tmp_path / "parts")


def test_runs_without_a_folder_each_get_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for config in (Config(dataset="some/edges.txt"), Config(), Config()):
        with folder.claimed(config) as path:
            found.append(path)
    first, second, third = found
    assert len({first, second, third}) == 3
    assert first.name.startswith("edges-")
    assert second.parent.name == "runs"


def row_of(epoch):
    return {"epoch": epoch, "train_loss": 0.5, "val_accuracy": 1}


def test_lines_that_are_no_epochs_are_set_aside(tmp_path, caplog):
    first, last = (json.dumps(row_of(epoch)).encode() for epoch in (1, 3))
    bad = [b'{"epoch":"x"}', b'{"epoch":1}', b"\xff\xfe\xfa", b"[" * 10**5]
    bad += [b'{"epoch": 2, "train_loss": null, "val_accuracy": 1}']
    spoiled = b"\n".join([first, *bad, b"", last, b""])  # an empty line is none
    (tmp_path / folder.METRICS).write_bytes(spoiled)
    assert folder.read_metrics(tmp_path, 9) == [row_of(1), row_of(3)]
    for aside in ("metrics.jsonl.damaged", "metrics.jsonl.damaged-2"):
        (tmp_path / folder.METRICS).write_bytes(spoiled)
        caplog.clear()
        folder.truncate_metrics(tmp_path, 3)
        assert "is damaged in line 2, 3, 4, 5, 6: " in caplog.text
        assert aside in caplog.text
        assert (tmp_path / aside).read_bytes() == spoiled
        assert folder.read_metrics(tmp_path, 9) == [row_of(1), row_of(3)]
    caplog.clear()
    folder.truncate_metrics(tmp_path, 1)
    assert folder.read_metrics(tmp_path, 9) == [row_of(1)]
    assert caplog.text == ""


def test_metrics_are_cut_at_the_checkpoint_and_at_a_torn_line(tmp_path):
    for epoch in (1, 2, 3):
        folder.append_metrics(tmp_path, row_of(epoch))
    with open(tmp_path / folder.METRICS, "a") as file:
        file.write('{"epo')
    assert [r["epoch"] for r in folder.read_metrics(tmp_path, 9)] == [1, 2, 3]
    folder.truncate_metrics(tmp_path, 2)
    assert {p.name for p in tmp_path.iterdir()} == {folder.METRICS}, "an unfinished line"
    lines = (tmp_path / folder.METRICS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [row_of(1), row_of(2)]
    folder.truncate_metrics(tmp_path / "..", 0)
    with pytest.raises(ValueError):
        folder.append_metrics(tmp_path, {"epoch": 3, "train_loss": float("nan")})


def test_an_existing_path_of_a_data_set_is_kept_absolute(tmp_path, monkeypatch):
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "x.npz").touch()
    (tmp_path / "cora").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Config(dataset="ds/x.npz").dataset == str(tmp_path / "ds" / "x.npz")
    assert Config(dataset="cora").dataset == "cora", "a name goes before a folder so called"
    options = Config(data_options=("manifest=ds/x.npz", "task_sql=SELECT 1")).data_options
    assert options == (f"manifest={tmp_path / 'ds' / 'x.npz'}", "task_sql=SELECT 1")
    run = str(made(tmp_path / "run", dataset="ds/x.npz"))
    given = {"run_dir": run, "resume": True, "dataset": "ds/x.npz"}
    assert folder.configure(given).dataset == str(tmp_path / "ds" / "x.npz")
    monkeypatch.chdir("/")
    config = folder.configure({"run_dir": run, "resume": True})
    assert config.dataset == str(tmp_path / "ds" / "x.npz")


def hold(path):
    """Starts another process that holds a run folder, and waits until it does."""
    code = (
        "import sys; from pathlib import Path; from jgs.files.writing import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [quick_python(), "-c", code, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def test_one_process_a_folder(tmp_path):
    run = made(tmp_path / "run")
    config = folder.configure({"run_dir": str(run), "resume": True, "epochs": 9})
    before = (run / "config.json").read_bytes()
    other = hold(run)
    with pytest.raises(InputError, match="in use by another"), folder.claimed(config):
        pass
    assert (run / "config.json").read_bytes() == before
    other.kill()  # the folder is free however it ends
    other.communicate()
    with folder.claimed(config):
        pass
    assert (run / "config.json").read_bytes() == before  # unchanged until its data are accepted
    folder.keep_config(run, config)
    assert folder.configure({"run_dir": str(run), "resume": True}).epochs == 9


def test_a_run_begun_by_another_since_the_check_is_noticed(tmp_path):
    asked = {"run_dir": str(tmp_path / "run")}
    mine = folder.configure(asked)
    made(tmp_path / "run", lr=0.5)
    with pytest.raises(InputError, match="must be empty"), folder.claimed(mine):
        pass
    assert Config.from_json((tmp_path / "run" / "config.json").read_text()).lr == 0.5
