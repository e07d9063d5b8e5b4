"""Wrong commands of every kind: each is refused in one line that says what to write."""

import pytest

from poslab.config.mistakes import read_arguments
from poslab.config.option_files import Conf
from support.commands import called
from support.models import CONF
from support.texts import words

# What is typed, and a part of the answer: first names, to be answered with the nearest.
REFUSED = {
    "pso=rope": "pso is not a setting (did you mean pos?)",
    "max_steps=10": "max_steps is not a setting (did you mean trainer.max_steps?)",
    "trainer.max_step=10": "trainer.max_step is not a setting (did you mean max_steps",
    "trainer.lr=0.1": "trainer has max_steps, batch_size, accumulate, optimizer",
    "pos.rate=2": "pos.rate is a setting of pos=bipe_alibi, pos=bipe_rope, pos=carope",
    "+foo=1": "foo is not a setting; the configuration has seed",
    "pos=rotary": "pos=rotary does not exist (did you mean rope?); there are alibi",
    "-m pos=rope,alibbi": "pos=alibbi does not exist (did you mean alibi or bipe_alibi?)",
    "pos.scheme=ropes": "pos.scheme='ropes' is unknown (did you mean rope",
    "LR=0.1": "LR is not a setting (did you mean trainer.learning_rate?)",
    "logger=local logger.console=true": "logger.console is a setting of logger=wandb only",
    "from=ablation/x": "runs has no finished run yet",
    "baseline=rope": "did you mean reference?",
    "reference=ropee -m pos=rope,alibi": "reference=ropee is no arm of study=ablation; there are alibi",
    "sweep=extrapolatoin --cfg job": "did you mean extrapolation?",
    # Values of a wrong type or range.
    "seed=": "seed='': input should be a valid integer",
    "seed=99999999999999999999999": "input should be less than",
    "context_length=0": "context_length=0: input should be greater",
    "context_length=100000000000": "of memory",
    "trainer.max_steps=1.5": "trainer.max_steps=1.5: input should be a valid integer",
    "trainer.max_steps=1e400": "trainer.max_steps=inf: input should be a valid integer",
    "trainer.warmup_steps=ten": "'ten' is neither a number of steps nor a share such as 10%",
    "trainer.warmup_steps=150%": "warmup_steps=600 is more than max_steps=400",
    "trainer.max_steps=20 evaluate.validations=50": "choose evaluate.validations=20",
    "trainer.learning_rate=nan": "trainer.learning_rate=nan: input should be a finite number",
    "trainer.accelerator=gpu": "input should be 'auto', 'cpu' or 'cuda' (did you mean cuda?)",
    "trainer.compile=maybe": "trainer.compile='maybe': input should be 'auto' or a valid boolean",
    "evaluate.longest=3": "evaluate.longest=3: input should be 'auto', 1, 2, 4, 8, 16, 32 or 64",
    "tune.factors=abc": "tune.factors='abc': input should be a valid list",
    "question=": "question='': string should have at least 1 character",
    "study=../elsewhere": "study: '../elsewhere' must be letters",
    "study=${foo}": "Interpolation key 'foo' not found",
    "data.vocabulary=7": "data.vocabulary: 7 is neither",
    # What cannot be read, or has another meaning than it seems to.
    "pos=rope pos=alibi": "pos is given twice",
    "sweep=null": "sweep=null names no option; there are attention",
    "pos=": "pos= names no option",
    "pos=[rope,alibi]": "for a run with each, write -m pos=rope,alibi",
    "pos=rope,alibi": "add -m, `python train.py -m pos=rope,alibi`",
    "pos=[rope": "cannot be read: look at its commas, brackets",
    "pos@x=rope": "is chosen with pos=OPTION",
    "+pos=rope": "write pos=rope",
    "~pos": "cannot be left out",
    "pos": "a setting is NAME=VALUE",
    "rope": "did you mean pos=rope?",
    "=rope": "a setting is NAME=VALUE",
    "reference=rope,alibi": "a command has one reference",
    "-m question=a,b": "a study has one question",
    "--pos=rope": "write pos=rope",
    "--reference rope": "write reference=VALUE",
    "--foo": "unrecognized arguments: --foo",
    "-m runs=a,b": "runs=a,b: a command has one folder for its runs",
    "-m sweep=bases,quickstart": "cannot be swept",
    # Settings that do not go together.
    "model.width=12": "heads of odd width 3: choose an even one",
    "model.heads=3": "width=128 is not a multiple of heads=3",
    "pos=xpos pos.scale_base=1 context_length=1024": (
        "pos.scheme=xpos is defined up to 127 tokens, fewer than context_length=1,024"
    ),
    "-m pos=rope,alibi seed=0,-1": "seed=-1",
    "pos=kerple attention=linear": "pos.scheme=kerple never becomes geometric",
    "-m pos=rope,alibi evaluate.rescale=[none,pi]": "pos.scheme=alibi has none",
    "evaluate.rescale=[pi]": "must begin with none",
    "pos=bipe_rope data.vocabulary=512": "choose data.vocabulary=bytes",
    "evaluate.rescale=[none,ntq]": "evaluate.rescale.1='ntq'",
    "evaluate.rescale_factor=4": "is for pi, ntk or yarn",
    "evaluate.recalibration_steps=5": "is for drop",
    "evaluate.rescale=[none,dynamic] evaluate.longest=1": (
        "evaluate.rescale=dynamic changes nothing for pos.scheme=rope up to its longest evaluation"
    ),
    "primary=slidng_8x": "'slidng_8x' is no loss that can be tested; there are sliding_0.5x, sliding_1x, ",
    "primary=sliding_8x evaluate.longest=4": (
        "is evaluated up to 4 L (evaluate.longest); there are sliding_0.5x, sliding_1x, sliding_2x, "
        "sliding_4x, loss_0.5x"
    ),
    "task=copy evaluate.longest=4 evaluate.segments=9": (
        "evaluate.longest and evaluate.segments cannot be set under a task"
    ),
    "-m task=copy evaluate.sliding_windows=768,9": "leave them out",
    "task=copy primary=sliding_8x": "primary cannot be set under a task",
    # Files that cannot be read.
    "runs=text.txt/below": "text.txt is no folder; choose another runs=",
    "-m pos=rope,alibi runs=text.txt": "text.txt is no folder; choose another runs=",
    "data=text": "data=text needs data.path=FILE",
    "data=text data.path=5": "data.path=5: input should be a valid string",
    "data=text data.path=nowhere.txt": "data.path=nowhere.txt does not exist",
    "data=text data.path=text.txt/below": "cannot be read: Not a directory",
    "data=text data.path=folder": "data.path=folder has no text files",
    "data=text data.path=short.txt data.vocabulary=bytes": "is shorter than",
    "data=text data.path=empty.txt": "data.path=empty.txt is empty",
    "data=copy data.vocabulary=nowhere.json": "data.vocabulary=nowhere.json cannot be read: No such file",
    "data=text data.path=/dev/null": "is neither a file nor a directory",
    # Other commands.
    "report.py study=nope": "nope",
    "report.py stdy=x": "(did you mean study=...?)",
    "report.py study=": "study= has no value",
    "report.py checkpoint=nowhere": "nowhere",
    "train.py dashboard study=../x": "cannot be the name of a study",
    "train.py evaluate": "checkpoint=",
    "train.py export": "give checkpoint=PATH",
    "train.py export checkpiont=x": "did you mean checkpoint=...?",
    "train.py export checkpoint=x format=gguf": "format=gguf: choose safetensors or transformers",
    "train.py export checkpoint=x": "x does not exist: name a run directory",
}


def test_the_place_of_a_flag_among_the_settings_does_not_matter():
    conf = Conf((CONF,))
    settings = ["reference=rope", "pos=rope,alibi", "study=x"]
    for place in range(len(settings) + 1):
        written = [*settings[:place], "-m", "--config-dir", ".", *settings[place:]]
        assert read_arguments(written, conf) == ["-m", "--config-dir", ".", *settings]


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_command_is_answered_in_one_line_that_says_what_to_write(line, tmp_path):
    (tmp_path / "text.txt").write_text(words(2000, 0))
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "folder").mkdir()
    script, *rest = line.split(" ") if line.split(" ")[0].endswith(".py") else ("train.py", *line.split(" "))
    ended = called(*rest, cwd=tmp_path, script=script)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert REFUSED[line] in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("manifest.json"))
