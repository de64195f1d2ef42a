// Requests to the queue, with the token, and its events. Nothing else of the page speaks to the network.

const KEY = "ecoshare-token";
const SILENT_MS = 40_000; // the queue sends a comment each 15 s
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
const GONE = "the queue has gone down";

/** Keeps the token of the address, if it has one, and takes it out of the address. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    keepToken(given);
    history.replaceState(null, "", location.pathname);
  }
  return given !== null;
}

/** Keeps a token for this tab, until it is closed. The whole address of the page will do. */
export function keepToken(text) {
  sessionStorage.setItem(KEY, text.trim().replace(/^.*#token=/, ""));
}

/** An answer of the queue that is an error, or the lack of one. */
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Answer to a request. Throws a Refusal if the queue refuses it, or cannot be reached. */
export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = new Headers(headers);
  const token = sessionStorage.getItem(KEY);
  try {
    if (token) sent.set("Authorization", `Bearer ${token}`);
  } catch {
    throw new Refusal("the token has characters that no token has", 401);
  }
  if (body !== undefined) sent.set("Content-Type", "application/json");
  let answer;
  try {
    answer = await fetch(path, { method, headers: sent, body: JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("the queue cannot be reached", 0);
  }
  if (answer.ok) return answer;
  throw new Refusal(await problem(answer), answer.status);
}

async function problem(answer) {
  try {
    const { message, hint } = await answer.json();
    return hint ? `${message} (${hint})` : String(message);
  } catch {
    return `the queue failed: ${answer.status}`;
  }
}

/** Server-sent events of an answer: `{name, data, id}`. */
async function* events(answer, heard) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = { name: "message", data: "", id: null };
      for (const line of block.split("\n")) {
        const [, field, content] = /^(\w*): ?(.*)$/s.exec(line) ?? [];
        if (field === "event") event.name = content;
        else if (field === "data") event.data += content;
        else if (field === "id") event.id = content;
      }
      if (event.data) yield event;
    }
  }
}

/**
 * Follows the queue until the signal: connects again by itself, and goes on with the changes that it has missed.
 *
 * `seen` has the functions status(queue), job(job), live(), lost(why) and refused(), after which it ends.
 */
export async function follow(seen, signal) {
  let last = null;
  let gone = false; // whether the queue itself has ended the connection
  let pause_ms = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    let silent;
    const heard = () => {
      clearTimeout(silent);
      silent = setTimeout(stop, SILENT_MS);
    };
    heard();
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const answer = await request("/api/v1/events", { headers, signal: attempt.signal });
      seen.live();
      gone = false;
      pause_ms = FIRST_PAUSE_MS;
      for await (const event of events(answer, heard)) {
        if (event.id) last = event.id;
        if (event.name === "status") seen.status(JSON.parse(event.data));
        else if (event.name === "job") seen.job(JSON.parse(event.data));
      }
      gone = true;
      seen.lost(GONE);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) {
        seen.refused();
        return;
      }
      seen.lost(error instanceof Refusal && error.status ? error.message : gone ? GONE : "the queue does not answer");
    } finally {
      clearTimeout(silent);
      signal.removeEventListener("abort", stop);
      attempt.abort();
    }
    await new Promise((resolve) => setTimeout(resolve, pause_ms));
    pause_ms = Math.min(pause_ms * 1.5, LONGEST_PAUSE_MS);
  }
}
