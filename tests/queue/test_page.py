"""The page of a queue in a real browser, with real jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queue.browser import CHROMIUM, Tab, browser
from tests.queue.queues import TRAINS, Served, served, served_over_tcp
from tests.warm import wait_for

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

MARKUP = "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'><b>bold</b>"
HOSTILE = f"""
import sys
sys.stdout.write("\\x1b[31m" + {MARKUP!r} + "\\x1b[0m\\n")
sys.stdout.write("10 %\\r50 %\\r100 %\\n" + "\\x1b]0;title\\x07" + "&lt;kept&gt;\\n" + "x" * 10000 + "\\n")
sys.stdout.flush()
sys.stderr.buffer.write(b"\\xff\\xfe bytes\\n")
raise RuntimeError({MARKUP!r})
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("queue")
    (folder / "hostile.py").write_text(HOSTILE)
    (folder / "trains.py").write_text(TRAINS)
    (folder / "long.yaml").write_text("version: 1\njobs: [{name: trains, script: trains.py, iterations: 100000}]\n")
    with served_over_tcp(folder) as found:
        yield found


@pytest.fixture(scope="module")
def page(up: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page, which was opened with the address that `ecoshare page` prints."""
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        tab.size(1400, 900)
        tab.open(up.queue.page())
        tab.shows("#connection", "live")
        yield tab


@pytest.fixture(scope="module")
def ended(up: Served) -> str:
    """Name of a job that has written markup and failed."""
    up.lines("submit", "hostile.py")
    up.ask("wait", "hostile")
    return "hostile"


def opened(page: Tab, name: str) -> None:
    """Open a job by a press on its name."""
    selector = f"#jobs button[title={json.dumps(name)}]"
    wait_for(lambda: page.run(f"!!document.querySelector({json.dumps(selector)})"), otherwise=lambda: page.text("body"))
    page.click(selector)
    page.shows("#job-name", name)


@pytest.mark.nightly
def test_the_token_leaves_the_address_and_nothing_comes_from_elsewhere(up: Served, page: Tab) -> None:
    address = (up.home / "address").read_text()
    assert page.run("location.href") == f"{address}/"
    assert page.run("sessionStorage.length") == 1 and page.run("localStorage.length + document.cookie.length") == 0
    loaded = page.run("performance.getEntriesByType('resource').map((each) => each.name)")
    assert len(loaded) >= 8 and all(name.startswith(f"{address}/") for name in loaded)
    assert (up.home / "token").read_text() not in "".join(loaded)


@pytest.mark.slow
def test_it_shows_devices_and_jobs_as_they_change(up: Served, page: Tab) -> None:
    up.lines("submit", "long.yaml")
    row = "#jobs tbody[data-group=running] tr:nth-child(2)"
    page.shows(row, "trains")
    for words in ("running", "/100000", "modelled"):
        page.shows(row, words)
    page.shows("#devices .chip.turn", "trains")
    page.run("document.querySelector('#devices .chip').focus()")
    page.shows("#devices", " W\nmodelled")
    first = page.text(f"{row} .done")
    wait_for(lambda: page.text(f"{row} .done") not in ("", first))
    # An element that is made anew loses the focus, and a press on it.
    wait_for(lambda: page.run("document.activeElement.title") == "trains has the turn")
    wait_for(lambda: page.run("document.querySelector('.line').getAttribute('d').length") > 20)
    up.ask("cancel", "trains", "--now")
    page.shows("#jobs tbody[data-group=ended]", "trains")
    page.shows("#news", "trains cancelled")


def test_what_jobs_write_is_text(ended: str, page: Tab) -> None:
    """If it failed, a job could steer the queue with the token of the page."""
    opened(page, ended)
    page.shows("#output-state", "all of it")
    lines = page.run("document.querySelector('#output').textContent").split("\n")
    assert lines[:3] == [MARKUP, "100 %", "&lt;kept&gt;"] and len(lines[3]) < 5000
    page.click("[data-stream=stderr]")
    page.shows("#output", f"RuntimeError: {MARKUP}")
    assert page.run("document.querySelectorAll('#output *, main img, main script, aside img, aside b').length") == 0
    assert page.run("window.owned") is None and page.run("document.title") == "test · ecoshare"
    refused = page.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } })()"
    )
    assert refused == "TypeError", "the content policy lets text become markup"
    page.click("#close")
    page.problems.clear()  # the policy has told of the attempt


@pytest.mark.nightly
def test_a_job_is_held_released_and_given_a_priority(up: Served, page: Tab) -> None:
    go = up.waits("first")
    up.waits("second", "--after", "first")
    opened(page, "second")
    page.shows("#facts", "after first")
    page.click("#hold")
    page.shows("#answer", "held: it does not start until it is released")
    assert up.queue.job("second").state == "held"
    page.run("document.querySelector('#priority').value = 7")
    page.click("#set-priority")
    page.shows("#answer", "its priority is 7")
    assert up.queue.job("second").priority == 7
    page.shows("#hold", "Release")
    page.click("#hold")
    page.shows("#answer", "released")
    assert up.queue.job("second").state == "arriving"
    page.click("#close")
    go.touch()
    (up.folder / "go-second").touch()
    up.ask("wait", "second")


@pytest.mark.nightly
def test_output_is_followed_and_a_job_is_cancelled_after_a_question(up: Served, page: Tab) -> None:
    up.waits("spoken")
    up.begun("spoken")
    opened(page, "spoken")
    page.shows("#output", "begun")
    page.shows("#output-state", "live")
    page.click("#cancel")
    page.shows("#confirm", "Cancel spoken?")
    page.click("#confirm [value=keep]")
    assert up.queue.job("spoken").state == "running"
    page.click("#cancel")
    page.click("#confirm [value=kill]")
    page.shows("#facts", "cancelled")
    page.shows("#output-state", "all of it")
    assert up.queue.job("spoken").state == "cancelled"
    assert page.run("document.querySelector('#cancel').disabled") is True
    page.click("#close")


@pytest.mark.nightly
def test_keys_are_enough(up: Served, page: Tab) -> None:
    go = up.waits("keyed")
    up.begun("keyed")
    selector = "#jobs button[title=keyed]"
    wait_for(
        lambda: page.run(f"document.querySelector({selector!r})?.focus(), document.activeElement.title") == "keyed"
    )
    page.key("Enter")
    page.shows("#job-name", "keyed")
    page.key("Tab")
    assert page.run("document.activeElement.id") == "close"
    go.touch()
    page.shows("#output", "went")
    page.key("Escape")
    wait_for(lambda: page.run("document.activeElement.title") == "keyed")
    assert page.run("document.querySelector('#job').hidden") is True


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone(ended: str, page: Tab, dark: bool) -> None:
    page.size(400, 800, dark)
    assert page.run("document.documentElement.scrollWidth") <= 400
    opened(page, ended)
    assert page.run("document.documentElement.scrollWidth") <= 400
    page.click("#close")
    page.size(1400, 900, dark)


@pytest.mark.nightly
def test_it_says_when_the_queue_is_down_and_comes_back_with_it(up: Served, page: Tab, tmp_path: Path) -> None:
    """The last test of the module."""
    assert not page.problems, page.problems
    up.waits("lasting")
    page.shows("#jobs", "lasting")
    listen = (up.home / "address").read_text().removeprefix("http://")
    assert up.ask("down", "--now").returncode == 0
    page.shows("#connection", "the queue has gone down: trying again. This is its state of ")
    page.shows("#jobs", "lasting")
    with served(up.folder, "--resume", "--listen", listen):
        page.shows("#connection", "the token is wrong or missing")
        assert "lasting" not in page.text("body"), "jobs are shown to a client without the token"
        page.run("document.querySelector('#token').value = 'wrong'")
        page.click("#login button")
        page.shows("#connection", "the token is wrong or missing")
        page.run(f"document.querySelector('#token').value = {up.queue.page()!r}")
        page.click("#login button")
        page.shows("#connection", "live")
        page.shows("#jobs", "lasting")
        assert page.run("document.querySelector('#login').hidden") is True
