// Output of a job, followed while it goes on, as plain text.

import { request } from "./connection.js";
import { byId, put } from "./words.js";

const MOST_LINES = 2000;
const MOST_LINE = 4000;
const DRAW_MS = 200;
// Colours and moves of terminals: control sequences, titles, and single escapes.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>])/g;

let following = null;

/** Follows the output of a job; what was followed before is left. */
export function followOutput(name, stream) {
  leaveOutput();
  following = new Following(name, stream);
  following.run();
}

/** Follows the same output again, after the connection was lost. */
export function followAgain() {
  if (following?.isLost) followOutput(following.name, following.stream);
}

export function leaveOutput() {
  following?.stop.abort();
  following = null;
}

/** Lines of a terminal that knows no colours: a carriage return begins the last line anew, as progress bars do. */
export class Lines {
  #lines = [];
  #last = "";
  #returned = false;

  add(text) {
    for (const part of text.replace(ESCAPES, "").split(/(\r\n|\n|\r)/)) {
      if (part === "\n" || part === "\r\n") {
        this.#lines.push(this.#last);
        this.#last = "";
        this.#returned = false;
      } else if (part === "\r") {
        this.#returned = true;
      } else if (part) {
        this.#last = ((this.#returned ? "" : this.#last) + part).slice(0, MOST_LINE);
        this.#returned = false;
      }
    }
    if (this.#lines.length > MOST_LINES) this.#lines = this.#lines.slice(-MOST_LINES);
  }

  get text() {
    return [...this.#lines, this.#last].join("\n");
  }
}

class Following {
  constructor(name, stream) {
    this.name = name;
    this.stream = stream;
    this.stop = new AbortController();
    this.isLost = false;
    this.lines = new Lines();
    this.drawing = null;
  }

  async run() {
    this.#draw();
    this.#say("…");
    const path = `/api/v1/jobs/${encodeURIComponent(this.name)}/output`;
    try {
      const answer = await request(`${path}?follow=true&lines=${MOST_LINES}&stream=${this.stream}`, {
        signal: this.stop.signal,
      });
      this.#say("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        this.lines.add(value);
        this.drawing ??= setTimeout(() => this.#draw(), DRAW_MS);
      }
      await this.#checkEnd();
      this.#say("all of it");
    } catch (error) {
      if (this.stop.signal.aborted) return;
      this.isLost = true;
      this.#say(error.status ? error.message : "the connection was lost");
    }
    this.#draw();
  }

  /** Throws a Refusal if the output has ended with the queue, and not with the job. A trial has no state of its own. */
  async #checkEnd() {
    try {
      await request(`/api/v1/jobs/${encodeURIComponent(this.name)}?wait_s=1`, { signal: this.stop.signal });
    } catch (error) {
      if (error.status !== 400) throw error;
    }
  }

  #draw() {
    clearTimeout(this.drawing);
    this.drawing = null;
    if (following !== this) return;
    const box = byId("output");
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
    put(box, this.lines.text);
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  #say(words) {
    if (following === this) put(byId("output-state"), words);
  }
}
