"""Faulty jobs beside neighbours: the fault ends with its job, and the neighbours print the same as alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.fuzz.commands import judge, nothing_left, started, token_of
from scripts.fuzz.rounds import Lost, Play, Round, main
from tests.runtime.running import SCRIPTS, alone, check, job_file, slow_steps, words

TIMEOUT_S = 1.5
"""Timeout (s) of a faulty job: its longest time without a step."""

_HEAD = """
import atexit, ctypes, gc, os, random, resource, signal, subprocess, sys, tempfile, threading, time, weakref
import torch
torch.manual_seed({seed})
model = torch.nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(steps):
    for step in range(steps):
        loss = model(torch.randn(8, 32)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(step, loss.item())
train({before})
"""

_TAIL = "\ntrain({after})\n"

FAULTS: dict[str, Callable[[random.Random], str]] = {
    "raises": lambda dice: dice.choice(
        [
            "raise ValueError('labels ran out')",
            "raise KeyboardInterrupt",
            "raise SystemExit({1: 2})",
            "raise BaseException('\\x1b[2J\\ud800\\0')",
            "raise type('E' * 5000, (Exception,), {'__str__': lambda self: 1 / 0})()",
            "raise ExceptionGroup('several', [ValueError(1), OSError(2, 'x')])",
            "raise MemoryError",
            "raise StopIteration",
        ]
    ),
    "exits": lambda dice: dice.choice(
        [
            f"os._exit({dice.randrange(256)})",
            f"sys.exit({dice.choice(['None', '0', '3', '-1', '10**30', repr('told so'), '[]', 'object()', '1.5'])})",
            "import _thread; threading.Thread(target=lambda: os._exit(7)).start(); time.sleep(5)",
            "atexit.register(lambda: 1 / 0); sys.exit(0)",
            "atexit.register(lambda: os._exit(9))",
            "os.execv('/bin/sh', ['sh', '-c', 'exit 5'])",
            "os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
        ]
    ),
    "crashes": lambda dice: dice.choice(
        [
            "ctypes.string_at(0)",
            "ctypes.memset(id(model), 255, 400); print(model)",
            "os.abort()",
            "sys.setrecursionlimit(10**9)\ndef deep(n): return deep(n + 1) + 1\ndeep(0)",
            "ctypes.CDLL(None).raise_(8) if hasattr(ctypes.CDLL(None), 'raise_') else ctypes.CDLL(None)['raise'](8)",
        ]
    ),
    "signals itself": lambda dice: (
        f"os.kill(os.getpid(), {dice.choice([1, 2, 3, 6, 9, 10, 12, 13, 14, 15, 17, 18, 24, 28])}); time.sleep(0.1)"
    ),
    "signals its group": lambda dice: (
        f"signal.signal(15, signal.SIG_IGN); {dice.choice(['os.killpg(0, 15)', 'os.kill(0, 15)', 'os.killpg(0, 9)'])}"
    ),
    "stops itself": lambda dice: f"os.kill(os.getpid(), {dice.choice([19, 20])}); time.sleep(100)",
    "hangs": lambda dice: dice.choice(
        [
            "time.sleep(1000)",
            "while True: pass",
            "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]\nwhile True: time.sleep(0.1)",
            "lock = threading.Lock(); lock.acquire(); lock.acquire()",
            "os.read(os.pipe()[0], 1)",
            "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); time.sleep(1000)",
            "threading.Thread(target=time.sleep, args=(1000,)).start()",
            "atexit.register(time.sleep, 1000)",
        ]
    ),
    "leaves processes": lambda dice: dice.choice(
        [
            "subprocess.Popen(['sleep', '1000'])",
            "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
            "os.fork() or time.sleep(1000)",
            "os.fork() or (os.setsid(), os.fork() or time.sleep(1000), os._exit(0))",
            "[subprocess.Popen(['sleep', '1000']) for _ in range(20)]; os.kill(os.getpid(), 9)",
            "subprocess.Popen(['sh', '-c', 'trap \"\" 1 2 15; sleep 1000'], start_new_session=True); raise ValueError",
        ]
    ),
    "closes files": lambda dice: dice.choice(
        [
            "os.closerange(3, 1000)",
            "os.closerange(0, 1000)",
            "sys.stdout.close()",
            "sys.stdout = sys.stderr = None",
            f"os.close({dice.randrange(30)})",
            "[os.dup2(os.open('/dev/null', os.O_RDWR), n) for n in range(3, 40)]",
            "[os.open('/dev/null', os.O_RDWR) for _ in range(100000)]",
            "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); open('/dev/null')",
        ]
    ),
    "writes to every file": lambda dice: (
        "for n in range(3, 64):\n"
        "    try: os.set_blocking(n, False); os.write(n, os.urandom(4096))\n"
        "    except OSError: pass"
    ),
    "prints rubbish": lambda dice: dice.choice(
        [
            "os.write(1, os.urandom(1 << 20))",
            "sys.stdout.write('\\x1b[2J\\x1b]0;title\\x07\\0' * 1000)",
            "print('x' * (20 << 20))",
            "os.write(2, b'\\xff' * 100000); raise ValueError",
            "os.set_blocking(1, False); print('x' * (1 << 22))",
            "os.ftruncate(1, 0)",
            "sys.stderr.write('Traceback (most recent call last):\\n' * 100); sys.exit(1)",
        ]
    ),
    "takes memory": lambda dice: dice.choice(
        [
            "kept = [bytearray(b'x') * (64 << 20) for _ in range(100)]",
            "torch.ones(1 << 40)",
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20)); torch.ones(1 << 22)",
        ]
    ),
    "changes its surroundings": lambda dice: dice.choice(
        [
            "os.environ.clear(); os.chdir('/'); os.umask(0o777)",
            "d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
            "os.nice(19); sys.setswitchinterval(100)",
            "torch.set_num_threads(64)",
            "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01); signal.signal(14, lambda *_: None)",
            "signal.setitimer(signal.ITIMER_PROF, 0.01)",
            "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); print('x' * 100000, flush=True)",
            "os.setsid() if os.getpgid(0) != os.getpid() else os.setpgid(0, 0)",
            "ctypes.CDLL(None).prctl(1, 9)",
            "sys.settrace(lambda *_: 1 / 0); (lambda: 0)()",
        ]
    ),
    "breaks libraries": lambda dice: dice.choice(
        [
            "torch.nn.Module.__call__ = lambda *_: 1 / 0",
            "torch.optim.SGD.step = None",
            "del sys.modules['torch']; sys.modules['os'] = None; import torch",
            "sys.modules.clear()",
            "gc.disable(); gc.set_threshold(0); time.monotonic = lambda: 0.0; time.sleep = None",
            "import builtins; builtins.open = builtins.print = None",
            "os.write = os.kill = os.getpid = None",
            "sys.exit = os._exit = None",
            "sys.excepthook = threading.excepthook = lambda *_: 1 / 0\n1 / 0",
            "model.weight.data.fill_(float('nan'))",
            "[handle.clear() for handle in (model._forward_hooks, model._forward_pre_hooks)]",
        ]
    ),
    "replaces its logs": lambda dice: (
        f"p = 'ecoshare-runs/latest/jobs/bad/{dice.choice(['stderr.log', 'stdout.log', 'exit-1.json'])}'\n"
        "try: os.remove(p)\nexcept OSError: pass\n"
        + dice.choice(
            ["os.mkfifo(p)", "os.symlink('/dev/zero', p)", "os.mkdir(p)", "os.symlink(p, p)", "os.symlink('/', p)"]
        )
        + dice.choice(["", "\n1 / 0", "\nos._exit(3)", "\nos.kill(os.getpid(), 9)"])
    ),
    "loses workers": lambda dice: (
        "class Bad(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        f"    def __getitem__(self, n): {dice.choice(['os._exit(1)', '1 / 0', 'os.kill(os.getpid(), 9)'])}\n"
        "for _ in torch.utils.data.DataLoader(Bad(), num_workers=1): pass"
    ),
}
"""Code that a job runs between its steps, by kind of fault."""

FILES: dict[str, Callable[[random.Random], bytes]] = {
    "is no program": lambda dice: dice.choice(
        [
            b"",
            b"\0",
            b"\xff\xfe",
            b"def",
            b"(" * 10_000,
            b"# coding: nonsense\n",
            dice.randbytes(500),
            b"\x7fELF",
            b"1 / 0",
        ]
    ),
    "removes its own files": lambda dice: dice.choice(
        [
            b"import os, sys; os.remove(sys.argv[0]); 1 / 0",
            b"import os; [os.remove(os.path.join(os.getcwd(), n)) for n in os.listdir() if n.endswith('.py')]",
            b"import os, pathlib\nfor p in pathlib.Path('ecoshare-runs/latest/jobs/bad').glob('*'): p.unlink()",
            b"import pathlib\np = pathlib.Path('ecoshare-runs/latest/jobs/bad'); p.rename(str(p) + '-1'); p.touch()",
        ]
    ),
}


def prepare(_folder: Path) -> Play:
    """Output of the neighbours alone."""
    steps = slow_steps("steps", 25, 4)
    expected = {
        "steps": alone(SCRIPTS / "slow_steps.py", tuple(steps["args"]), SCRIPTS)[1],
        "validation": alone(SCRIPTS / "validation.py", (), SCRIPTS)[1],
    }
    neighbours = [steps, {"name": "validation", "script": str(SCRIPTS / "validation.py")}]

    def play(one: Round) -> None:
        bad = _faulty(one)
        jobs = [*neighbours, bad]
        one.dice.shuffle(jobs)
        path = job_file(one.folder, *jobs)
        options = one.dice.choice(
            [(), ("--policy", "fifo"), ("--lanes", "2"), ("--policy", "pack"), ("--policy", "srtf")]
        )
        one.story.append(f"options {' '.join(options) or 'none'}, isolation {bad.get('isolation', 'process')}")
        # A server that was forked has files of the tests, which a job could write to.
        loads = one.kind in ("closes files", "writes to every file")
        done = started(*words(path, *options), "--memory", "6 GiB", limit_s=90.0, cwd=one.folder, loads=loads)
        run = one.folder / "ecoshare-runs" / "latest"
        if (run / "environment.json").is_file():
            nothing_left(token_of(run))
        judge(done)
        if done.code not in (0, 1):
            raise Lost(f"a faulty job ends the run with {done.code}", done.stderr[-800:])
        for name, output in expected.items():
            if (run / "jobs" / name / "stdout.log").read_bytes() != output:
                raise Lost("a neighbour prints something else", f"{name}\n{done.stderr[-800:]}\n{done.stdout[-800:]}")
        check(run)

    return play


def _faulty(one: Round) -> dict[str, Any]:
    """Job with a fault."""
    dice = one.dice
    one.kind = dice.choice([*FAULTS, *FILES])
    script = one.folder / "bad.py"
    if one.kind in FILES:
        script.write_bytes(FILES[one.kind](dice))
        one.story.append(repr(script.read_bytes()[:200]))
    else:
        fault = FAULTS[one.kind](dice)
        before, after = dice.choice([0, 1, 12]), dice.choice([0, 0, 3])
        script.write_text(_HEAD.format(seed=dice.randrange(99), before=before) + fault + _TAIL.format(after=after))
        one.story.append(f"after {before} steps, before {after}: {fault}")
    # The timeouts count while it holds the turn; that of the start is longer, since it holds the import of torch, too.
    limits = {"timeout": f"{TIMEOUT_S} s", "startup_timeout": "4 s"}
    isolation = dice.choices(["process", "fresh", "lane"], [8, 1, 2])[0]
    return {"name": "bad", "script": str(script), "isolation": isolation, "retries": dice.choice([0, 0, 1]), **limits}


if __name__ == "__main__":
    main("faulty_jobs", __doc__, prepare)
