"""Damaged traces and tables of the simulator give a result, or mistakes with a place in the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.cli.simulate import simulate
from scripts.fuzz.commands import called, is_json, judge
from scripts.fuzz.damage import damage_bytes, damage_cells, damage_json, damage_place, dumped
from scripts.fuzz.rounds import Lost, Play, Round, main, within

LIMIT_S = 8.0

TIRESIAS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "7,4,30,100,vgg16,50.5,30\n3,1,0,7,my_net,0.1,0\n4,2,12,50,resnet50,20,12\n"
)
PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:00:10,60.0,8,480.0,a\n2017-10-09 07:00:00,0.0,1,0.0,a\n2017-10-09 06:59:00,1.5,1,1.5,b\n"
)
PHILLY_LOG = json.dumps(
    [
        {
            "status": "Pass",
            "vc": "a",
            "jobid": f"application_{number}",
            "attempts": [
                {
                    "start_time": "2017-10-03 00:15:05",
                    "end_time": "2017-10-03 00:35:30",
                    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
                }
            ],
            "submitted_time": "2017-10-03 00:13:19",
            "user": "u",
        }
        for number in range(2)
    ],
    indent=1,
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "7,u,v,2,1,1,FAILED,2020-06-09 18:41:01,2020-06-09 18:41:27,2020-06-09 18:42:27,60,26\n"
    "8,u,v,0,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:27,2020-06-09 18:42:27,60,26\n"
)
PAI = (
    "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,wait_time,user_dur,group_dur,group_gpu_dur\n"
    "5,1,90,6,0.25,T4,60,u,1,,,\n6,2,30,6,0.5,P100,60,u,1,1,1,1\n7,1,30,6,0,CPU,60,u,,,,\n"
)
PAI_TASKS = (
    "a1,ps,2.0,Terminated,900.0,2000.0,600.0,29.3,,\na1,worker,4.0,Terminated,1000.0,1900.0,600.0,29.3,100.0,P100\n"
    "b2,tensorflow,1.0,Failed,940.0,950.0,600.0,29.3,25.0,T4\n"
)
GAVEL = (
    "LM (batch size 10)\tpython3 main.py --data %s/x\tlm\t--steps\t1\t100\t1\t1\t-1.000000\t0\n"
    "LM (batch size 20)\tpython3 main.py --data %s/x\tlm\t--steps\t1\t900\t1\t1\t-1.000000\t5\n"
)
SHOCKWAVE = (
    "LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t95\t1\tgns\t1\t-1.000000\t2\t5\n"
    "LM (batch size 20)\tpython3 main.py\tlm\t--steps\t1\t40\t1\tstatic\t1\t-1.000000\t1\t6\n"
)
OWN = (
    "name,class,arrival_s,launch_s,startup_s,gpus,priority,persistent_bytes,ephemeral_bytes,skew,announced,phases\n"
    "0,vgg16,12.5,,0.0,2,0,,,0.7427229,1,1000 x 0.25; 500 x 0.4\n"
    "1,lm,0,1.5,0.0,1,-2,1000000,2000000,,0,500 x 0.4 / 50\n"
)
SPEEDS = {
    "v100": {
        "('LM (batch size 10)', 1)": {
            "null": 50.0,
            "('LM (batch size 10)', 1)": [20.0, 20.0],
            "('LM (batch size 20)', 1)": [30.0, 25.0],
        },
        "('LM (batch size 20)', 1)": {"null": 40.0, "('LM (batch size 10)', 1)": [25.0, 30.0]},
        "('LM (batch size 10)', 2)": {"null": 80.0},
    },
    "k80": {"LM (batch size 10)": {"null": 5.0}},
}
SCHEDULES = {
    "jobs": [
        {
            "job": 0,
            "job_type": "LM (batch size 10)",
            "gpus": 1,
            "mode": "gns",
            "epochs": 10,
            "samples_per_epoch": 95,
            "batch_size_runs": [[10, 6], [20, 4]],
        },
        {
            "job": 1,
            "job_type": "LM (batch size 20)",
            "gpus": 1,
            "mode": "static",
            "epochs": 8,
            "samples_per_epoch": 95,
            "batch_size_runs": [[20, 8]],
        },
    ]
}
CALIBRATION = "device,class,speed\nn0g0,vgg16,0.93\nn0g0,,0.98\nn0g1,lm,1.1\n"
HISTORY = "gpu_seconds\n100\n2000.5\n30\n"


@dataclass(frozen=True)
class Form:
    """Files that go together, and the options that name them.

    Attributes:
        files: Content by name; that of `trace` is the trace.
        options: Files by option of `ecoshare simulate`.
        separator: Separator of the cells of the trace.
        more: Other options.
    """

    files: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)
    separator: str = ","
    more: dict[str, Any] = field(default_factory=dict)


_SPEEDS = json.dumps(SPEEDS, indent=1)

FORMS = {
    "Tiresias": Form({"trace": TIRESIAS}, more={"nodes": "2x4", "policy": "tiresias,fifo"}),
    "Philly": Form({"trace": PHILLY}, more={"gpus": 8, "policy": "srtf"}),
    "Philly, log": Form({"trace": PHILLY_LOG}, more={"gpus": 8, "policy": "srtf"}),
    "Helios": Form({"trace": HELIOS}, more={"gpus": 8, "policy": "fifo"}),
    "PAI": Form({"trace": PAI}, more={"gpus": 8, "policy": "fifo", "lanes": 4}),
    "PAI, tasks": Form({"trace": PAI_TASKS}, more={"gpus": 8, "policy": "fifo", "lanes": 4}),
    "Gavel": Form({"trace": GAVEL, "speeds": _SPEEDS}, {"speeds": "speeds"}, "\t", {"policy": "fifo"}),
    "Gavel, pairs": Form(
        {"trace": GAVEL, "speeds": _SPEEDS},
        {"speeds": "speeds", "pairs": "speeds"},
        "\t",
        {"objective": "energy", "lanes": 2},
    ),
    "Shockwave": Form(
        {"trace": SHOCKWAVE, "speeds": _SPEEDS, "schedules": json.dumps(SCHEDULES)},
        {"speeds": "speeds", "schedules": "schedules"},
        "\t",
        {"policy": "srtf"},
    ),
    "own": Form({"trace": OWN}, more={"gpus": 2, "policy": "fifo,priority"}),
    "own, calibration": Form(
        {"trace": OWN, "calibration": CALIBRATION}, {"calibration": "calibration"}, more={"gpus": 2, "policy": "pal"}
    ),
    "own, history": Form(
        {"trace": OWN, "history": HISTORY}, {"history": "history"}, more={"gpus": 2, "policy": "gittins"}
    ),
}


def prepare(folder: Path) -> Play:
    """Check that each format is valid before it is damaged."""
    for number, form in enumerate(FORMS.values()):
        (own := folder / str(number)).mkdir()
        _write(form, own)
        if (done := called("simulate", _command(form, own))).code:
            raise RuntimeError(done.stderr)

    def play(one: Round) -> None:
        one.kind = one.dice.choice(list(FORMS))
        form = FORMS[one.kind]
        _write(form, one.folder)
        for _ in range(one.dice.choice([1, 1, 1, 2, 3])):
            _damage(one, form)
        words = f"simulate {one.kind}"
        with within(LIMIT_S):
            done = called(words, _command(form, one.folder))
        judge(done, named=[f"{one.folder}/"])
        if done.code == 0:
            is_json(done)
        elif done.code not in (2, 3, 4):
            raise Lost(f"a damaged file is told with exit code {done.code}", done.stderr[:500])

    return play


def _write(form: Form, folder: Path) -> None:
    for name, content in form.files.items():
        (folder / name).write_text(content)


def _command(form: Form, folder: Path) -> Callable[[], None]:
    options: dict[str, Any] = {option: folder / name for option, name in form.options.items()}
    return lambda: simulate(folder / "trace", as_json=True, **options, **form.more)


def _damage(one: Round, form: Form) -> None:
    """Damage one of the files."""
    dice = one.dice
    name = dice.choice([*form.files, "trace"])
    path = one.folder / name
    if not path.is_file() or path.is_symlink():  # it was damaged before
        return
    data = path.read_bytes()
    way = dice.choices(["values", "bytes", "place"], [6, 3, 0.5])[0]
    try:
        if way == "place":
            what = damage_place(dice, path, is_named=True)
        elif way == "values" and data.lstrip().startswith((b"[", b"{")):
            changed, what = damage_json(dice, json.loads(data))
            path.write_bytes(dumped(changed).encode(errors="surrogatepass"))
        elif way == "values":
            data, what = damage_cells(dice, data, form.separator)
            path.write_bytes(data)
        else:
            data, what = damage_bytes(dice, data)
            path.write_bytes(data)
    except (ValueError, IndexError, RecursionError):  # it was damaged before
        data, what = damage_bytes(dice, data)
        path.write_bytes(data)
    one.story.append(f"{name}: {what}")


if __name__ == "__main__":
    main("traces", __doc__, prepare)
