"""Check a document against the schema: return its jobs, or their mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ecoshare.errors import Mistake
from ecoshare.jobs.document import MAX_MISTAKES, Document
from ecoshare.jobs.schema import JobConfig, JobFile
from ecoshare.jobs.schema_errors import mistakes_in
from ecoshare.jobs.values import plain_values

_STAND_IN: Final = JobConfig(name="stand-in", script=Path("stand-in"))


def validate(document: Document) -> tuple[JobFile | None, list[JobConfig], list[Mistake]]:
    """The file without its jobs, the jobs, and the mistakes; ignore the first two if there are mistakes.

    Validation stops after `MAX_MISTAKES`.
    """
    assert document.root is not None
    values = plain_values(document.root)
    file: JobFile | None = None
    jobs, mistakes = list[JobConfig](), list[Mistake]()
    job_values: list[object] = []
    if isinstance(values, dict) and isinstance(values.get("jobs"), list):
        job_values = values["jobs"]
        values["jobs"] = [_STAND_IN] * len(job_values)
    try:
        file = JobFile.model_validate(values)
    except ValidationError as error:
        mistakes += mistakes_in(error, document)
    # One job at a time, although `JobFile` could validate all at once. A mistake takes over a kilobyte until it is put
    # in words, and a short file with aliases can make a million of them.
    for index, value in enumerate(job_values):
        try:
            jobs.append(JobConfig.model_validate(value))
        except ValidationError as error:
            mistakes += mistakes_in(error, document, ("jobs", index))
            if len(mistakes) >= MAX_MISTAKES:
                break
    return file, jobs, mistakes
