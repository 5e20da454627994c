/** Two texts with their differences marked: side by side, or as one text where the page is narrow. */

import { h, number, show, visible, visibleDifference } from "./dom.js";

/** Characters of a passage that are shown on each side of a gap, and within which the end of a word is looked for. */
const AROUND = 160;
const WORD = 40;
/** Longest passages without a gap. */
const LONGEST_EQUAL = 600;
const LONGEST_CHANGED = 20_000;
/** Passages that are shown at first, and by each further click. */
const PASSAGES = 400;

/** Marks of what only one text has, as in the terminal: green for the first text, which is the newer one, red for the other. */
const MARKS = { a: "ins", b: "del" };

const TOO_LONG = "One of the texts has more than 10,000 words: the differences are not marked.";

const narrow = matchMedia("(max-width: 44rem)");
/** Functions that draw the visible comparisons again, by element. */
const drawn = new Map();

narrow.addEventListener("change", () => {
  for (const [element, draw] of drawn) {
    if (element.isConnected) draw();
    else drawn.delete(element);
  }
});

/** Move an offset behind the last space before it; without a space nearby, out of the middle of a surrogate pair. */
function whole(text, offset) {
  const space = text.slice(offset - WORD, offset).lastIndexOf(" ");
  if (space >= 0) return offset - WORD + space + 1;
  const code = text.charCodeAt(offset);
  return code >= 0xdc00 && code <= 0xdfff ? offset - 1 : offset;
}

/** Return a passage, with a button in place of its middle where it is long. */
function passage(text, kind, isWhole, expand) {
  const shown = kind === "changed" ? visibleDifference : visible;
  if (isWhole || text.length <= (kind === "equal" ? LONGEST_EQUAL : LONGEST_CHANGED)) return [shown(text)];
  const begin = whole(text, AROUND);
  const end = whole(text, text.length - AROUND);
  const words = `\u2026 ${number(end - begin)} ${kind} characters \u2026`;
  return [
    shown(text.slice(0, begin)),
    h("button", { type: "button", class: "gap", click: expand }, words),
    shown(text.slice(end)),
  ];
}

function sideBySide(parts, titles) {
  const columns = ["a", "b"].map((side, column) => {
    const content = parts.map(({ segment, isWhole, expand }) => {
      const text = segment[side];
      if (text === "") return null;
      const nodes = passage(text, segment.kind, isWhole, expand);
      return segment.kind === "changed" ? h(MARKS[side], {}, nodes) : nodes;
    });
    const region = { class: "text", dir: "auto", role: "region", tabindex: "0", "aria-label": titles[column] };
    return h("div", { class: "column" }, h("h4", {}, visible(titles[column])), h("div", region, content.flat()));
  });
  return h("div", { class: "columns" }, columns);
}

function inline(parts, titles) {
  const content = parts.map(({ segment, isWhole, expand }) => {
    if (segment.kind === "equal") return passage(segment.b, "equal", isWhole, expand);
    const sides = [["del", segment.b], ["ins", segment.a]].filter(([, text]) => text !== "");
    return sides.map(([tag, text]) => h(tag, {}, passage(text, segment.kind, isWhole, expand)));
  });
  const region = { class: "text", dir: "auto", role: "region", tabindex: "0", "aria-label": titles.join(" and ") };
  return h("div", region, content.flat(2));
}

/**
 * Return an element that shows two texts.
 *
 * @param {{kind: string, a: string, b: string}[]} segments Passages of the texts, in order.
 * @param {[string, string]} titles Names of the texts.
 * @param {boolean} aligned False where a text has too many words: the only segment is the whole texts.
 */
export function differences(segments, titles, aligned) {
  // A kind without a mark, unlike "changed"; it is also a word on the button of a gap.
  if (!aligned) segments = segments.map((segment) => ({ ...segment, kind: "further" }));
  const element = h("div", { class: "differences" });
  const expanded = new Set();
  let limit = PASSAGES;

  function draw() {
    const parts = segments.slice(0, limit).map((segment, row) => ({
      segment,
      isWhole: expanded.has(row),
      expand: () => {
        expanded.add(row);
        draw();
        element.querySelector("[tabindex]").focus();
      },
    }));
    const rest = segments.length - limit;
    const more = () => {
      limit += PASSAGES;
      draw();
    };
    show(
      element,
      narrow.matches && aligned ? inline(parts, titles) : sideBySide(parts, titles),
      rest > 0 ? h("button", { type: "button", click: more }, `Show more: ${number(rest)} passages follow`) : null,
      aligned ? legend(segments, titles) : h("p", { class: "quiet" }, TOO_LONG),
    );
  }

  for (const [other] of drawn) if (!other.isConnected && other !== element) drawn.delete(other);
  drawn.set(element, draw);
  draw();
  return element;
}

function legend(segments, titles) {
  if (segments.every(({ kind }) => kind === "equal")) return h("p", { class: "quiet" }, "Both texts are the same.");
  const [a, b] = titles.map((title) => h("bdi", {}, visible(title)));
  return h("p", { class: "quiet legend" }, h(MARKS.a, {}, "only in"), " ", a, "; ", h(MARKS.b, {}, "only in"), " ", b, ".");
}
