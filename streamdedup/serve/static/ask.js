/** View "Ask": near-duplicates of a pasted text. */

import { ofProfile, post, problemText } from "./api.js";
import { disclosure, matchLabel, showComparison, suppressedText } from "./comparison.js";
import { byId, counted, documentLink, h, number, show, similarity } from "./dom.js";

const SKIPPED = {
  empty: "The daemon would skip this text: it has no words.",
  too_short: "The daemon would skip this text: it is shorter than one shingle.",
  too_few_words: "The daemon would skip this text: it has fewer words than the profile requires.",
};
/** Most matches that are listed. */
const LIMIT = 100;

const LETTER = /\p{L}/u;
const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Nko}\p{Script=Syriac}\p{Script=Thaana}]/u;

let current = null;

/** Return the direction of a text, by its first letter; `dir="auto"` takes seconds in a field with a megabyte. */
function directionOf(text) {
  const letter = LETTER.exec(text.slice(0, 1_000));
  return letter !== null && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

function matchRow(profile, text, match) {
  const [button, panel] = disclosure(matchLabel(match), (element) => {
    const load = () => post(ofProfile(profile, "compare"), { text, id: match.id });
    showComparison(element, load, ["your text", match.id]);
  });
  const place = h("span", { class: "quiet" }, ` ${match.topic}:${match.partition}:${match.offset} `);
  const link = h("span", {}, "document ", documentLink(profile, match.id));
  return h("li", {}, button, h("p", { class: "quiet below" }, link, place), panel);
}

function summary(answer) {
  if (answer.skipped !== null) return SKIPPED[answer.skipped] ?? `The daemon would skip this text: ${answer.skipped}.`;
  const parts = [];
  const least = similarity(answer.threshold);
  if (answer.matches_count === 0) parts.push(`No near-duplicate with a similarity of ${least} or more.`);
  else parts.push(`${counted(answer.matches_count, "near-duplicate")} with a similarity of ${least} or more.`);
  if (answer.matches_count > answer.matches.length) parts.push(`The ${number(answer.matches.length)} most similar:`);
  if (!answer.complete) parts.push("Not all candidates were compared, because there were too many.");
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
  show(byId("ask-status"), "Looking up \u2026");
  try {
    const source = byId("ask-source").value;
    const body = { text, limit: LIMIT };
    if (!Number.isNaN(threshold)) body.threshold = threshold;
    if (source !== "") body.source = source;
    const answer = await post(ofProfile(profile, "lookup"), body, control.signal);
    show(byId("ask-status"), summary(answer));
    show(byId("ask-matches"), answer.matches.map((match) => matchRow(profile, text, match)));
  } catch (error) {
    if (control.signal.aborted) return;
    show(byId("ask-status"), h("span", { class: "problem" }, problemText(error)));
    show(byId("ask-matches"));
  }
}

/** Prepare the view. */
export function prepareAsk() {
  const form = byId("ask-form");
  form.addEventListener("submit", ask);
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
