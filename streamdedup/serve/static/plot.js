/** Small plots over the last hour, or over ten minutes while no more is known. */

import { h, svg } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 48;
/** Times that a plot may show, with their names. */
const SPANS = [
  [600_000, "ten minutes"],
  [3_600_000, "the last hour"],
];

/** Return the points of a line: one list for each run of known values. */
function runs(points, end, spanMs, top) {
  const lines = [[]];
  for (const { at, value } of points) {
    if (value === null || value === undefined) {
      lines.push([]);
      continue;
    }
    const x = WIDTH * (1 - (end - at) / spanMs);
    const y = HEIGHT - 2 - (HEIGHT - 4) * (value / top);
    lines.at(-1).push(`${x.toFixed(1)},${y.toFixed(1)}`);
  }
  return lines.filter((line) => line.length > 0);
}

/**
 * Return a number with its plot over time.
 *
 * @param {string} title Name of the number.
 * @param {number|null} now Present value; null where it is unknown.
 * @param {{at: number, value: number|null}[]} points Values with their times in milliseconds, in order of time.
 * @param {function(number|null): string} format Words a value.
 */
export function plot(title, now, points, format) {
  const known = points.map((point) => point.value).filter((value) => value !== null && value !== undefined);
  const label = h("p", {}, title);
  const value = h("p", { class: "value" }, format(now ?? null));
  if (known.length < 2) return h("div", { class: "card" }, label, value);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const end = points.at(-1).at;
  const [spanMs, span] = SPANS.find(([each]) => end - points[0].at <= each) ?? SPANS.at(-1);
  const words = `${title} over ${span}: from ${format(least)} to ${format(most)}, now ${format(now ?? null)}`;
  const lines = runs(points, end, spanMs, most || 1).map((line) => svg("polyline", { points: line.join(" ") }));
  const frame = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words };
  return h("div", { class: "card" }, label, value, svg("svg", frame, lines), h("p", { class: "quiet" }, `up to ${format(most)} in ${span}`));
}
