"""Checkpoints on disk."""

import errno
import io
import signal

import pytest
import torch

from poslab.record import files
from poslab.study.run.stopping import Stopped
from poslab.training.checkpoints import STATE_FORMAT, newest_checkpoint, write_checkpoint, writer


def test_a_checkpoint_is_written_without_a_copy_in_memory():
    """For a large model a second copy of its state would not fit."""

    class Disk:
        largest = total = 0

        def write(self, data):
            self.largest, self.total = max(self.largest, len(data)), self.total + len(data)
            return len(data)

        def flush(self):
            pass

    tensors = {str(number): torch.ones(1000, 100) for number in range(20)}
    disk = Disk()
    writer(tensors)(disk)
    assert disk.total > 20 * 400_000 >= 20 * disk.largest


@pytest.mark.parametrize("room", [0, 1, 5, 9])
def test_a_disk_that_fills_while_a_checkpoint_is_written_is_named(room):
    """PyTorch's own error at the end of its archive would not lead to waiting."""

    class Disk(io.BytesIO):
        left = room

        def write(self, data):
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.left -= 1
            return super().write(data)

    with pytest.raises(OSError, match="No space left") as caught:
        writer({"a": torch.ones(1000), "b": torch.ones(10)})(Disk())
    assert caught.value.errno == errno.ENOSPC


def test_a_run_that_waits_for_the_disk_can_be_stopped(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "full")

    def stopped():
        raise Stopped(signal.SIGINT)

    monkeypatch.setattr(files, "replace_file", full)
    with pytest.raises(Stopped):
        write_checkpoint(tmp_path, 1, {}, stopped)


def test_a_checkpoint_has_its_checksum_in_its_name_and_the_last_two_stay(tmp_path):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, {"format": STATE_FORMAT, "identity": "x", "global_step": step})
    _, newest = sorted(tmp_path.iterdir())
    assert newest_checkpoint(tmp_path, "x", print)["global_step"] == 3
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    notes = []
    assert newest_checkpoint(tmp_path, "x", notes.append)["global_step"] == 2
    assert "damaged" in notes[0]
