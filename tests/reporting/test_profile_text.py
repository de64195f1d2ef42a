"""Printed profile, read back."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from ecoshare.knowledge.profile import AchievedSetting, IterationTimes, Machine, Profile, ProfileOrigin, Use
from ecoshare.reporting.figures import Figure, printable, small_energy
from ecoshare.reporting.profile_text import differences, print_comparison, print_profile, profile_figures
from tests.reporting.profiles import ENERGY, MEMORY, MIB, NOTHING_KNOWN, PROFILE, SERVICE, TIMELINE

SOURCES = ["source train.py", "source new.py"]
HOSTILE = "[bold red]x[/] <b>&amp; \x1b[31m\r\n\u202e"


def changed(part: str | None = None, /, **fields: Any) -> Profile:
    """Profile with other fields, in it or in one of its parts."""
    if part is not None:
        fields = {part: getattr(PROFILE, part).model_copy(update=fields)}
    return PROFILE.model_copy(update=fields)


def printed(*profiles: Profile, width: int = 80, encoding: str = "utf-8", terminal: bool = False) -> str:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="") as file:
        console = Console(file=file, width=width, force_terminal=terminal, legacy_windows=False)
        if len(profiles) == 1:
            print_profile(profiles[0], console)
        else:
            first, second = profiles
            print_comparison(first, second, console)
        file.flush()
        return raw.getvalue().decode(encoding)


def rows(text: str) -> dict[str, str]:
    """Parts of each line by its name; two spaces or more separate parts."""
    parts = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in text.splitlines()]
    return {name: rest[0] for name, *rest in parts if rest}


def test_the_figures_are_those_of_the_profile() -> None:
    read = rows(printed(PROFILE, width=200))
    assert read["model"].startswith("1.17 GiB") and read["framework"].startswith("300 MiB")
    assert read["P, kept while it waits"].startswith("1.46 GiB") and read["T, ephemeral"].startswith("2.05 GiB")
    assert read["parameters"] == "400 MiB" and read["graph"] == "0 B" and read["other"] == "-"
    assert read["median"] == "12.4 ms" and read["p95"].startswith("15.1 ms")
    assert read["mean"].startswith("12.6 ms ± 1 %")
    assert read["warm-up, dropped"] == "20 iterations" and read["warm-up took"] == "4.1 s"
    assert read["busy"].startswith("93 %") and read["bound by"] == "compute  roughly"
    assert read["training iteration"] == "4.25 J ± 1.2 % measured"
    assert read["idle share"].startswith("20 % measured") and read["meter"].startswith("nvml (gpu)")
    assert read["GPU clock"] == "1980 MHz" and read["driver"] == "570.86" and read["torch"] == "2.9.0"
    assert "inference iteration" not in read, "an inference was told of where none was seen"


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_the_console(width: int) -> None:
    for text in (printed(PROFILE, width=width), printed(PROFILE, NOTHING_KNOWN, width=width)):
        assert max(map(len, text.splitlines())) <= width


def test_what_is_not_known_is_never_a_number() -> None:
    unknown = [
        figure for figure in profile_figures(NOTHING_KNOWN) if figure.group in {"memory", "use", "energy", "setting"}
    ]
    assert {figure.shown for figure in unknown if figure.name != "note"} == {"-"}
    read = rows(printed(NOTHING_KNOWN))
    assert read["model"] == "-  the script uses a profiler itself", "the reason was known"
    assert read["median"] == "-  none were seen" and read["observing added"] == "-"
    assert read["settled"].startswith("no ") and read["training iteration"].startswith("-  there is no meter")
    assert "no meter could be opened" in printed(NOTHING_KNOWN)
    assert not re.search(r"[▁-█]|\d J", printed(NOTHING_KNOWN))


@pytest.mark.parametrize("source", ["measured", "modelled"])
def test_joules_are_never_without_the_word(source: str) -> None:
    fields = {"per_eval_iteration_j": 0.04, "active_per_eval_iteration_j": 3e-5, "source": source}
    error = 0.01 if source == "measured" else None
    profile = changed("energy", **fields, relative_error=error)
    told = [line for line in printed(profile).splitlines() if re.search(r"\d (u|m|k)?J\b|\d W\b", line)]
    assert len([line for line in told if source in line]) == 6
    assert [line.split()[:2] for line in told if source not in line] == [["power", "limit"]]
    assert ("error not known" in printed(profile)) == (source == "modelled")


def test_joules_too_small_for_others_are_not_shown_as_none() -> None:
    assert small_energy(4e-7) == "0.4 uJ" and small_energy(0.0) == "0 J" and small_energy(0.0009999) == "1 mJ"


def test_a_memory_that_is_known_in_part_says_what_is_missing() -> None:
    memory = MEMORY.model_copy(update={"persistent_bytes": None, "note": "an odd allocator"})
    assert rows(printed(changed(memory=memory)))["P, kept while it waits"] == "-  an odd allocator"
    complete = MEMORY.model_copy(update={"note": "too many nodes"})
    assert rows(printed(changed(memory=complete)))["note"] == "too many nodes"


def test_no_colours_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in printed(PROFILE) and "\x1b[1m" in printed(PROFILE, terminal=True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_an_encoding_without_blocks_gets_others(encoding: str) -> None:
    text = printed(changed(job_class="名"), PROFILE, encoding=encoding)
    assert "\\u540d" in text and "3.22 GiB +" in text


def test_markup_and_control_characters_are_shown_not_obeyed() -> None:
    origin = PROFILE.origin.model_copy(update={"script": HOSTILE, "args": (HOSTILE,), "sources": {HOSTILE: "00"}})
    hostile = changed(
        job_class=HOSTILE, notes=(HOSTILE,), origin=origin, energy=ENERGY.model_copy(update={"about": HOSTILE})
    )
    for text in (printed(hostile, width=200), printed(PROFILE, hostile, width=200)):
        assert not set(text) & {"\x1b", "\r", "\u202e"}
        assert text.count("[bold red]x[/] <b>&amp; \\x1b[31m  \\u202e") >= 4


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (PROFILE, []),
        (changed("origin", args=("--lr", "0.2")), ["arguments"]),
        (changed("origin", args=("(none)",)), ["arguments"]),
        (changed("origin", sources={"train.py": "c3", "model.py": "b2" * 32, "new.py": "d4"}), SOURCES),
        (changed("origin", sources={"train.py": "a1" * 32}), ["source model.py"]),
        (changed("origin", device_model="NVIDIA A100", torch="2.8.0"), ["device model", "torch"]),
        (changed("origin", script="/tmp/x.py", given="vision"), ["script", "class given"]),
        (changed("machine", driver="580.1", uuid="GPU-5", cores=4), ["UUID", "driver", "cores"]),
        (changed(job_class="vgg"), ["class"]),
    ],
)  # fmt: skip
def test_every_difference_is_named(other: Profile, names: list[str]) -> None:
    assert [name for name, *_ in differences(PROFILE, other)] == names
    lines = printed(PROFILE, other, width=200).splitlines()
    assert lines[0] == ("what differs" if names else "class, origin and machine are the same")
    assert [line.split("  ")[1] for line in lines[2 : 2 + len(names)]] == names


@pytest.mark.parametrize("part", ["origin", "machine"])
def test_no_field_of_the_circumstances_is_passed_over(part: str) -> None:
    fields = (ProfileOrigin if part == "origin" else Machine).model_fields
    for name in fields:
        other = {"sources": {}, "args": (), "cores": 99, "intra_op_threads": 99}.get(name, "another")
        assert len(differences(PROFILE, changed(part, **{name: other}))) >= 1, name


def test_figures_are_compared_by_ratio_and_shares_by_difference() -> None:
    other = changed(
        train=IterationTimes(count=9, mean_s=0.0252, standard_error_s=None, median_s=0.0062, p95_s=0.0151),
        use=Use(busy=0.7, bound_by="host"),
        energy=ENERGY.model_copy(update={"per_iteration_j": 8.5}),
        memory=MEMORY.model_copy(update={"persistent_bytes": 3000 * MIB, "timeline": TIMELINE[:3]}),
    )
    read = rows(printed(PROFILE, other, width=200))
    assert read["median"].split() == ["12.4", "ms", "6.2", "ms", "0.5"]
    assert read["mean"].endswith("2 ± 0.02") and read["P, kept while it waits"].split()[-1] == "2"
    assert read["busy"].endswith("-23 points") and read["memory busy"].split() == ["41", "%", "-", "-"]
    assert read["bound by"].split() == ["compute", "launch/host"]
    assert read["training iteration"].endswith("2 ± 0.034")


def test_only_what_means_the_same_is_compared() -> None:
    modelled = changed("energy", source="modelled", relative_error=None)
    assert rows(printed(PROFILE, modelled, width=200))["training iteration"].endswith("not comparable")
    processors = changed("machine", kind="cpu")
    read = rows(printed(PROFILE, processors, width=200))
    assert read["P, kept while it waits"].endswith("not comparable") and read["model"].split()[-1] == "1"
    assert Figure("g", "n", "0 B", 5.0).against(Figure("g", "n", "0 B", 0.0)) == ""


def test_nothing_of_a_gpu_is_told_of_processors() -> None:
    machine = PROFILE.machine.model_copy(update={"kind": "cpu", "uuid": None, "driver": None})
    text = printed(
        changed(machine=machine, setting=AchievedSetting(), memory=MEMORY.model_copy(update={"context_bytes": None}))
    )
    assert not {"UUID", "driver", "GPU clock", "of which context"} & rows(text).keys()


def test_no_two_figures_have_one_name() -> None:
    keys = [figure.key for figure in profile_figures(PROFILE)]
    assert len(keys) == len(set(keys)), "a comparison would lose one"


def test_text_is_spelled_in_what_the_encoding_has() -> None:
    assert printable("3 ± 1 ü\t[x]", "ascii") == "3 +- 1 \\xfc [x]"
    assert printable("\ud800") == "\\ud800"


def test_a_service_has_a_line_for_each_batch_size_and_no_iterations() -> None:
    text = printed(SERVICE, width=120)
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    at = lines.index(["answers"])
    assert lines[at + 1 : at + 5] == [
        ["energy/request,", "batches"],
        ["batch", "mean", "p50", "p95", "p99", "requests/s", "measured", "measured"],
        ["1", "8 ms ± 1 %", "7.9 ms", "8.5 ms", "9 ms", "125", "2.72 J ± 1.5 %", "400"],
        ["4", "12.5 ms", "12 ms", "14 ms", "15 ms", "320", "-", "250"],
    ]
    assert "iteration" not in rows(text).keys() - {"warm-up, dropped"} and "training iteration" not in text
    narrow = printed(SERVICE, width=60)
    assert max(map(len, narrow.splitlines())) <= 60 and "2.72 J ± 1.5 %" in narrow


def test_answers_of_two_profiles_are_compared_by_size() -> None:
    slower = SERVICE.batches[0].model_copy(update={"mean_s": 0.016, "standard_error_s": None, "per_request_j": 5.44})
    read = rows(printed(SERVICE, SERVICE.model_copy(update={"batches": (slower,)}), width=200))
    assert read["batch of 1, mean"].split() == ["8", "ms", "±", "1", "%", "16", "ms", "2", "±", "0.02"]
    assert read["batch of 1, request"].endswith(" 2 ± 0.042")
    assert read["batch of 4, p99"].split() == ["15", "ms", "-", "-"], "the other one was not measured with 4"
