/** View "State": the profiles and their indexes. */

import { problemText } from "./api.js";
import { byId, foreign, h, number, show, table } from "./dom.js";
import { loadProfileList } from "./profiles.js";

const REFRESH_MS = 5_000;

function profileTable(profiles) {
  const rows = profiles.map((profile) => [
    foreign(profile.name),
    foreign(profile.topics.join(", ")),
    `${profile.threshold}, by ${profile.bands} x ${profile.rows} bands`,
    number(profile.documents),
    profile.index === null ? "can be looked up" : h("span", { class: "problem" }, profile.index.title),
  ]);
  return table("Profiles", ["Profile", "Topics", "Threshold", "Documents", "Index"], rows);
}

async function load(signal) {
  let problem = null;
  try {
    show(byId("state-result"), profileTable(await loadProfileList(signal)));
  } catch (error) {
    problem = problemText(error);
  }
  const status = byId("state-status"); // each change is announced, so the same text is not set again
  if (!signal.aborted && status.textContent !== (problem ?? "")) show(status, problem && h("span", { class: "problem" }, problem));
}

/** Prepare the view; return the functions that show and hide it. */
export function prepareState() {
  let control = null;

  async function refresh(signal) {
    while (!signal.aborted) {
      if (!document.hidden) await load(signal);
      await new Promise((resolve) => {
        setTimeout(resolve, REFRESH_MS);
        signal.addEventListener("abort", resolve, { once: true });
      });
    }
  }

  return {
    show: () => {
      control ??= new AbortController();
      refresh(control.signal);
    },
    hide: () => {
      control?.abort();
      control = null;
    },
  };
}
