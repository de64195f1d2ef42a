// One job beside the table: what the queue knows of it, its output, and what can be done with it.

import { Refusal, request } from "./connection.js";
import { hasEnded, progress, ranFor, stateWords, waitedFor, waits } from "./jobs.js";
import { followOutput, leaveOutput } from "./output.js";
import { byId, digits, duration, energy, moment, put, putFacts } from "./words.js";

const shown = { name: null, job: null, stream: "stdout", from: null };

export const openName = () => shown.name;

/** Opens one of the jobs, or a trial of one; `from` gets the focus again when it is closed. */
export function openJob(name, from, jobs) {
  Object.assign(shown, { name, job: null, from });
  put(byId("job-name"), name);
  put(byId("answer"), "");
  putFacts(byId("facts"), []);
  byId("job").hidden = false;
  document.body.classList.add("with-job");
  const isSweep = jobs.some((job) => job.name === name && job.trials !== null);
  byId("trials").hidden = !isSweep;
  byId("output-head").hidden = byId("output").hidden = isSweep;
  if (isSweep) leaveOutput();
  else chooseStream("stdout");
  showJob(jobs);
  byId("job").focus();
}

export function closeJob() {
  leaveOutput();
  byId("job").hidden = true;
  document.body.classList.remove("with-job");
  if (shown.from?.isConnected) shown.from.focus();
  Object.assign(shown, { name: null, job: null, from: null });
}

function chooseStream(stream) {
  shown.stream = stream;
  for (const tab of document.querySelectorAll(".tab")) tab.setAttribute("aria-pressed", tab.dataset.stream === stream);
  followOutput(shown.name, stream);
}

/** Shows the open job anew. A trial of a sweep is in no list: it has an output only. */
export function showJob(jobs) {
  if (shown.name === null) return;
  const job = jobs.find((each) => each.name === shown.name) ?? shown.job;
  const isFirst = shown.job === null;
  shown.job = job;
  const can = {
    hold: job !== null && (waits(job) || job.state === "held"),
    cancel: job !== null && !hasEnded(job),
    retry: job !== null && ["failed", "cancelled"].includes(job.state),
    priority: job !== null && !hasEnded(job) && job.trials === null,
  };
  const held = job !== null && job.state === "held";
  byId("hold").disabled = !can.hold;
  put(byId("hold"), held ? "Release" : "Hold");
  byId("cancel").disabled = !can.cancel;
  byId("retry").disabled = !can.retry;
  byId("priority").disabled = byId("set-priority").disabled = !can.priority;
  if (job === null) return;
  byId("trial").max = String(Math.max(0, (job.trials ?? 0) - 1));
  if (isFirst) byId("priority").value = job.priority;
  putFacts(byId("facts"), facts(job));
}

function facts(job) {
  const { words } = progress(job);
  const ran = ranFor(job);
  const service = job.service;
  return [
    ["state", stateWords(job)],
    ["reason", job.reason],
    ["waits for", job.waits_for.join(", ")],
    ["progress", words],
    ["late or unanswered", service ? `${service.late} late, ${service.unanswered} unanswered` : ""],
    ["it/s", job.iterations_per_s === null ? "" : digits(job.iterations_per_s)],
    ["slowdown", job.slowdown === null ? "" : digits(job.slowdown)],
    ["joules beyond idle", job.energy_j === null ? "" : energy(job.energy_j), job.energy_source],
    ["submitted", moment(job.submitted_unix_s)],
    ["waited", duration(waitedFor(job))],
    ["ran", ran === null ? "" : duration(ran)],
    ["ended", job.ended_unix_s === null ? "" : moment(job.ended_unix_s)],
    ["expected end", job.expected_end_unix_s === null ? "" : moment(job.expected_end_unix_s)],
    ["priority", String(job.priority)],
    ["attempts", job.attempts > 1 ? String(job.attempts) : ""],
    ["devices", job.devices.join(", ")],
  ].filter(([, text]) => text !== "");
}

/** Opens a trial of the open sweep. Its name has at least four digits. */
function openTrial(number) {
  const places = Math.max(4, String(shown.job.trials - 1).length);
  openJob(`${shown.name}.${String(number).padStart(places, "0")}`, shown.from, []);
}

/** Asks for a change, and says how it went. */
async function ask(path, method, body, done) {
  const name = shown.name;
  let words = done;
  put(byId("answer"), "…");
  try {
    await request(path, { method, body });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    words = error.message;
  }
  if (shown.name === name) put(byId("answer"), words);
}

const change = (body, done) => ask(`/api/v1/jobs/${encodeURIComponent(shown.name)}`, "PATCH", body, done);

function askToCancel() {
  const { name, job } = shown;
  const dialog = byId("confirm");
  const waiting = waits(job);
  put(byId("confirm-title"), `Cancel ${name}?`);
  put(
    byId("confirm-words"),
    waiting
      ? "It has not begun, and will not run."
      : "A cancelled job ends at its next boundary, one that is killed ends now. Neither goes on later.",
  );
  dialog.querySelector("[value=kill]").hidden = waiting;
  dialog.dataset.name = name;
  dialog.showModal();
}

function confirmed(choice) {
  const dialog = byId("confirm");
  dialog.close();
  if (choice === "keep") return;
  const body = { jobs: [dialog.dataset.name], at_once: choice === "kill" };
  ask("/api/v1/cancel", "POST", body, `${dialog.dataset.name} is cancelled`);
}

/** Connects the buttons, once. */
export function prepareJob() {
  byId("close").addEventListener("click", closeJob);
  byId("job").addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeJob();
  });
  byId("hold").addEventListener("click", () => {
    const held = shown.job.state === "held";
    change({ held: !held }, held ? "released" : "held: it does not start until it is released");
  });
  byId("set-priority").addEventListener("click", () => {
    if (byId("priority").reportValidity()) {
      const priority = Number(byId("priority").value);
      change({ priority }, `its priority is ${priority}`);
    }
  });
  byId("priority").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("set-priority").click();
  });
  byId("cancel").addEventListener("click", askToCancel);
  byId("retry").addEventListener("click", () => {
    ask("/api/v1/retry", "POST", { jobs: [shown.name] }, "it runs again, with the jobs that were cancelled because of it");
  });
  for (const button of byId("confirm").querySelectorAll("button")) {
    button.addEventListener("click", () => confirmed(button.value));
  }
  byId("open-trial").addEventListener("click", () => {
    if (byId("trial").reportValidity()) openTrial(Number(byId("trial").value));
  });
  for (const tab of document.querySelectorAll(".tab")) {
    tab.addEventListener("click", () => chooseStream(tab.dataset.stream));
  }
}
