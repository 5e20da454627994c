/** The comparison of two documents: its numbers, and both texts. */

import { differences } from "./differences.js";
import { get, ofProfile, problemText } from "./api.js";
import { counted, foreign, h, show, similarity, similarityMeter } from "./dom.js";

const RULES = {
  min_shingles: "because one has too few shingles (min_shingles)",
  only_sources: "because no source is one of only_sources",
  ignore_same_source: "because both have the same source (ignore_same_source)",
  ignore_sources: "because ignore_sources names their two sources",
};

/** Return the near-duplicates that rules of the profile suppress as sentences. */
export function suppressedText(suppressed) {
  return Object.entries(suppressed)
    .filter(([, count]) => count > 0)
    .map(([rule, count]) => `${counted(count, "near-duplicate is", "near-duplicates are")} no match, ${RULES[rule] ?? rule}.`)
    .join(" ");
}

/** Return the label of a match: similarity, id, method, shared bands, and containment where the service knows it. */
export function matchLabel(match) {
  const facts = [match.method, counted(match.shared_bands, "shared band")];
  if (typeof match.containment === "number") facts.push(`containment ${similarity(match.containment)}`);
  if (match.reason === "containment") facts.push("a pair by containment");
  const id = foreign(match.id, { class: "id" });
  return [similarityMeter(match.similarity), " ", id, " ", h("span", { class: "quiet" }, facts.join(", "))];
}

function summary(body, titles) {
  const [a, b] = titles.map((title) => foreign(title));
  const contained = { a: [a, " in ", b], b: [b, " in ", a], both: ["each in the other"] }[body.contained];
  const error = body.method === "estimated" ? ` \u00b1 ${similarity(body.standard_error)}` : "";
  const parts = [
    `similarity ${similarity(body.similarity)}${error} (${body.method})`,
    [`containment ${similarity(body.containment)} (`, ...contained, ")"],
    `${body.shared_bands} of ${body.bands} bands shared`,
    body.is_match ? "a pair of the profile" : "not a pair of the profile",
  ];
  if (body.suppressed_by) parts.push(`suppressed ${RULES[body.suppressed_by] ?? body.suppressed_by}`);
  if (body.within_scope === false) parts.push("not compared, because their scopes differ");
  if (!body.within_window) parts.push("too far apart in time for a pair");
  return h("p", {}, parts.flatMap((part, row) => [row > 0 ? " \u00b7 " : "", part].flat()));
}

/** Return a comparison with the two texts exchanged, in the fields that are shown. */
function exchanged(body) {
  const segments = body.segments?.map(({ kind, a, b }) => ({ kind, a: b, b: a })) ?? null;
  return { ...body, segments, contained: { a: "b", b: "a", both: "both" }[body.contained] };
}

/**
 * Show the comparison that `load` returns in an element.
 *
 * @param {HTMLElement} element Gets the comparison, or the problem with it.
 * @param {function(): Promise<object>} load Returns the answer of the service.
 * @param {[string, string]} titles Names of the two texts.
 * @param {boolean} isByTime Show the document with the later record time as the newer one.
 */
export async function showComparison(element, load, titles, isByTime = false) {
  element.setAttribute("aria-busy", "true");
  show(element, h("p", { role: "status" }, "Comparing \u2026"));
  try {
    let body = await load();
    if (isByTime && body.a.record_time < body.b.record_time) {
      body = exchanged(body);
      titles = titles.toReversed();
    }
    const missing = h("p", {}, `The texts cannot be shown: ${body.texts_missing}.`);
    show(element, summary(body, titles), body.segments === null ? missing : differences(body.segments, titles, body.aligned));
  } catch (error) {
    show(element, h("p", { class: "problem", role: "alert" }, problemText(error)));
  } finally {
    element.removeAttribute("aria-busy");
  }
}

/** Return a button for a match of a stored document, and the panel with the comparison of the two. */
export function matchDisclosure(profile, id, match, isByTime = false) {
  return disclosure(matchLabel(match), (element) => {
    const query = new URLSearchParams({ a: id.toWellFormed(), b: match.id.toWellFormed() });
    showComparison(element, () => get(`${ofProfile(profile, "compare")}?${query}`), [id, match.id], isByTime);
  });
}

let panels = 0;

/**
 * Return a button and its panel, which is filled when it opens.
 *
 * @param {Node[]} label Content of the button.
 * @param {function(HTMLElement): void} fill Fills the panel; called at each opening.
 * @param {function(boolean): void} onToggle Called after each opening and closing.
 */
export function disclosure(label, fill, onToggle = () => {}) {
  const panel = h("div", { class: "panel", id: `panel-${(panels += 1)}`, hidden: true });
  const toggle = () => {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (panel.hidden) show(panel);
    else fill(panel);
    onToggle(!panel.hidden);
  };
  const attributes = { type: "button", class: "disclosure", "aria-expanded": "false", "aria-controls": panel.id };
  const button = h("button", { ...attributes, click: toggle }, label);
  return [button, panel];
}
