"""Samplers that draw unevenly still train well: a short `python -m benchmarks.quality`."""

import pytest

from benchmarks.quality import TASKS, Task, accuracy

FLAGS = (
    "--dataset cora --data-options split=full --model gcn --hidden 64 --dropout 0 "
    "--batch-size 256 --epochs 10 --lr 3e-2"
)
SAMPLERS = {
    "fastgcn": "--sizes 400 400",
    "ladies": "--sizes 512 512",
    "asgcn": "--sizes 512 512",
    "thanos": "--fanouts 3 3",
}
LEAST = {"fastgcn": 82, "ladies": 84.5, "asgcn": 84.5, "thanos": 84}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_accuracy_after_ten_epochs(sampler, data_folder):
    assert accuracy(str(data_folder), Task(FLAGS, SAMPLERS, {}), sampler) >= LEAST[sampler]


def test_every_task_has_neighbour_sampling_to_compare_with():
    for task in TASKS.values():
        assert next(iter(task.samplers)) == "neighbors"
        assert set(task.bars) <= set(task.samplers)
