// Quantities as words, as the command line writes them, and small helpers for the document.

const SI = [["mJ", 1e-3], ["J", 1], ["kJ", 1e3], ["kWh", 3.6e6], ["MWh", 3.6e9]];
const BINARY = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]];

/** Number with three digits and no exponent. Zeros at its end stay, so that a number that changes keeps its width. */
export function digits(number) {
  const places = number === 0 ? 0 : 2 - Math.floor(Math.log10(Math.abs(number)));
  return number.toFixed(Math.min(Math.max(0, places), 3));
}

function scaled(size, units) {
  let chosen = units[0];
  for (const unit of units) if (Math.abs(size) >= 0.9995 * unit[1]) chosen = unit;
  return `${digits(size / chosen[1])} ${chosen[0]}`;
}

export const energy = (joules) => (joules === 0 ? "0 J" : scaled(joules, SI));
export const size = (bytes) => scaled(bytes, BINARY);
export const power = (watts) => `${watts < 99.95 ? watts.toFixed(1) : watts.toFixed(0)} W`;

/** Duration of some seconds or more: `12 s`, `2 min 5 s`, `1 h 3 min`, `2 d 4 h`. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (large, unit, small, below) => `${Math.floor(whole / large)} ${unit}${small ? ` ${small} ${below}` : ""}`;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(60, "min", whole % 60, "s");
  if (whole < 86400) return two(3600, "h", Math.floor((whole % 3600) / 60), "min");
  return two(86400, "d", Math.floor((whole % 86400) / 3600), "h");
}

/** Time of today, or day and time. */
export function moment(unix_s) {
  const at = new Date(unix_s * 1000);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** Words for a knob and its value: `gpu clock 1200 MHz`. */
export function knob(name, value) {
  const [, what, unit] = /^(.*?)(?:_(mhz|w))?$/.exec(name);
  const shown = typeof value === "number" ? String(Number(value.toPrecision(6))) : value;
  return `${what.replaceAll("_", " ")} ${shown}${{ mhz: " MHz", w: " W" }[unit] ?? ""}`;
}

export const counted = (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`;

/** Element with a class and children, which are elements or text. Text stays text: nothing here reads HTML. */
export function element(tag, kind = "", ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...children);
  return made;
}

/** Puts text into an element, if it is another one. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Lists facts: a term, its description, and where that is from. Elements of the same terms are kept. */
export function putFacts(list, facts) {
  const terms = facts.map(([term]) => term).join("\n");
  if (list.dataset.terms !== terms) {
    list.dataset.terms = terms;
    const pairs = facts.map(([term]) => {
      const described = element("dd", "", element("span"), " ", element("span", "quiet source"));
      return element("div", "", element("dt", "", term), described);
    });
    list.replaceChildren(...pairs);
  }
  facts.forEach(([, text, source = ""], number) => {
    const described = list.children[number].lastChild;
    put(described.firstChild, text);
    put(described.lastChild, source);
  });
}

export const byId = (name) => document.getElementById(name);
