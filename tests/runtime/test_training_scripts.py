"""Files of a folder that look like training scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.cli.init import training_scripts

PLAIN = "import torch\nfor step in range(3):\n    loss.backward()\n"

TRAINS = {
    "loop": PLAIN,
    "main guard": "from torch import nn\ndef main():\n    self.opt.step()\nif __name__ == '__main__':\n    main()\n",
    "trainer": "from transformers import Trainer\ntrainer = Trainer(model)\ntrainer.train()\n",
    "lightning": "import pytorch_lightning as pl\npl.Trainer(max_epochs=3).fit(model)\n",
}
TRAINS_NOT = {
    "no torch": "for step in range(3):\n    loss.backward()\n",
    "inference": "import torch\nprint(model(torch.zeros(3)))\n",
    "only definitions": "import torch\ndef step(loss):\n    loss.backward()\n",
    "a world's step": "import torch\nfor _ in range(3):\n    world.step()\n    scheduler.step()\n",
    "no Python": "import torch\nloss.backward(\n",
    "empty": "",
}


@pytest.mark.parametrize("name", TRAINS)
def test_scripts_that_train_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.py").write_text(TRAINS[name])
    assert training_scripts(tmp_path) == [tmp_path / "x.py"]


@pytest.mark.parametrize("name", TRAINS_NOT)
def test_other_files_are_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.py").write_text(TRAINS_NOT[name])
    assert training_scripts(tmp_path) == []


def test_a_script_may_leave_the_training_to_a_module_beside_it(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(TRAINS_NOT["only definitions"])
    (tmp_path / "main.py").write_text("from loop import step\nstep(1)\n")
    assert training_scripts(tmp_path) == [tmp_path / "main.py"]


def test_one_level_is_searched_and_nothing_that_is_installed(tmp_path: Path) -> None:
    found = ["b.py", "a/c.py"]
    not_found = [".hidden/x.py", "node_modules/x.py", "venv/x.py", "own/x.py", "runs/x.py", "a/b/x.py", "a/x.txt"]
    for name in (*found, *not_found):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(PLAIN)
    (tmp_path / "own/pyvenv.cfg").touch()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "a/b")
    assert training_scripts(tmp_path) == [tmp_path / name for name in found]


def test_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{PLAIN}")
    assert training_scripts(tmp_path) and not (tmp_path / "ran").exists()
    assert training_scripts(tmp_path / "missing") == []
