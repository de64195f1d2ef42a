// The page: connects, and shows each state of the queue as it comes.

import { follow, keepToken, takeToken } from "./connection.js";
import { showDevices } from "./devices.js";
import { closeJob, openJob, openName, prepareJob, showJob } from "./job.js";
import { hasEnded, showJobs, stateWords } from "./jobs.js";
import { followAgain } from "./output.js";
import { byId, duration, energy, moment, power, put, putFacts } from "./words.js";

const HIDDEN_MS = 60_000; // a page that is not seen lets go of its connection after this time
const ENDINGS = { drain: "is drained", stop: "is being stopped" };

let queue = null;
let seen_ms = 0;
let connection = null;

function connect() {
  connection?.abort();
  connection = new AbortController();
  follow({ status, job: tell, live, lost, refused }, connection.signal);
}

function say(state, words) {
  byId("connection").dataset.state = state;
  put(byId("connection"), words);
  document.body.dataset.connection = state;
}

function live() {
  say("live", "live");
  byId("login").hidden = true;
  byId("content").hidden = byId("totals").hidden = false;
  followAgain();
}

function lost(why) {
  const since = seen_ms ? ` This is its state of ${moment(seen_ms / 1000)}.` : "";
  say("lost", `${why}: trying again.${since}`);
}

function refused() {
  say("refused", "the token is wrong or missing");
  if (openName() !== null) closeJob();
  put(byId("news"), "");
  byId("login").hidden = false;
  byId("content").hidden = byId("totals").hidden = true;
  byId("token").focus();
}

/** Tells screen readers of the ends of jobs, and of nothing that changes each second. */
function tell(job) {
  if (hasEnded(job)) put(byId("news"), `${job.name} ${stateWords(job)}`);
}

function status(found) {
  queue = found;
  seen_ms = Date.now();
  document.title = `${queue.name} · ecoshare`;
  put(byId("queue"), queue.name);
  if (queue.ending) say("live", `live; the queue ${ENDINGS[queue.ending]}`);
  put(byId("warnings"), queue.warnings.join("\n"));
  byId("warnings").hidden = !queue.warnings.length;
  show();
}

function show() {
  const open = (name, from) => {
    openJob(name, from, queue.jobs);
    show();
  };
  showDevices(queue, open);
  const groups = showJobs(queue, open, openName());
  showJob(queue.jobs);
  putFacts(byId("totals"), totals(groups));
}

/** Sums of all devices. A sum says its source, or both if devices differ. */
function totals(groups) {
  const sum = (key, shown) => {
    const known = queue.devices.filter((device) => device[key] !== null);
    if (!known.length) return ["not known"];
    const sources = [...new Set(known.map((device) => device.energy_source))].filter(Boolean);
    return [shown(known.reduce((total, device) => total + device[key], 0)), sources.join(" and ")];
  };
  return [
    ["power", ...sum("power_w", power)],
    ["joules so far", ...sum("energy_j", energy)],
    ["running", String(groups.running.length)],
    ["waiting", String(groups.waiting.length)],
    ["policy", queue.policy],
    ["up for", duration(Date.now() / 1000 - queue.opened_unix_s)],
  ];
}

let hidden;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      connection?.abort();
      say("paused", "paused while the page is not seen");
    }, HIDDEN_MS);
  } else if (connection?.signal.aborted) {
    connect();
  }
});
addEventListener("hashchange", () => {
  if (takeToken()) connect();
});
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value);
  byId("token").value = "";
  connect();
});

prepareJob();
takeToken();
connect();
