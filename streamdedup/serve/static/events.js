/**
 * A stream of server-sent events over fetch: EventSource cannot send a token, and names no reason of a failure.
 *
 * The stream resumes behind the last event by Last-Event-ID after a pause, an error or a silence.
 */

import { open } from "./api.js";

/** Silence after which the connection counts as broken; the service sends a comment every 15 seconds. */
const SILENCE_MS = 45_000;
const LONGEST_PAUSE_MS = 30_000;
/** Offsets of the topic before its end with which a stream begins. */
const RECENT = 400;

/** Decodes the lines of a stream. */
export class EventParser {
  lastId = null; // of the last complete event or comment
  retryMs = 2_000;
  #rest = ""; // the beginning of a line that is not complete
  #id = null;
  #name = "";
  #data = [];

  /** Yield the events that a piece of the stream completes: `{name, data}`. */
  *push(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) {
      const event = this.#take(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (event !== null) yield event;
    }
  }

  #take(line) {
    if (line === "") return this.#complete();
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#name = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }

  #complete() {
    const event = this.#data.length > 0 ? { name: this.#name || "message", data: this.#data.join("\n") } : null;
    this.lastId = this.#id ?? this.lastId;
    this.#name = "";
    this.#data = [];
    return event;
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Follows one stream from `start` to `stop`; another `start` resumes where it was. */
export class EventReader {
  #path;
  #onEvent;
  #onChange;
  #lastId = null;
  #control = null;

  /**
   * @param {string} path Path of the stream.
   * @param {function({name: string, data: string}): void} onEvent Called for each event.
   * @param {function(string, Error?): void} onChange Called with "connecting", "open", "waiting" (with the error, if
   *     any) and "absent", where the service has no such stream, such as an older one in a rolling update.
   */
  constructor(path, onEvent, onChange) {
    this.#path = path;
    this.#onEvent = onEvent;
    this.#onChange = onChange;
  }

  start() {
    if (this.#control !== null) return;
    this.#control = new AbortController();
    this.#run(this.#control.signal);
  }

  stop() {
    this.#control?.abort();
    this.#control = null;
  }

  async #run(signal) {
    let failures = 0;
    while (!signal.aborted) {
      const parser = new EventParser();
      let problem = null;
      try {
        this.#onChange("connecting");
        await this.#follow(parser, signal, () => {
          failures = 0;
          this.#onChange("open");
        });
      } catch (error) {
        problem = error;
        failures += 1;
      }
      if (signal.aborted) return;
      if (problem?.kind === "not-found") {
        this.#onChange("absent");
        return;
      }
      if (problem?.kind === "invalid-request") this.#lastId = null; // the id is of another topic
      this.#onChange("waiting", problem);
      // The pause of the header Retry-After; without it that of the stream, doubled at each further failure.
      const delay = (problem?.retryAfterS ?? 0) * 1_000 || parser.retryMs * 2 ** Math.max(0, failures - 1);
      await pause(Math.min(delay, LONGEST_PAUSE_MS), signal);
    }
  }

  async #follow(parser, signal, onOpen) {
    const connection = new AbortController();
    const end = () => connection.abort();
    signal.addEventListener("abort", end, { once: true });
    let timer = setTimeout(end, SILENCE_MS);
    try {
      const isNew = this.#lastId === null;
      const headers = isNew ? {} : { "last-event-id": this.#lastId };
      const path = isNew ? `${this.#path}?recent=${RECENT}` : this.#path;
      const response = await open(path, { headers, signal: connection.signal });
      onOpen();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) return;
        clearTimeout(timer);
        timer = setTimeout(end, SILENCE_MS);
        for (const event of parser.push(value)) this.#onEvent(event);
        this.#lastId = parser.lastId ?? this.#lastId;
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      connection.abort();
    }
  }
}
