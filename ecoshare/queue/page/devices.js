// Devices: power over the last minutes, joules, clocks, memory, setting, and which job has the turn.

import { byId, duration, element, energy, knob, power, put, putFacts, size } from "./words.js";

const WINDOW_S = 300;
const LEAST_S = 60; // a chart that has just begun
const WIDTH = 280;
const HEIGHT = 48;
const SVG = "http://www.w3.org/2000/svg";

const cards = new Map();

/** Shows all devices of a queue. `open` opens a job. */
export function showDevices(queue, open) {
  for (const device of queue.devices) {
    if (!cards.has(device.name)) {
      const card = new Card();
      cards.set(device.name, card);
      byId("devices").append(card.root);
    }
    cards.get(device.name).show(device, open);
  }
  for (const [name, card] of cards) {
    if (!queue.devices.some((device) => device.name === name)) {
      card.root.remove();
      cards.delete(name);
    }
  }
}

class Card {
  constructor() {
    this.samples = []; // [time (ms), watts]
    this.name = element("h3");
    this.described = element("span", "quiet");
    this.failed = element("p", "bad");
    this.power = element("strong", "power");
    this.source = element("span", "quiet");
    this.chart = new PowerChart();
    this.facts = element("dl", "facts");
    this.lanes = element("ul", "lanes");
    const head = element("div", "row", this.name, this.described);
    const now = element("div", "now", element("p", "", this.power, " ", this.source), this.chart.root);
    this.root = element("article", "device", head, this.failed, now, this.facts, this.lanes);
  }

  show(device, open) {
    put(this.name, device.name);
    put(this.described, device.described);
    put(this.failed, device.failed ? `failed: ${device.failed}` : "");
    this.failed.hidden = !device.failed;
    const known = device.power_w !== null;
    put(this.power, known ? power(device.power_w) : "power not known");
    put(this.source, known ? device.energy_source : "");
    this.#keep(known ? device.power_w : null);
    this.chart.draw(this.samples);
    putFacts(this.facts, facts(device));
    showLanes(this.lanes, device.lanes, open);
  }

  #keep(watts) {
    const now = Date.now();
    this.samples.push([now, watts]);
    while (this.samples[0][0] < now - WINDOW_S * 1000) this.samples.shift();
  }
}

function facts(device) {
  const found = [];
  const joules = device.energy_j === null ? ["not known"] : [energy(device.energy_j), device.energy_source];
  found.push(["joules so far", ...joules]);
  const total = size(device.memory_total_bytes);
  found.push(["memory", device.memory_bytes === null ? `? / ${total}` : used(device.memory_bytes, total)]);
  if (device.busy !== null) found.push(["busy", `${Math.round(100 * device.busy)} %`]);
  const clocks = [device.gpu_clock_mhz, device.memory_clock_mhz].filter((clock) => clock !== null);
  if (clocks.length) found.push(["clocks", `${clocks.map(Math.round).join(" / ")} MHz`]);
  if (device.temperature_c !== null) found.push(["temperature", `${Math.round(device.temperature_c)} °C`]);
  const setting = Object.entries(device.setting).map(([name, value]) => knob(name, value));
  found.push(["setting", setting.join(", ") || "as found"]);
  return found;
}

/** Memory in use of all, with one unit if it is the same: `38.2 / 74.5 GiB`. */
function used(bytes, total) {
  const [number, unit] = size(bytes).split(" ");
  return total.endsWith(` ${unit}`) ? `${number} / ${total}` : `${number} ${unit} / ${total}`;
}

/** Shows which jobs share each lane. The one with the turn is marked, also for those who see no colours. */
function showLanes(list, lanes, open) {
  const drawn = JSON.stringify(lanes.map((lane) => [lane.number, lane.jobs]));
  if (list.dataset.drawn !== drawn) {
    list.dataset.drawn = drawn;
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.job : null;
    list.replaceChildren(...lanes.map((lane) => laneOf(lane, open)));
    if (focused) [...list.querySelectorAll("button")].find((chip) => chip.dataset.job === focused)?.focus();
  }
  // Turns change often: the same elements stay, so that a press on one is not lost.
  lanes.forEach((lane, number) => {
    for (const chip of list.children[number].querySelectorAll("button")) {
      const turn = chip.dataset.job === lane.holder;
      chip.classList.toggle("turn", turn);
      chip.title = turn ? `${chip.dataset.job} has the turn` : `${chip.dataset.job} waits for its turn`;
    }
  });
}

function laneOf(lane, open) {
  const chips = lane.jobs.map((name) => {
    const chip = element("button", "chip", element("span", "mark", "▶"), name);
    chip.type = "button";
    chip.dataset.job = name;
    chip.addEventListener("click", () => open(name, chip));
    return chip;
  });
  const shown = chips.length ? chips : [element("span", "quiet", "no job")];
  return element("li", "", element("span", "quiet", `lane ${lane.number}`), ...shown);
}

/** Power over the last minutes, as a line that begins at zero watts. */
class PowerChart {
  constructor() {
    this.root = element("figure");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.area = this.#path("area");
    this.line = this.#path("line");
    this.caption = element("figcaption", "quiet");
    this.root.append(this.svg, this.caption);
  }

  #path(kind) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", kind);
    this.svg.append(path);
    return path;
  }

  draw(samples) {
    const known = samples.map(([, watts]) => watts).filter((watts) => watts !== null);
    const top = Math.max(...known, 1) * 1.05;
    const end = samples.at(-1)[0];
    const past_s = (end - samples[0][0]) / 1000;
    const span_s = Math.max(past_s, LEAST_S);
    const x = (at) => (WIDTH * (1 - (end - at) / (span_s * 1000))).toFixed(1);
    const y = (watts) => (HEIGHT - 1 - ((HEIGHT - 2) * watts) / top).toFixed(1);
    let line = "";
    let area = "";
    let from = null;
    let before = null;
    const close = () => {
      if (from !== null) area += `L${x(before)} ${HEIGHT}L${x(from)} ${HEIGHT}Z`;
      from = null;
    };
    for (const [at, watts] of samples) {
      if (watts === null || (from !== null && at - before > 10_000)) close(); // a gap is shown as one
      if (watts === null) continue;
      const step = `${from === null ? "M" : "L"}${x(at)} ${y(watts)}`;
      line += step;
      area += step;
      from ??= at;
      before = at;
    }
    close();
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
    const range = known.length ? `${power(Math.min(...known))} to ${power(Math.max(...known))}` : "not known";
    this.svg.setAttribute("aria-label", `power of the last ${duration(past_s)}: ${range}`);
    put(this.caption, `last ${duration(past_s)}: ${range}`);
  }
}
