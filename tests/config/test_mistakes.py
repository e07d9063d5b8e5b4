"""Wrong commands, and those that Hydra would ignore, are refused in one line that says what to write."""

import re

import pytest
import yaml

from poslab.config.compose import arms
from poslab.config.mistakes import read_arguments
from poslab.config.option_files import Conf
from poslab.config.schema import ConfigError
from poslab.study.execute import run_study
from support.commands import called
from support.models import CONF
from support.runs import inline
from support.texts import words

# Arguments and a part of the message: first, wrong names and the nearest one.
REFUSED = {
    "pos.share=0": "`python train.py --help pos` lists those of pos",
    "data=words.txt": "for your own text write data=text data.path=FILE",
    "seeds=3": "did you mean seed or data.seed?",
    "callbacks=[early_stopping] callbacks.early_stopping.mode=max": "+callbacks.early_stopping.mode=VALUE",
    "pso=rope": "pso is not a setting (did you mean pos?)",
    "trainer.max_step=10": "trainer.max_step is not a setting (did you mean max_steps",
    "+foo=1": "foo is not a setting; the configuration has seed",
    "pos=rotary": "pos=rotary does not exist (did you mean rope?); the options are alibi",
    "-m pos=rope,alibbi": "pos=alibbi does not exist (did you mean alibi or bipe_alibi?)",
    "pos.scheme=mine.nowhere": "pos.scheme='mine.nowhere' is unknown",
    "LR=0.1": "LR is not a setting (did you mean trainer.learning_rate?)",
    "logger=local logger.console=true": "logger.console is a setting of logger=wandb only",
    "from=ablation/x": "runs has no finished run yet",
    "reference=ropee -m pos=rope,alibi": "reference=ropee is not an arm of study=ablation; there are alibi",
    "sweep=extrapolatoin --cfg job": "did you mean extrapolation?",
    # Values of a wrong type or range.
    "context_length=0": "context_length=0: input should be greater",
    "trainer.max_steps=1e400 trainer.learning_rate=nan": (
        "trainer.max_steps=inf: input should be a valid integer; "
        "trainer.learning_rate=nan: input should be a finite number"
    ),
    "evaluate.rescale=yarn": "write [none,yarn]",
    "logger.tags=[a,1]": "write '\"1\"' in the list",
    "study=${foo}": "Interpolation key 'foo' not found",
    # Arguments that cannot be parsed, or that mean something else than they seem to.
    "pos=rope pos=alibi": "pos appears twice",
    "pos=": "pos= names no option",
    "pos=[rope,alibi]": "write -m pos=rope,alibi",
    "seed=range(0,2)": "add -m, `python train.py -m 'seed=range(0,2)'`",
    "pos=[rope": "cannot be parsed: check its commas, brackets",
    "pos@x=rope": "with pos=OPTION",
    "+pos=rope": "write pos=rope",
    "~pos": "cannot be removed",
    "pos": "a setting is NAME=VALUE",
    "rope": "did you mean pos=rope?",
    "reference=rope,alibi": "a command has one reference",
    "-m question=a,b": "a study can have only one question",
    "--pos=rope": "write pos=rope",
    "--reference rope": "write reference=VALUE",
    "--foo": "unrecognized arguments: --foo",
    "-m runs=a,b": "runs=a,b: a command can have only one folder for its runs",
    "-m sweep=bases,quickstart": "cannot be swept",
    "-m pos=glob(nothing*)": "the command has no run",
    "-m seed=range(0,2,0)": "steps other than 0",
    "-m trainer.learning_rate=interval(0,1)": "trainer.learning_rate=A,B",
    "logger=[wandb,local]": "in place of local",
    "logger=wandb,tensorboard": "write a list, logger=[wandb,tensorboard]",
    "-m logger=local,tensorboard": "logger=[NAME,NAME]",
    # Settings that do not go together, and what fits no machine.
    "-m pos=rope,alibi seed=0,-1": "seed=-1",
    "task=copy evaluate.longest=4 evaluate.segments=9": (
        "evaluate.longest and evaluate.segments cannot be set under a task"
    ),
    "task=copy context_length=10": "context_length=13 or more",
    "task=copy data=copy": "choose data=none",
    "task=copy objective=masked": "task=copy sets the objective",
    "task=copy evaluate.needles=3": "leave them out under a task",
    "task=copy evaluate.rescale=[none,pi]": "leave them out under a task",
    "task=copy primary=sliding_8x": "primary cannot be set under a task",
    "-m launcher.cores_per_run=1,2": "cannot be swept",
    "-m branches=true trainer.schedule=wsd trainer.max_steps=10,20": "warmup_steps as a number",
    "-m plan=true,false": "only one plan",
    "plan=true primary=sliding_8x evaluate.longest=4": "is evaluated up to 4 L",
    # Arguments of Hydra that would have no effect.
    "-m +hydra.sweep.subdir=here": "runs=DIR",
    "-m hydra/launcher=joblib": "launcher=local",
    "hydra={}": "has no effect here",
    "hydra.job.env_copy=[HOME,UNSET_NAME]": "UNSET_NAME is not an environment variable",
    "-m pos=rope,alibi --cfg job": "leave -m out",
    "-p pos=alibi": "--cfg job --package pos",
    "--hydra-help x": "'x' is not understood: a setting is NAME=VALUE",
    "--experimental-rerun=x.pickle": "run the same command again",
    # Loggers that cannot be created.
    "logger=local +logger.csv={save_dir:here}": "csv names no class",
    "logger=local +logger.csv._target_=nowhere.Logger": "logger.csv: ",
    "logger=local +logger.csv={_target_:pytorch_lightning.loggers.CSVLogger,save_dir:x,names:mine}": (
        "logger.csv: got an unexpected keyword argument 'names'"
    ),
    # Files that cannot be read.
    "data=text data.path=nowhere.txt": "data.path=nowhere.txt does not exist",
    # Other commands.
    "--help task": "task=OPTION sets several settings; there are addition",
    "sweep=wandb/schemes": "wandb/schemes.yaml`",
    "--help trainr": "(did you mean trainer or trainer.nodes?)",
    "--help trainr plan=true": "(did you mean trainer or trainer.nodes?)",
    "poslab trian": "did you mean train?",
    "poslab pos=alibi": "to train, begin with `poslab train`",
    "poslab report": "train a study first: poslab train -m pos=rope,alibi",
    "train.py report runs=nowhere": "no records in nowhere; train a study first",
    "train.py status study=x runs=nowhere": "no study 'x' was trained in nowhere; there are none",
    "train.py status runs=nowhere": "no studies in nowhere; start one",
    "train.py status pos=rope": "'pos=rope' is not a known argument; the arguments are study=..., runs=...",
    "train.py status study=": "study= has no value",
    "train.py evaluate": "checkpoint=",
    "train.py evaluate --config-dir": "--config-dir has no value",
    "train.py export checkpiont=x": "did you mean checkpoint=...?",
    "train.py export checkpoint=x format=gguf": "format=gguf: choose safetensors or transformers",
}
# Settings of one run; a command handles them in the same way, as for `context_length` above.
UNFIT = {
    # Values of a wrong type or range.
    "pos.scheme=ropes": "pos.scheme='ropes' is unknown (did you mean rope",
    "pos.scheme=json.decoder": "must define one Scheme, not 0",
    "trainer.warmup_steps=ten": "'ten' is neither a number of steps nor a share such as 10%",
    "trainer.warmup_steps=150%": "warmup_steps=30 is more than max_steps=20",
    "trainer.max_steps=20 evaluate.validations=50": "choose evaluate.validations=20",
    "trainer.accelerator=gpu": "input should be 'auto', 'cpu' or 'cuda' (did you mean cuda?)",
    "evaluate.longest=3": "evaluate.longest=3: input should be 'auto', 1, 2, 4, 8, 16, 32 or 64",
    "study=../elsewhere": "study: '../elsewhere' must be letters",
    "data.vocabulary=7": "data.vocabulary: 7 is neither",
    "data.vocabulary=bpe": "data.vocabulary: 'bpe' is neither",
    "data=text data.path=words.txt data.held_out=100B": "a larger data.held_out",
    "data.span=0": "data.span=0",
    "data.symbols=53": "data.symbols=53",
    "data.held_out=0.6": "is neither a share",
    "data.held_out=0MB": "is neither a share",
    "data.held_out=0.2": "data.held_out=0.2 has no effect",
    "probe=retrieval probe.share=null": "share is needed with tasks",
    "probe=retrieval probe.tasks=[]": "is needed with tasks",
    "probe=retrieval probe.tasks=[copy,copy]": "has a value twice",
    # Settings that do not go together.
    "model.heads=3": "width=32 is not a multiple of heads=3",
    "model.query_groups=3": "query_groups",
    "model.canon=[a,a]": "canon",
    "trainer.scheme_rate=3": "scheme_rate=3 is for",
    "trainer.devices=3": "batch_size=8 is not a multiple of devices=3",
    "trainer.strategy=fsdp": "devices=2 or more",
    "trainer.strategy=fsdp trainer.devices=2 trainer.optimizer=muon": "adamw",
    "trainer.strategy=fsdp trainer.devices=2 trainer.compile=true": "compile=false",
    "data.tokens=60000 probe=retrieval data.vocabulary=300": "vocabulary=bytes",
    "data.tokens=200000 probe=retrieval context_length=64": "choose context_length=",
    "data.tokens=200000 probe=retrieval data.windows=packed": "data.windows=within",
    "data.tokens=60000 evaluate.needles=4 data.vocabulary=300": "vocabulary=bytes",
    "data.tokens=200000 evaluate.needles=4 context_length=64": "context_length=",
    "pos=xpos pos.scale_base=1 context_length=1024": (
        "pos.scheme=xpos is defined up to 127 tokens, fewer than context_length=1,024"
    ),
    "evaluate.rescale=[pi]": "must begin with none",
    "pos=bipe_rope data.vocabulary=512": "choose data.vocabulary=bytes",
    "evaluate.rescale=[none,ntq]": "evaluate.rescale.1='ntq'",
    "evaluate.rescale_factor=4": "needs pi, ntk or yarn",
    "evaluate.recalibration_steps=5": "needs drop",
    "evaluate.rescale=[none,dynamic] evaluate.longest=1": (
        "evaluate.rescale=dynamic changes nothing for pos.scheme=rope up to its longest evaluation"
    ),
    "primary=slidng_8x": "'slidng_8x' is not a testable loss; these are: sliding_0.5x, sliding_1x, ",
    "primary=sliding_8x evaluate.longest=4": (
        "is evaluated up to 4 L (evaluate.longest); there are sliding_0.5x, sliding_1x, sliding_2x, "
        "sliding_4x, loss_0.5x"
    ),
    "data=none": "task=NAME",
    "launcher=inline launcher.cores_per_run=0": "launcher: cores_per_run=0 must be 1 or more, or auto",
    "launcher=ray launcher.address=ray://here:1": "launcher.address='ray://here:1'",
    "launcher=slurm launcher.minutes=0": "launcher.minutes=0: input should be greater",
    "launcher=local launcher.workers=2": "launcher.workers is not a setting",
    "launcher=inline trainer.devices=2 trainer.batch_size=8": "launcher=local",
    "branches=true": "schedule=wsd",
    "tune.factors=[1,2]": "seeds",
    "tune.factors=[1] tune.seeds=[5]": "has one value",
    "tune.factors=[1,1] tune.seeds=[5]": "twice",
    "tune.scheme_factors=[1,3]": "set factors too",
    "tune.factors=[1,2] tune.seeds=[0]": "seed=0",
    "tune.factors=[1,2] tune.seeds=[5] part=tuning": "part=tuning",
    "tune.factors=[1,2] tune.seeds=[5] tune.scheme_factors=[1,3]": "choose tune=learning_rate",
    "plan=8GB": "8x80GB",
    "plan=2x80GB trainer.accelerator=auto trainer.devices=4": "plan for more GPUs",
    "plan=2x80GB trainer.accelerator=cpu": "leave trainer.accelerator=cpu out",
    "plan=measure launcher=slurm": "plan=true",
    "launcher=local trainer.nodes=2 trainer.batch_size=8": "choose launcher=slurm for several nodes",
    "launcher=local launcher.runs_per_gpu=2": "launcher.runs_per_gpu=2 is for runs on GPUs",
    # Runs that no machine has memory for, with a remedy.
    "trainer.batch_size=1000000": "or raise trainer.accumulate",
    "context_length=32768 evaluate.longest=16 attention=softmax trainer.batch_size=1": "evaluate.longest",
    "pos=t5 pos.max_distance=1000000000000": "lower the numbers of pos and attention",
    "attention=performer attention.features=10000000000": "lower the numbers of pos and attention",
    # Files that cannot be read.
    "runs=text.txt/below": "text.txt is not a folder; choose another runs=",
    "data=text": "data=text needs data.path=FILE",
    "data=text data.path=text.txt/below": "cannot be read: Not a directory",
    "data=text data.path=text.txt data.vocabulary=bytes": "is shorter than",
    "data=text data.path=folder": "data.path=folder has no text files",
    "data=text data.path=/dev/null": "cannot be read: Not a directory",
    "data.vocabulary=nowhere.json": "data.vocabulary=nowhere.json cannot be read: No such file",
}


def test_a_flag_may_stand_anywhere_among_the_settings():
    conf = Conf((CONF,))
    settings = ["reference=rope", "pos=rope,alibi", "study=x"]
    for place in range(len(settings) + 1):
        written = [*settings[:place], "-m", "--config-dir", ".", *settings[place:]]
        assert read_arguments(written, conf) == ["-m", "--config-dir", ".", *settings]


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_command_is_refused_in_one_line_that_says_what_to_write(line, tmp_path):
    script, *rest = line.split(" ")
    if script not in ("train.py", "poslab"):
        script, rest = "train.py", [script, *rest]
    ended = called(*rest, cwd=tmp_path, script=script, status=2)
    assert ended.stdout == ""
    assert REFUSED[line] in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("line", UNFIT)
def test_an_impossible_run_is_refused_in_one_line_that_says_what_to_choose(line, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("short")
    (tmp_path / "words.txt").write_text(words(2000, 0))
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    changes = {}
    for key, _, value in (setting.partition("=") for setting in line.split()):
        of_a_file = key in ("data", "probe", "launcher")
        changes[key.replace(".", "__")] = arms(CONF / key)[value] if of_a_file else yaml.safe_load(value)
    with pytest.raises(ConfigError, match=re.escape(UNFIT[line])) as refused:
        run_study([inline(tmp_path, **changes)], "a command")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize(
    ("group", "content", "answer"),
    [
        ("sweep", "study: mine", "must begin with the line"),
        ("sweep", "# @package _global_\nstudy: [mine", "line 2"),
        (
            "sweep",
            "# @package _global_\nhydra: {sweeper: {params: {pos: [rope, alibi]}}}",
            "write pos: A,B",
        ),
        (
            "sweep",
            "# @package _global_\nhydra: {sweeper: {params: {task: 'null,copy'}}}",
            "mine.yaml: task=null,copy names no option; the options are addition",
        ),
        ("sweep", "# @package _global_\n- mine", "sweep/mine.yaml is a list"),
        ("pos", "- rope", "mine.yaml is a list"),
        ("pos", "base: 1000.0", "pos.scheme is missing; the choices are alibi"),
    ],
)
def test_a_mistake_in_a_users_file_is_refused_in_one_line(group, content, answer, tmp_path):
    (tmp_path / group).mkdir()
    (tmp_path / group / "mine.yaml").write_text(content)
    ended = called("--config-dir", ".", "-m", f"{group}=mine", cwd=tmp_path, status=2)
    assert answer in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
