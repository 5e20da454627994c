/** View "Ask": near-duplicates of a pasted text. */

import { ofProfile, post, problemText } from "./api.js";
import { disclosure, matchLabel, showComparison, suppressedText } from "./comparison.js";
import { byId, captionLine, counted, documentLink, h, number, show, similarity } from "./dom.js";
import { incompleteText, loadProfileList, profileOf } from "./profiles.js";

const SKIPPED = {
  empty: () => "it has no words",
  too_short: ({ shingle_size: size, shingle_unit: unit }) => `it is shorter than one shingle (shingle_size = ${size}, ${unit})`,
  too_few_words: ({ min_words: least }) => `it has fewer words than the profile requires (min_words = ${least})`,
};
/** Most matches that are listed. */
const LIMIT = 100;

const LETTER = /\p{L}/u;
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Nko}\p{Script=Syriac}\p{Script=Thaana}]/u;

/** Aborts the request of the last question. */
let current = null;
/** The fields of the question whose answer is shown; null without an answer. */
let answered = null;

function questionFields() {
  return ["text", "profile", "threshold", "source", "scope"].map((name) => byId(`ask-${name}`).value);
}

/** Mark the answer as old where a field has changed since the question. */
function markOld() {
  const isOld = answered !== null && questionFields().some((value, row) => value !== answered[row]);
  const notice = byId("ask-old");
  if (notice.hidden === isOld) {
    notice.hidden = !isOld;
    show(notice, isOld ? "Old answer: the text or a field has changed since. Ask again." : "");
  }
  byId("ask-answer").classList.toggle("old", isOld);
}

function showAnswer(fields, status, rows) {
  answered = fields;
  show(byId("ask-status"), status);
  show(byId("ask-matches"), rows);
  markOld();
}

/** Return the direction of a text, by its first letter; `dir="auto"` takes seconds in a field with a megabyte. */
function directionOf(text) {
  const letter = LETTER.exec(text.slice(0, 1_000));
  return letter !== null && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

function matchRow(profile, asked, match) {
  const [button, panel] = disclosure(matchLabel(match), (element) => {
    const load = () => post(ofProfile(profile, "compare"), { ...asked, id: match.id });
    showComparison(element, load, ["your text", match.id]);
  });
  const place = h("span", { class: "quiet" }, ` ${match.topic}:${match.partition}:${match.offset} `);
  const link = h("span", {}, "document ", documentLink(profile, match.id));
  return h("li", {}, button, captionLine("", match), h("p", { class: "quiet below" }, link, place), panel);
}

function summary(profile, answer) {
  if (answer.skipped !== null) {
    return `The daemon would skip this text: ${SKIPPED[answer.skipped]?.(profileOf(profile)) ?? answer.skipped}.`;
  }
  if (answer.matches_count === 0 && profileOf(profile).documents === 0) {
    return "The index of this profile is empty: there is nothing to compare with.";
  }
  const parts = [];
  const least = similarity(answer.threshold);
  if (answer.matches_count === 0) parts.push(`No near-duplicate with a similarity of ${least} or more.`);
  else parts.push(`${counted(answer.matches_count, "near-duplicate")} with a similarity of ${least} or more.`);
  if (answer.matches_count > answer.matches.length) parts.push(`The ${number(answer.matches.length)} most similar:`);
  if (!answer.complete) parts.push(incompleteText(profile));
  if (answer.recall < 0.95) {
    parts.push(`At this similarity, the bands find ${(answer.recall * 100).toFixed(0)} of 100 near-duplicates.`);
  }
  return [...parts, suppressedText(answer.suppressed)].join(" ").trim();
}

async function ask(event) {
  event.preventDefault();
  const text = byId("ask-text").value;
  const profile = byId("ask-profile").value;
  const threshold = byId("ask-threshold").valueAsNumber;
  current?.abort();
  const control = (current = new AbortController());
  const fields = questionFields();
  show(byId("ask-status"), "Looking up \u2026");
  try {
    const asked = { text };
    for (const field of ["source", "scope"]) {
      if (byId(`ask-${field}`).value !== "") asked[field] = byId(`ask-${field}`).value;
    }
    const body = { ...asked, limit: LIMIT };
    if (!Number.isNaN(threshold)) body.threshold = threshold;
    const answer = await post(ofProfile(profile, "lookup"), body, control.signal);
    if (answer.matches_count === 0) await loadProfileList(control.signal);
    showAnswer(fields, summary(profile, answer), answer.matches.map((match) => matchRow(profile, asked, match)));
  } catch (error) {
    if (control.signal.aborted) return;
    showAnswer(fields, h("span", { class: "problem" }, problemText(error)), []);
  }
}

export function prepareAsk() {
  const form = byId("ask-form");
  form.addEventListener("submit", ask);
  form.addEventListener("input", markOld);
  const field = byId("ask-text");
  field.addEventListener("input", () => {
    field.dir = directionOf(field.value);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}
