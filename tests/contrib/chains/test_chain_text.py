"""A chain of allocations in the terminal and in the report of its run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ecoshare.contrib.chains.allocation_chain import AllocationEnd, ChainAccount
from ecoshare.contrib.chains.chain_record import write_chain
from ecoshare.contrib.chains.provisioner import Decision
from ecoshare.contrib.chains.report import account_lines, chain_rows, decision_lines, print_chain
from ecoshare.reporting.html import html
from tests.contrib.chains.made_chains import chain, over, waits
from tests.reporting.made_run import run

SECOND = replace(over(2, 880.0, 1800.0), works_from_s=905.0, idle_j=1500.0, idle_source="measured", due_s=900.0)
CHAIN = chain(over(1, 10.0, 900.0), SECOND, over(3, 1900.0, 2000.0, AllocationEnd.FINISHED), waits(4, 1990.0))


def test_each_allocation_has_a_row() -> None:
    rows = chain_rows(CHAIN, ChainAccount.of(CHAIN))
    assert [row["end"] for row in rows] == ["stopped", "stopped", "finished", ""]
    assert [row["overlap"] for row in rows] == ["-", "20 s", "0 s", "-"]
    assert [row["interruption"] for row in rows] == ["-", "0 s", "1 min 40 s", "-"]
    assert rows[3]["waited"] == rows[3]["worked"] == "-", "it has not started"


def test_joules_say_where_they_come_from() -> None:
    lines = account_lines(CHAIN, ChainAccount.of(CHAIN))
    assert "Energy of the overlap: 1.5 kJ, measured." in lines
    assert lines[0].startswith("2 passages: 1 min 40 s without an allocation")
    unknown = replace(CHAIN, allocations=(CHAIN.allocations[0], replace(SECOND, idle_j=None, idle_source="")))
    assert "Energy of the overlap: not known." in account_lines(unknown, ChainAccount.of(unknown))


def test_the_terminal_shows_the_table() -> None:
    out = io.StringIO()
    print_chain(CHAIN, ChainAccount.of(CHAIN), Console(file=out, width=120))
    assert "finished" in out.getvalue() and "Slurm job" in out.getvalue()


@pytest.mark.nightly
def test_the_report_of_a_run_has_its_chain(tmp_path: Path) -> None:
    plain = run(jobs=1)
    plain = replace(plain, summary=replace(plain.summary, run=str(tmp_path)))
    assert 'id="chain"' not in html(plain)
    write_chain(tmp_path, CHAIN)
    page = html(plain)
    assert '<section class="table" id="chain">' in page and "1.5 kJ, measured" in page


def test_decisions_in_words() -> None:
    waiting = decision_lines(CHAIN, Decision(False, 600.0, 7200.0, 60.0), False, 60.0)
    assert waiting[1] == "no allocation would be submitted now: 2 h are covered; next look in 10 min"
    begins = decision_lines(chain(), Decision(True, 0.0, 0.0, 60.0), True, 60.0)
    assert begins[1:] == [
        "this allocation would be submitted now",
        "its successor would be submitted 2 min 40 s before its limit",
    ]
    assert decision_lines(CHAIN, None, False, 60.0)[1] == "no allocation would be submitted now"
