"""A sharded model: the part of this process, as if it were one of four."""

import copy

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from poslab.model.gpt import build
from poslab.training.sharded import shard, take_weights
from support.models import ATTENTIONS, SCHEMES
from support.runs import request

PROCESSES = 4


@pytest.fixture
def mesh():
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=PROCESSES)
    yield init_device_mesh("cpu", (PROCESSES, 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
    torch.distributed.destroy_process_group()


def four_layers(**parts):
    return build(request(**parts, model__layers=4).config, 256)


@pytest.mark.parametrize(
    ("pos", "attention"), [("rope", "softmax"), ("t5", "softmax"), ("rope", "retention"), ("rope", "hybrid")]
)
def test_each_process_has_its_part_of_every_parameter(pos, attention, mesh):
    gpt = four_layers(pos=SCHEMES[pos], attention=ATTENTIONS[attention])
    whole = {name: parameter.shape for name, parameter in gpt.named_parameters()}
    shard(gpt, mesh)
    for name, parameter in gpt.named_parameters():
        part = parameter.to_local()
        assert part.shape == (-(-whole[name][0] // PROCESSES), *whole[name][1:]), name


def test_buffers_of_a_checkpoint_reach_the_whole_model(mesh):
    """A resumed run draws no weights: only the copy with the state has Performer's features."""
    gpt = four_layers(attention=ATTENTIONS["performer"])
    resumed = copy.deepcopy(gpt)
    resumed.initialise(0)
    shard(resumed, mesh)
    take_weights(gpt, resumed)
    omega = gpt.blocks[3].attention.omega
    assert omega.any()
    assert torch.equal(omega, resumed.blocks[3].attention.omega)
