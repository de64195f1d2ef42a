// The table of jobs, in three groups. Rows stay where they are in the document and change in place.

import { byId, counted, digits, duration, element, energy, moment, put } from "./words.js";

const ENDED = new Set(["completed", "failed", "cancelled", "pruned"]);
const WAITING = new Set(["arriving", "queued", "held"]);
const LABELS = ["job", "state", "progress", "it/s", "joules", "waited", "ran", "expected end"];

const rows = new Map();

export const hasEnded = (job) => ENDED.has(job.state);
export const waits = (job) => WAITING.has(job.state);

/** Shows all jobs of a queue. `open` opens a job, `opened` is the name of the open one. */
export function showJobs(queue, open, opened) {
  const groups = { running: [], waiting: [], ended: [] };
  for (const job of queue.jobs) groups[hasEnded(job) ? "ended" : waits(job) ? "waiting" : "running"].push(job);
  groups.ended.sort((one, other) => other.ended_unix_s - one.ended_unix_s);
  const holders = new Set(queue.devices.flatMap((device) => device.lanes.map((lane) => lane.holder)));
  for (const [name, jobs] of Object.entries(groups)) {
    const body = document.querySelector(`#jobs tbody[data-group=${name}]`);
    body.hidden = jobs.length === 0;
    put(body.rows[0].cells[0], `${name} (${jobs.length})`);
    jobs.forEach((job, number) => {
      const row = rowOf(job.name, open);
      row.show(job, holders.has(job.name), job.name === opened);
      if (body.rows[number + 1] !== row.root) body.insertBefore(row.root, body.rows[number + 1] ?? null);
    });
  }
  const present = new Set(queue.jobs.map((job) => job.name));
  for (const [name, row] of rows) {
    if (!present.has(name)) {
      row.root.remove();
      rows.delete(name);
    }
  }
  byId("jobs").hidden = queue.jobs.length === 0;
  byId("no-jobs").hidden = queue.jobs.length > 0;
  put(byId("more"), queue.more ? `and ${counted(queue.more, "job")} that ended earlier` : "");
  return groups;
}

function rowOf(name, open) {
  if (!rows.has(name)) rows.set(name, new Row(name, open));
  return rows.get(name);
}

class Row {
  constructor(name, open) {
    this.button = element("button", "link", name);
    this.button.type = "button";
    this.button.title = name;
    this.button.addEventListener("click", () => open(name, this.button));
    this.turn = element("span", "mark", "▶");
    this.turn.title = "has the turn";
    this.fill = element("span", "fill");
    this.bar = element("span", "bar", this.fill);
    this.done = element("span", "done");
    this.joules = element("span");
    this.source = element("span", "quiet source");
    this.cells = LABELS.map((label, number) => {
      const cell = element(number ? "td" : "th", number > 2 ? "number" : "");
      cell.dataset.label = label;
      return cell;
    });
    this.cells[0].scope = "row";
    this.named = element("div", "named", this.turn, this.button);
    this.cells[0].append(this.named);
    this.state = element("span");
    this.cells[1].append(this.state);
    this.cells[2].append(this.bar, this.done);
    this.cells[4].append(this.joules, " ", this.source);
    this.root = element("tr", "", ...this.cells);
  }

  show(job, hasTurn, isOpen) {
    this.root.classList.toggle("open", isOpen);
    this.named.classList.toggle("turn", hasTurn);
    this.state.className = `state ${job.state}`;
    put(this.state, stateWords(job));
    const { part, words } = progress(job);
    this.bar.hidden = part === null;
    this.fill.style.width = `${(100 * (part ?? 0)).toFixed(1)}%`;
    put(this.done, words);
    put(this.cells[3], job.iterations_per_s === null ? "" : digits(job.iterations_per_s));
    put(this.joules, job.energy_j === null ? "" : energy(job.energy_j));
    put(this.source, job.energy_j === null ? "" : job.energy_source);
    put(this.cells[5], duration(waitedFor(job)));
    put(this.cells[6], ranFor(job) === null ? "" : duration(ranFor(job)));
    put(this.cells[7], job.expected_end_unix_s === null ? "" : moment(job.expected_end_unix_s));
    for (const cell of this.cells) cell.classList.toggle("none", cell.textContent.trim() === "");
  }
}

export function stateWords(job) {
  if (job.state === "arriving" && job.waits_for.length) {
    const [first, ...others] = job.waits_for;
    return others.length ? `after ${first} and ${others.length} more` : `after ${first}`;
  }
  if (job.turn_wait_s) return `waits behind ${job.behind.join(", ") || "others"} for ${duration(job.turn_wait_s)}`;
  return job.state === "failed" && job.exit_code ? `failed (${job.exit_code})` : job.state;
}

/** Part that is done, null if it is not known, and words for it. */
export function progress(job) {
  if (job.service) {
    const { arrived, p99_s, target_s } = job.service;
    const p99 = p99_s === null ? "" : `, p99 ${digits(1000 * p99_s)} of ${digits(1000 * target_s)} ms`;
    return { part: null, words: `${counted(arrived, "request")}${p99}` };
  }
  if (job.trials !== null) {
    const ended = Object.values(job.ended_trials).reduce((sum, number) => sum + number, 0);
    return { part: job.trials ? ended / job.trials : null, words: `${ended}/${counted(job.trials, "trial")}` };
  }
  if (job.of_iterations) {
    return { part: Math.min(1, job.iterations / job.of_iterations), words: `${job.iterations}/${job.of_iterations}${job.by_steps ? " optimizer steps" : ""}` };
  }
  return { part: null, words: job.iterations ? counted(job.iterations, job.by_steps ? "optimizer step" : "iteration") : "" };
}

const now_s = () => Date.now() / 1000;

export const waitedFor = (job) => (job.started_unix_s ?? job.ended_unix_s ?? now_s()) - job.submitted_unix_s;

export const ranFor = (job) =>
  job.started_unix_s === null ? null : (job.ended_unix_s ?? now_s()) - job.started_unix_s;
