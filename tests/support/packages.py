"""poslab as a wheel in a separate environment, and another package with parts for it."""

import configparser
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from support.commands import ROOT

EXTENDING = (ROOT / "docs" / "extending.md").read_text()


def documented(path: str) -> str:
    """Return the file of that name, which the page shows completely."""
    found = re.search(rf"^```\w+\n# {re.escape(path)}\n(.*?)^```", EXTENDING, re.DOTALL | re.MULTILINE)
    assert found is not None, path
    return found[1]


FILES = {
    "mine/__init__.py": "",
    "mine/slope.py": """
from pydantic import Field
from mine.helper import sloped
from poslab.config.schema import Options
from poslab.model.positions import Scheme


class SlopeOptions(Options):
    slope: float = Field(gt=0)


class Slope(Scheme):
    options_class = SlopeOptions

    def bias(self, distance):
        return sloped(distance.double(), self.options.slope).expand(self.geometry.heads, -1)
""",
    "mine/helper.py": "def sloped(distance, slope):\n    return -slope * distance\n",
    "mine/sharp.py": """
from poslab.config.schema import Options
from poslab.model.attention import Attention


class SharpOptions(Options):
    sharpness: float


class Sharp(Attention):
    options_class = SharpOptions
    form = "exact"

    def attend(self, q, k, v, site):
        self.kernel = "sharp"
        return (self.weights(q, k, site) @ v.to(self.weights(q, k, site).dtype)).to(v.dtype)

    def weights(self, q, k, site, first=0):
        return (self.options.sharpness * self.scores(q, k, site, first)).softmax(dim=-1)
""",
    "mine/mean.py": """
import torch
from torch import nn
from poslab.model.attention import Mixer


class Mean(Mixer):
    form = "O(L)"

    def __init__(self, options, geometry, scheme):
        super().__init__(options, geometry, scheme)
        self.project_mean = nn.Linear(geometry.width, geometry.width)

    def forward(self, x, site):
        self.kernel = "mean"
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        mixed = self.project_mean(x.cumsum(dim=1) / count)
        return mixed if site.last is None else mixed[:, -site.last :]
""",
    "mine/verse.py": """
from poslab.data.sources import TextSource


class Verse(TextSource):
    lines: int

    def label(self):
        return "verse of mine"

    def read(self):
        yield b"".join(b"line %d of a long poem\\n" % (number * 7919) for number in range(self.lines))
""",
    **{
        f"mine/{name}.py": documented(f"src/poslab/{folder}/{name}.py")
        for folder, name in (("objectives", "later"), ("objectives", "double"), ("measures", "surprise"))
    },
    "mine/conf/__init__.py": "",
    "mine/conf/references.bib": (
        "@article{doe2026,\n    title = {Slopes},\n    keywords = {scheme slope},\n    year = {2026}\n}\n"
    ),
    "mine/conf/pos/slope.yaml": "scheme: slope\nslope: 0.5\n",
    "mine/conf/attention/sharp.yaml": "kind: mine.sharp\nsharpness: 2.0\n",
    "mine/conf/attention/mean.yaml": "kind: mine.mean\n",
    "mine/conf/objective/later.yaml": documented("conf/objective/later.yaml"),
    "mine/conf/data/verse.yaml": "source: verse\nvocabulary: bytes\nlines: 3000\n",
    "mine-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n",
    "mine-1.0.dist-info/entry_points.txt": (
        "[poslab.positions]\nslope = mine.slope\n[poslab.data]\nverse = mine.verse\n"
        "[poslab.measures]\nsurprise = mine.surprise\n[poslab.objectives]\nlater = mine.later\n"
        "[poslab.conf]\nmine = mine.conf\n"
    ),
}


def write_package(folder: Path) -> Path:
    """Write a package with a scheme, two mixers, a text, an objective and a measurement, for PYTHONPATH."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def installed_wheel(folder: Path) -> Path:
    """Build a wheel, install it without its dependencies, and return its command `poslab`.

    The dependencies are those of the tests' environment, whose own poslab the wheel hides. The wheel is
    installed by the rules of its format: its files, and a script for the command.
    """
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "environment", with_pip=False)
    (packages,) = (folder / "environment" / "lib").glob("python3*/site-packages")
    # Path files in that folder are not read; one of them names the checkout.
    of_the_tests = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "of_the_tests.pth").write_text("".join(f"{path}\n" for path in of_the_tests))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    declared = configparser.ConfigParser()
    declared.read(packages.glob("poslab-*.dist-info/entry_points.txt"))
    module, _, function = declared["console_scripts"]["poslab"].partition(":")
    binaries = folder / "environment" / "bin"
    script = f"#!{binaries / 'python'}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    (binaries / "poslab").write_text(script)
    (binaries / "poslab").chmod(0o755)
    return binaries / "poslab"
