"""Shows the profile of a job class, alone or beside another profile.

Both views use the same list, `profile_figures`, and so the same names. A figure that is not known is `-`, with the
reason if there is one. Joules always stand with their source, such as `measured`.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.base.joules import MODELLED
from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration, format_size, number
from ecoshare.knowledge.profile import BatchAnswers, IterationEnergy, IterationTimes, Profile
from ecoshare.reporting import memory_timeline, profile_verdict
from ecoshare.reporting.figures import UNKNOWN, Figure, Writer, can_show, share, small_energy
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

GROUP = "answers"
"""Heading of these figures in the text of a profile."""


def print_answers(profile: Profile, console: Console) -> None:
    """Print a table with a line for each batch size. The profile is that of a service."""
    say = Writer(console)
    source = profile.energy.source if profile.energy is not None else ""
    columns: tuple[tuple[str, Callable[[BatchAnswers], str], int], ...] = (
        ("batch", lambda each: str(each.size), 0),
        ("mean", _mean, 0),
        ("p50", lambda each: format_duration(each.median_s), 2),
        ("p95", lambda each: format_duration(each.p95_s), 3),
        ("p99", lambda each: format_duration(each.p99_s), 0),
        ("requests/s", _rate, 1),
        (f"energy/request,\n{source}" if source else "energy/request", _answer_joules, 0),
        ("batches\nmeasured", lambda each: str(each.count), 4),
    )
    table = [
        TableColumn(
            Text(f"  {heading}" if place == 0 else heading),
            [say.text(shown(each)) for each in profile.batches],
            right=True,
            lesser=lesser,
        )
        for place, (heading, shown, lesser) in enumerate(columns)
    ]
    print_columns(table, console)


def answer_figures(profile: Profile) -> Iterator[Figure]:
    """Figures of each batch size, to compare them with those of another profile; none if it is no service."""
    energy = profile.energy
    basis = f"{energy.source}{energy.scope}{profile.origin.device_model}" if energy is not None else ""
    for each in profile.batches:
        name = f"batch of {each.size}"
        error = each.relative_error or 0.0
        yield Figure(GROUP, f"{name}, mean", _mean(each), each.mean_s, error)
        yield Figure(GROUP, f"{name}, p99", format_duration(each.p99_s), each.p99_s)
        shown, source = _answer_joules(each), f" {energy.source}" if energy is not None and each.per_request_j else ""
        relative = each.energy_error or 0.0
        yield Figure(GROUP, f"{name}, request", shown + source, each.per_request_j, relative, basis=basis)


def _mean(each: BatchAnswers) -> str:
    error = f" ± {share(each.relative_error)}" if each.relative_error is not None else ""
    return format_duration(each.mean_s) + error


def _rate(each: BatchAnswers) -> str:
    return number(each.size / each.mean_s) if each.mean_s else UNKNOWN


def _answer_joules(each: BatchAnswers) -> str:
    if each.per_request_j is None:
        return UNKNOWN
    error = f" ± {share(each.energy_error)}" if each.energy_error is not None else ""
    return small_energy(each.per_request_j) + error


_DRAWING_ROWS = 8
_WIDEST_DRAWING = 110
_GAP = 2
_NAMES = 24
"""Width of the column of names: equal in all groups. In a narrow terminal only the figures give way."""
_DIGITS = 12
"""Digits of a source file's hash that are shown: enough to tell two hashes apart by eye."""
_MACHINE = {"uuid": "UUID", "intra_op_threads": "torch threads", "python": "Python"}


def print_profile(profile: Profile, console: Console) -> None:
    """Print all figures of a profile, with a drawing of the memory inside an iteration."""
    say = Writer(console)
    say.line(f"profile of {profile.job_class}, made {_made(profile)}", "bold")
    told = [figure for figure in profile_figures(profile) if figure.shown != UNKNOWN or not figure.is_optional]
    for group, lines in itertools.groupby(told, lambda figure: figure.group):
        console.print()
        say.line(group, "bold")
        if group == GROUP:
            print_answers(profile, console)
            continue
        own = list(lines)
        remarks = [say.text(f"  {figure.remark}" if figure.remark else "", "dim") for figure in own]
        shown = [Text.assemble(say.text(each.shown), remark) for each, remark in zip(own, remarks, strict=True)]
        print_columns([_names([figure.name for figure in own], say), TableColumn(None, shown, is_prose=True)], console)
        if group == "memory" and profile.memory.timeline:
            console.print()
            for row in _drawing(profile, console, min(console.width, _WIDEST_DRAWING)):
                say.line(row)
    _print_notes("notes", profile.notes, say)


def print_comparison(first: Profile, second: Profile, console: Console) -> None:
    """Print two profiles side by side: differences in their origin, then the figures of both and their ratios."""
    say = Writer(console)
    first, second = profile_verdict.with_common_reports(first, second)
    names = [f"{profile.job_class} {_made(profile)}" for profile in (first, second)]
    unlike = differences(first, second)
    say.line("what differs" if unlike else "class, origin and machine are the same", "bold")
    if unlike:
        what, *values = (list(column) for column in zip(*unlike, strict=True))
        heads = [say.text(name) for name in names]
        print_columns([_names(what, say, ""), *_values(heads, values, say)], console, _GAP)
    console.print()
    rows: list[tuple[str, str, str, str]] = []
    for group, pairs in itertools.groupby(_pairs(first, second), lambda pair: pair[0]):
        rows += [("", "", "", ""), (group, "", "", "")]
        rows += [(f"  {name}", one.shown, other.shown, other.against(one)) for _, name, one, other in pairs]
    what, *values = (list(column) for column in zip(*rows, strict=True))
    groups = [say.text(f"{name:<{_NAMES}}", "" if name.startswith(" ") else "bold") for name in what]
    heads = [say.text(name) for name in (*names, "second / first")]
    print_columns([TableColumn(Text(), groups), *_values(heads, values, say)], console, _GAP)
    _print_notes("verdict", [profile_verdict.verdict(first, second)], say)
    half = (console.width - _GAP) // 2
    drawings = [_drawing(profile, console, half) for profile in (first, second)]
    console.print()
    for left, right in itertools.zip_longest(*drawings, fillvalue=""):
        say.line(f"{left:<{half + _GAP}}{right}".rstrip())
    for name, profile in zip(names, (first, second), strict=True):
        _print_notes(f"notes on {name}", [profile.memory.note, *profile.notes], say)


def differences(first: Profile, second: Profile) -> list[tuple[str, str, str]]:
    """Circumstances of the two profiles that differ, origin before machine: (name, in first, in second)."""
    unlike = []
    for told in (_class, _origin, _sources, _machine):
        one, other = told(first), told(second)
        for name in dict.fromkeys([*one, *other]):
            shown, beside = one.get(name, UNKNOWN), other.get(name, UNKNOWN)
            if shown != beside:
                unlike.append((name, shown, beside))
    return unlike


def profile_figures(profile: Profile) -> list[Figure]:
    """All figures, including unknown ones, always in the same order; figures of one group are neighbours."""
    return [
        *_memory(profile),
        *answer_figures(profile),
        *_times("training iteration", profile.train, profile.eval is not None or bool(profile.batches)),
        *_times("inference iteration", profile.eval, profile.eval is None),
        *_window(profile),
        *_use(profile),
        *_energy(profile),
        *_reported(profile),
        *_setting(profile),
        *_where(profile),
    ]


def _memory(profile: Profile) -> Iterator[Figure]:
    memory, kind = profile.memory, profile.machine.kind
    sizes = [
        ("model", memory.model_bytes, "tensors alive between iterations"),
        *((f"  {name}", size_bytes, "") for name, size_bytes in memory.parts.items()),
        ("framework", memory.framework_bytes, "allocator, libraries, context"),
        ("P, kept while it waits", memory.persistent_bytes, "model and framework"),
        ("T, ephemeral", memory.ephemeral_bytes, "more than P inside an iteration"),
        ("peak of tensors", memory.peak_bytes, "alive at once"),
    ]
    if memory.seen_bytes is not None:
        sizes.append(("largest in any run", memory.seen_bytes, "granted from the next run on"))
    if not profile.machine.on_processors:
        sizes.insert(2 + len(memory.parts), ("  of which context", memory.context_bytes, "held beside the allocator"))
    note = memory.note
    for name, size_bytes, remark in sizes:
        if size_bytes is None:
            is_part = name.startswith(" ")
            yield Figure("memory", name, UNKNOWN, remark="" if is_part else note)
            note = note if is_part else ""
        else:
            # Memory beside the tensors is counted differently on each kind of device.
            basis = kind if name.startswith(("framework", "P")) else ""
            yield Figure("memory", name, format_size(size_bytes), float(size_bytes), remark=remark, basis=basis)
    if memory.timeline:
        yield Figure("memory", "timeline", counted(len(memory.timeline), "point"), remark="drawn below")
    else:
        yield Figure("memory", "timeline", UNKNOWN, remark=note)
        note = ""
    yield Figure("memory", "note", note or UNKNOWN, is_optional=True)


def _times(group: str, times: IterationTimes | None, is_optional: bool) -> Iterator[Figure]:
    if times is None:
        yield Figure(group, "median", UNKNOWN, remark="none were seen", is_optional=is_optional)
        return
    yield Figure(group, "median", format_duration(times.median_s), times.median_s)
    yield Figure(group, "p95", format_duration(times.p95_s), times.p95_s, remark="one in twenty takes longer")
    known = times.standard_error_s is not None
    error = times.standard_error_s / times.mean_s if times.standard_error_s is not None and times.mean_s else 0.0
    shown = format_duration(times.mean_s) + (f" ± {share(error)}" if known else "")
    remark = "with its standard error" if known else "error not known"
    yield Figure(group, "mean", shown, times.mean_s, error, remark)
    yield Figure(group, "measured", _iterations(times.count))


def _iterations(count: int) -> str:
    return counted(count, "iteration")


def _window(profile: Profile) -> Iterator[Figure]:
    window, group = profile.window, "window"
    yield Figure(group, "warm-up, dropped", _iterations(window.warm_up_iterations))
    yield Figure(group, "warm-up took", format_duration(window.warm_up_s))
    yield Figure(group, "measured", format_duration(window.measured_s))
    yield Figure(group, "in all", format_duration(window.total_s), remark=f"others waiting: {window.paused_jobs}")
    added, remark = (UNKNOWN, "") if window.overhead is None else (share(window.overhead), "to the window's time")
    yield Figure(group, "observing added", added, window.overhead, remark=remark, is_share=True)
    yield Figure(group, "settled", "yes" if profile.steady else "no", remark="the figures, at its end")


def _use(profile: Profile) -> Iterator[Figure]:
    use, kind = profile.use, profile.machine.kind
    is_gpu = not profile.machine.on_processors
    for name, part, remark, is_optional in (
        ("busy", use.busy, "of the time, the GPU" if is_gpu else "the processors", False),
        ("memory busy", use.memory_busy, "of the time", not is_gpu),
    ):
        shown, remark = (UNKNOWN, "") if part is None else (share(part), remark)
        yield Figure("use", name, shown, part, remark=remark, basis=kind, is_share=True, is_optional=is_optional)
    remark = "nothing tells" if use.bound_by is None else "roughly"
    bound_by = "launch/host" if use.bound_by == "host" else use.bound_by or UNKNOWN
    yield Figure("use", "bound by", bound_by, remark=remark)


def _energy(profile: Profile) -> Iterator[Figure]:
    energy, group = profile.energy, "energy"
    if energy is None:
        yield Figure(group, "training iteration", UNKNOWN, remark="there is no meter")
        return
    # Modelled joules use constants of a device model, so they compare only within it. A counter's joules always do.
    basis = energy.source + energy.scope + (profile.origin.device_model if energy.source == MODELLED else "")
    for name, per_iteration_j, beyond_idle_j, seen in (
        ("training iteration", energy.per_iteration_j, energy.active_per_iteration_j, profile.train),
        ("inference iteration", energy.per_eval_iteration_j, energy.active_per_eval_iteration_j, profile.eval),
    ):
        has_others = profile.eval is not None or bool(profile.batches)
        is_optional = seen is None and (has_others or not name.startswith("training"))
        yield _joules(name, per_iteration_j, energy, basis, is_optional)
        yield _joules(f"{name.split()[0]}, beyond idle", beyond_idle_j, energy, basis, is_optional)
    for name, power_w, remark in (
        ("power", energy.power_w, "mean"),
        ("idle power", energy.idle_w, "contexts up, nothing running"),
    ):
        shown = UNKNOWN if power_w is None else f"{number(power_w)} W {energy.source}"
        yield Figure(group, name, shown, power_w, remark="" if power_w is None else remark, basis=basis)
    known = energy.idle_share is not None
    shown = UNKNOWN if energy.idle_share is None else f"{share(energy.idle_share)} {energy.source}"
    remark = "of the joules" if known else "idle power could not be had"
    yield Figure(group, "idle share", shown, energy.idle_share, remark=remark, basis=basis, is_share=True)
    yield Figure(group, "meter", f"{energy.meter} ({energy.scope})", remark=energy.about)


def _joules(name: str, energy_j: float | None, energy: IterationEnergy, basis: str, is_optional: bool) -> Figure:
    if energy_j is None:
        return Figure("energy", name, UNKNOWN, is_optional=is_optional)
    error = f" ± {share(energy.relative_error)}" if energy.relative_error is not None else ""
    shown = f"{small_energy(energy_j)}{error} {energy.source}"
    remark = "" if error else "error not known"
    return Figure("energy", name, shown, energy_j, energy.relative_error or 0.0, remark, basis)


def _reported(profile: Profile) -> Iterator[Figure]:
    for name, values in profile.reported.items():
        if not values:
            continue
        shown = UNKNOWN if values[-1] is None else number(values[-1])
        yield Figure("reported", f"{name}, report {len(values)}", shown, values[-1])


def _setting(profile: Profile) -> Iterator[Figure]:
    setting = profile.setting
    for name, value, unit in (
        ("GPU clock", setting.gpu_clock_mhz, "MHz"),
        ("memory clock", setting.memory_clock_mhz, "MHz"),
        ("power limit", setting.power_limit_w, "W"),
    ):
        is_optional = profile.machine.on_processors
        if value is None:
            yield Figure("setting", name, UNKNOWN, remark="the device does not say", is_optional=is_optional)
        else:
            yield Figure("setting", name, f"{number(value)} {unit}", value)


def _where(profile: Profile) -> Iterator[Figure]:
    sources = ", ".join(profile.origin.sources) or UNKNOWN
    for name, shown in {**_origin(profile), "sources": sources, **_machine(profile)}.items():
        yield Figure("where", name, shown, is_optional=name == "class given" or profile.machine.on_processors)


def _made(profile: Profile) -> str:
    return profile.made_utc.replace("T", " ")


def _class(profile: Profile) -> dict[str, str]:
    return {"class": profile.job_class}


def _origin(profile: Profile) -> dict[str, str]:
    origin = profile.origin
    return {
        "script": origin.script,
        "class given": UNKNOWN if origin.given is None else origin.given,
        "arguments": shlex.join(origin.args) or "(none)",
        "device model": origin.device_model,
        "torch": origin.torch,
    }


def _sources(profile: Profile) -> dict[str, str]:
    return {f"source {path}": digest[:_DIGITS] for path, digest in profile.origin.sources.items()}


def _machine(profile: Profile) -> dict[str, str]:
    told = profile.machine.model_dump()
    return {_MACHINE.get(name, name): UNKNOWN if told[name] is None else str(told[name]) for name in told}


def _pairs(first: Profile, second: Profile) -> Iterator[tuple[str, str, Figure, Figure]]:
    """Group, name and both figures, without the group `where`, in the order of `first`; a missing figure is unknown."""
    one, other = ({figure.key: figure for figure in profile_figures(each)} for each in (first, second))
    groups = dict.fromkeys(group for group, _ in [*one, *other] if group != "where")
    for wanted in groups:
        for group, name in dict.fromkeys([*one, *other]):
            none = Figure(group, name, UNKNOWN, is_optional=True)
            left, right = one.get((group, name), none), other.get((group, name), none)
            is_told = left.shown != UNKNOWN or right.shown != UNKNOWN or not (left.is_optional and right.is_optional)
            if group == wanted and is_told:
                yield group, name, left, right


def _drawing(profile: Profile, console: Console, width: int) -> list[str]:
    blocks = can_show(memory_timeline.BLOCKS, console.encoding)
    return memory_timeline.terminal(profile.memory.timeline, width, _DRAWING_ROWS, blocks=blocks)


def _print_notes(title: str, notes: Iterable[str], say: Writer) -> None:
    for index, note in enumerate(note for note in notes if note):
        if not index:
            say.console.print()
            say.line(title, "bold")
        say.line(f"  {note}")


def _names(names: Sequence[str], say: Writer, heading: str | None = None) -> TableColumn:
    """Column with the names of figures, equally wide in each group."""
    head = None if heading is None else Text(heading)
    return TableColumn(head, [say.text(f"  {name}".ljust(_NAMES)) for name in names])


def _values(headings: Sequence[Text], columns: Sequence[Sequence[str]], say: Writer) -> list[TableColumn]:
    return [
        TableColumn(heading, [say.text(cell) for cell in cells], is_prose=True)
        for heading, cells in zip(headings, columns, strict=True)
    ]
