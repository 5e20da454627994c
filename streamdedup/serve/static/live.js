/** View "Live": alerts and dead letters as they are committed. */

import { disclosure, matchDisclosure } from "./comparison.js";
import { byId, captionLine, clusterSize, counted, documentLink, facts, foreign, h, number, similarityMeter, spread, time } from "./dom.js";
import { EventList } from "./eventlist.js";
import { prepareTabs } from "./tabs.js";

/** Most matches that are kept of an alert; an alert in a spam storm has hundreds. */
const MATCHES = 20;

/** Fields of a match that a row shows, or that name the match in a request; further ones would only take memory. */
const MATCH_FIELDS = [
  "id", "similarity", "method", "shared_bands", "containment", "reason", "label", "source", "published_at",
];

function keptMatch(match) {
  return Object.fromEntries(MATCH_FIELDS.map((field) => [field, match[field]]));
}

function alertItem(alert) {
  const { document: subject, matches } = alert;
  return {
    profile: alert.profile,
    id: subject.id,
    source: subject.source ?? null,
    label: subject.label ?? "",
    published_at: subject.published_at ?? null,
    first: { id: alert.cluster_id, label: alert.cluster_label }, // the first document of the cluster
    size: alert.cluster_size ?? null,
    sources: alert.cluster_sources ?? 0,
    since: alert.cluster_since,
    earliest_id: alert.cluster_earliest_id,
    earliest_source: alert.cluster_earliest_source,
    detectedAt: alert.detected_at,
    place: alert.part,
    part: alert.parts > 1 ? `part ${alert.part} of ${alert.parts}` : null,
    best: Math.max(...matches.map((match) => match.similarity)),
    count: matches.length,
    matches: matches.slice(0, MATCHES).map(keptMatch),
  };
}

function matchRow(item, match) {
  const [button, panel] = matchDisclosure(item.profile, item.id, match);
  return h("li", {}, button, captionLine("", match), panel);
}

function alertRow(item, onToggle) {
  const others = item.count > 1 ? ` and ${counted(item.count - 1, "other")}` : "";
  const label = [
    similarityMeter(item.best),
    " ",
    foreign(item.id, { class: "id" }),
    " resembles ",
    foreign(item.matches[0].id, { class: "id" }),
    others,
  ];
  const [button, panel] = disclosure(
    label,
    (element) => {
      const rest = item.count - item.matches.length;
      element.append(
        h("p", {}, "Document ", documentLink(item.profile, item.id), ". Compare it with:"),
        h("ol", { class: "rows" }, item.matches.map((match) => matchRow(item, match))),
        h("p", { class: "quiet" }, rest > 0 ? `${number(rest)} further matches are in the alert.` : ""),
      );
    },
    onToggle,
  );
  const source = item.source === null || item.label !== "" ? null : [" \u00b7 ", foreign(item.source)]; // else in the caption
  const part = item.part === null ? null : ` \u00b7 ${item.part}`;
  const size = item.size === null ? null : ` \u00b7 cluster of ${clusterSize(item.size)}`;
  const sources = item.sources === 0 ? null : [" \u00b7 ", spread(item)];
  const place = h(
    "p",
    { class: "quiet below" },
    [time(item.detectedAt), " \u00b7 ", foreign(item.profile), source, size, sources, part].flat(),
  );
  const captions = [captionLine("new", item), captionLine("old", item.matches[0])];
  if (![item.id, item.matches[0].id].includes(item.first.id)) captions.push(captionLine("first", item.first));
  return h("li", {}, button, ...captions, place, panel);
}

/** Return an argument of a command as a shell needs it. */
function quoted(text) {
  return /^[\w.:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return the command that shows the value of a dead letter, which the service does not send. */
function inspection({ topic, reason, time: failureTime }) {
  const filters = Object.entries({ "--topic": topic, "--code": reason, "--since": failureTime });
  return `streamdedup dlq inspect --config streamdedup.toml ${filters.flat().map(quoted).join(" ")} --json`;
}

function deadLetterRow(item, onToggle) {
  const place = `${item.topic}:${item.partition}:${item.offset}`;
  const [button, panel] = disclosure(
    [h("strong", {}, foreign(item.reason)), " ", foreign(item.error)],
    (element) => {
      const rows = [
        ["Code", foreign(item.reason)],
        ["Error", foreign(item.error)],
        ["Record", foreign(place)],
        ["Stage", foreign(item.stage || "unknown")],
        ["Attempts", number(item.attempts)],
        ["Time", time(item.time)],
      ];
      element.append(
        facts(rows),
        h("p", {}, "The value is not sent to this page. A command shows it, on a machine with the settings:"),
        h("pre", { class: "text", tabindex: "0", role: "region", "aria-label": "Command" }, foreign(inspection(item))),
      );
    },
    onToggle,
  );
  return h("li", {}, button, h("p", { class: "quiet below" }, time(item.time), " \u00b7 ", foreign(place)), panel);
}

function filterOf() {
  const profile = byId("live-profile").value;
  const source = byId("live-source").value.toLowerCase();
  const least = byId("live-similarity").valueAsNumber;
  return (item) =>
    (profile === "" || item.profile === profile) &&
    (source === "" || (item.source ?? "").toLowerCase().includes(source)) &&
    (Number.isNaN(least) || item.best >= least);
}

/** Orders of stories: by sources, then by documents. */
const ORDERS = { newest: null, copied: (a, b) => b.sources - a.sources || b.size - a.size };

/** Prepare the view; return the functions that show and hide it. */
export function prepareLive() {
  const lists = {
    alerts: new EventList({
      name: "live",
      noun: "alert",
      path: "v1/alerts",
      event: "alert",
      makeItem: alertItem,
      makeRow: alertRow,
      group: (item) => JSON.stringify([item.profile, item.first.id]),
    }),
    "dead-letters": new EventList({
      name: "dead",
      noun: "dead letter",
      path: "v1/dead-letters",
      event: "dead-letter",
      makeItem: ({ topic, partition, offset, reason, error, time: failureTime, stage, attempts }) => {
        return { topic, partition, offset, reason, error, time: failureTime, stage, attempts };
      },
      makeRow: deadLetterRow,
    }),
  };
  let isVisible = false;
  let selected = "alerts"; // only the stream of the selected tab is followed, and only while the view is shown
  const follow = () => {
    for (const [name, list] of Object.entries(lists)) {
      if (isVisible && name === selected) list.start();
      else list.stop();
    }
  };
  const tabs = prepareTabs(byId("streams"), (name) => {
    selected = name;
    follow();
  });
  tabs.select("alerts");
  const filter = byId("live-filter");
  filter.addEventListener("input", () => lists.alerts.filter(filterOf(), ORDERS[byId("live-order").value]));
  filter.addEventListener("submit", (event) => event.preventDefault());
  const setVisible = (isShown) => {
    isVisible = isShown;
    follow();
  };
  return { show: () => setVisible(true), hide: () => setVisible(false) };
}
