/** View "State": rates, lag, the size of the index, and the daemons. */

import { get, problemText } from "./api.js";
import { byId, bytes, foreign, h, number, show, table, time } from "./dom.js";
import { plot } from "./plot.js";

const REFRESH_MS = 5_000;

const CARDS = [
  ["Documents per second", "documents_per_second", number],
  ["Alerts per second", "alerts_per_second", number],
  ["Lag in records", "lag", number],
  ["Documents in the index", "documents", number],
  ["Memory of Redis", "used_bytes", bytes],
];

function profileTable(profiles) {
  const rows = profiles.map((profile) => [
    foreign(profile.name),
    foreign(profile.topics.join(", ")),
    String(profile.threshold),
    `${profile.bands} bands of ${profile.rows} rows`,
    number(profile.documents),
    profile.index === null ? "can be looked up" : h("span", { class: "problem" }, profile.index.title),
  ]);
  return table("Profiles", ["Profile", "Topics", "Threshold", "Bands", "Documents", "Index"], rows);
}

function daemonTable(daemons) {
  const rows = daemons.map((daemon) => [
    foreign(daemon.address),
    daemon.reachable ? "answers" : h("span", { class: "problem" }, "does not answer"),
    daemon.waiting_for ? foreign(daemon.waiting_for) : "nothing",
    daemon.last_error ? foreign(daemon.last_error) : "none",
  ]);
  return table("Daemons", ["Address", "Metrics", "Waiting for", "Last error"], rows);
}

function memory(redis) {
  const { used_bytes: used, max_bytes: max } = redis;
  if (max === null) return h("p", {}, `Memory of Redis: ${bytes(used)}, without a limit.`);
  const share = `${bytes(used)} of ${bytes(max)}`;
  const meter = h("meter", { min: 0, max, high: max * 0.8, value: used ?? 0, "aria-label": "Memory of Redis" }, share);
  return h("p", {}, "Memory of Redis: ", meter, ` ${share}`);
}

function total(profiles) {
  const counts = profiles.map((profile) => profile.documents).filter((count) => count !== null);
  return counts.length === 0 ? null : counts.reduce((sum, count) => sum + count, 0);
}

function stateParts(state) {
  const now = { ...state, documents: total(state.profiles), used_bytes: state.redis.used_bytes };
  const cards = CARDS.map(([title, key, format]) => {
    const points = state.history.map((entry) => ({ at: Date.parse(entry.at), value: entry[key] }));
    return plot(title, now[key], points, format);
  });
  const origin = state.from === "metrics" ? "the metrics of the daemons" : "Kafka and Redis";
  return [
    h("div", { class: "cards" }, cards),
    memory(state.redis),
    state.daemons.length > 0 ? daemonTable(state.daemons) : null,
    h("p", { class: "quiet" }, `From ${origin}, `, time(state.at), "."),
  ];
}

async function load(signal) {
  const [state, profiles] = await Promise.allSettled([get("v1/state", signal), get("v1/profiles", signal)]);
  if (signal.aborted) return;
  const problems = [state, profiles].filter((each) => each.status === "rejected").map((each) => each.reason);
  const isAbsent = problems.some((problem) => problem.isAbsent);
  const [problem] = problems.filter((each) => !each.isAbsent);
  const status = byId("state-status");
  const text = problem === undefined ? (isAbsent ? "This service reports no rates: only its profiles are shown." : "") : problemText(problem);
  if (status.textContent !== text) show(status, problem === undefined ? text : h("span", { class: "problem" }, text));
  const parts = [];
  if (state.status === "fulfilled") parts.push(...stateParts(state.value));
  if (profiles.status === "fulfilled") parts.push(profileTable(profiles.value.profiles));
  if (parts.length > 0) show(byId("state-result"), ...parts);
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
