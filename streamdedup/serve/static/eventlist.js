/** A list of events, the newest first: bounded in memory and on the page, pausable, with a filter. */

import { Problem } from "./api.js";
import { byId, counted, h, number, show } from "./dom.js";
import { EventReader } from "./events.js";

/** Events that are shown, and events that are kept for another filter. */
const SHOWN = 200;
const KEPT = 1_000;
/** Time between two changes of the page: a burst of events changes it once. */
const DRAW_MS = 250;

const FOLLOWING = "Following.";
const GAPS = {
  unreadable: "An event that this page cannot show.",
  expired: "Events before this line were missed: Kafka no longer has them.",
  "too-many": "Events before this line were missed: there were too many to read again.",
  unknown: "Events before this line were missed: the topic was created again.",
};

/**
 * Follows a stream and lists its events.
 *
 * The elements `NAME-rows`, `NAME-status`, `NAME-count` and `NAME-pause` of the document belong to the list.
 */
export class EventList {
  #options;
  #reader;
  #accepts = () => true;
  #order = null; // comparison of items; null for the newest first
  #items = []; // the oldest first
  #rows = new Map(); // elements by the sequence number of their items
  #received = 0;
  #unseen = 0; // events since the list was paused, by the button or by an open row
  #sequence = 0;
  #timer = null;
  #isPaused = false; // by the button
  #openCount = 0; // open rows
  #connection = ""; // sentence about the connection

  /**
   * @param {object} options
   * @param {string} options.name Beginning of the ids of the elements.
   * @param {string} options.noun Noun of an event.
   * @param {string} options.path Path of the stream.
   * @param {string} options.event Name of the events.
   * @param {function(object): object} options.makeItem Returns the parts of an event that the list keeps.
   * @param {function(object, function(boolean): void): HTMLElement} options.makeRow Returns the row of an item; its
   *     second argument is called when the row opens and closes: the list is paused while a row is open.
   * @param {function(object): string} [options.group] Returns the group of an item; of a group the newest item is shown.
   */
  constructor(options) {
    this.#options = options;
    this.#reader = new EventReader(
      options.path,
      (event) => this.#receive(event),
      (state, error) => this.#onConnection(state, error),
    );
    this.#part("pause").addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      this.#part("pause").setAttribute("aria-pressed", String(this.#isPaused));
      this.#onPause();
    });
  }

  /** Follow the stream. */
  start() {
    this.#reader.start();
  }

  /** Stop following; another `start` resumes. */
  stop() {
    this.#reader.stop();
  }

  /** Show the items that a function accepts, in the order of a comparison, or the newest first. */
  filter(accepts, order = null) {
    this.#accepts = accepts;
    this.#order = order;
    this.#rows.clear();
    this.#openCount = 0;
    show(this.#part("rows"));
    this.#draw(true);
    this.#showStatus();
  }

  get #holds() {
    return this.#isPaused || this.#openCount > 0;
  }

  #part(name) {
    return byId(`${this.#options.name}-${name}`);
  }

  #receive({ name, data }) {
    if (name !== this.#options.event && name !== "gap") return;
    let item;
    try {
      const body = JSON.parse(data);
      item = name === "gap" ? { gap: body.reason } : this.#options.makeItem(body);
    } catch {
      item = { gap: "unreadable" }; // of a version that this page does not know
    }
    if (name !== "gap") this.#received += 1;
    this.#add(item);
    if (this.#received === 1) this.#showStatus();
  }

  #add(item) {
    this.#sequence += 1;
    this.#items.push({ ...item, sequence: this.#sequence });
    // Not at each event, because removing from the beginning of an array moves all items.
    if (this.#items.length >= KEPT + SHOWN) this.#items.splice(0, this.#items.length - KEPT);
    if (this.#holds) this.#unseen += 1;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#draw();
    }, DRAW_MS);
  }

  #onPause() {
    if (!this.#holds) this.#unseen = 0;
    this.#draw();
    this.#showStatus();
  }

  #draw(always = false) {
    if (always || !this.#holds) this.#drawRows();
    const newer = this.#unseen > 0 ? `, ${number(this.#unseen)} of them since the pause` : "";
    const shown = `${number(this.#rows.size)} shown`;
    show(this.#part("count"), `${counted(this.#received, this.#options.noun)} received${newer}; ${shown}.`);
  }

  #drawRows() {
    const list = this.#part("rows");
    const shown = this.#shownItems();
    const visible = new Set(shown.map((item) => item.sequence));
    for (const [sequence, row] of this.#rows) {
      if (visible.has(sequence)) continue;
      if (row.contains(document.activeElement)) list.focus(); // else the focus would be lost with the row
      row.remove();
      this.#rows.delete(sequence);
    }
    let place = list.firstChild;
    for (const item of shown) {
      const row = this.#rows.get(item.sequence) ?? this.#row(item);
      if (row === place) place = place.nextSibling;
      else list.insertBefore(row, place);
    }
  }

  /** Return the items to show, in order: of each group the newest, of an alert in parts the first part. */
  #shownItems() {
    const groups = new Map();
    for (const item of this.#items.toReversed()) {
      if (item.gap === undefined && !this.#accepts(item)) continue;
      const group = item.gap === undefined ? this.#options.group?.(item) ?? item.sequence : item.sequence;
      const newer = groups.get(group);
      if (newer === undefined || (newer.id === item.id && newer.place > item.place)) groups.set(group, item);
    }
    const items = [...groups.values()];
    if (this.#order !== null) items.sort((a, b) => (a.gap === undefined) - (b.gap === undefined) || this.#order(a, b));
    return items.slice(0, SHOWN);
  }

  #row(item) {
    const onToggle = (isOpen) => {
      this.#openCount += isOpen ? 1 : -1;
      this.#onPause();
    };
    const row =
      item.gap === undefined
        ? this.#options.makeRow(item, onToggle)
        : h("li", { class: "gap-row" }, GAPS[item.gap] ?? "Events before this line were missed.");
    this.#rows.set(item.sequence, row);
    return row;
  }

  #onConnection(state, error) {
    if (state === "connecting" && this.#connection.startsWith("Waiting")) return; // a repeated attempt is no news
    if (state === "waiting") {
      const reason = error instanceof Problem ? error.message : "The connection has ended.";
      this.#connection = `Waiting to connect again. ${reason}`;
    } else {
      const texts = { connecting: "Connecting \u2026", open: FOLLOWING, absent: "This service has no such stream." };
      this.#connection = texts[state];
    }
    this.#showStatus();
  }

  #showStatus() {
    let text = this.#connection;
    if (text === FOLLOWING && this.#received === 0) text += ` No ${this.#options.noun} yet.`;
    if (this.#isPaused) text = `Paused. ${text}`;
    else if (this.#openCount > 0) text = `Paused while a row is open. ${text}`;
    const element = this.#part("status");
    if (element.textContent !== text) element.textContent = text;
  }
}
