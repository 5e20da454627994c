/** View "Document": a document of the index, its near-duplicates and its cluster. */

import { get, ofProfile, problemText } from "./api.js";
import { matchDisclosure, suppressedText } from "./comparison.js";
import { byId, bytes, captionLine, counted, documentLink, facts, foreign, h, number, show, spread, table, time } from "./dom.js";
import { incompleteText } from "./profiles.js";

/** Aborts the requests for the last document. */
let current = null;

function description(profile, body) {
  const cluster = body.cluster_id === null ? "its first document has left the index or the scope" : documentLink(profile, body.cluster_id);
  return facts([
    ["Record time", time(body.record_time)],
    ["Record", foreign(`${body.topic}:${body.partition}:${body.offset}`)],
    ["Cluster", cluster],
    ["Text", `${counted(body.tokens, "token")}, ${counted(body.shingles, "distinct shingle")}`],
    ["Stored", `${body.sketch}, ${bytes(body.sketch_bytes)}`],
    ["Digest", h("code", {}, body.digest)],
  ]);
}

function matchRow(profile, id, match) {
  const [button, panel] = matchDisclosure(profile, id, match, true);
  const link = h("p", { class: "quiet below" }, "document ", documentLink(profile, match.id));
  return h("li", {}, button, captionLine("", match), link, panel);
}

function matchList(profile, body) {
  const count = counted(body.matches_count, "near-duplicate");
  const heading = h("h3", {}, body.matches_count === 0 ? "No near-duplicate in the index" : count);
  const partial = body.complete ? null : h("p", {}, incompleteText(profile));
  const suppressed = h("p", {}, suppressedText(body.suppressed));
  const rows = body.matches.map((match) => matchRow(profile, body.id, match));
  const more = body.matches_count - body.matches.length;
  const rest = more > 0 ? h("p", {}, `${number(more)} further ones are not listed.`) : null;
  return [heading, partial, suppressed, h("ol", { class: "rows" }, rows), rest];
}

function memberRow(profile, member, id) {
  const label = member.label ? [foreign(member.label), h("br")] : [];
  const name = member.id === id ? [foreign(member.id), " (this document)"] : [documentLink(profile, member.id)];
  return [time(member.record_time), member.source === null ? "unknown" : foreign(member.source), [...label, ...name]];
}

function clusterTable(profile, body) {
  const { cluster } = body;
  const heading = h("h3", {}, "Cluster: which copy came when, and from where");
  const rows = cluster.members.map((member) => memberRow(profile, member, body.id));
  const caption = `${counted(rows.length, "document")}, the earliest first`;
  const partial = "At most 1,000 documents are listed; this cluster has more.";
  return [heading, h("p", {}, spread(cluster)), table(caption, ["Record time", "Source", "Document"], rows), cluster.complete ? null : h("p", { class: "quiet" }, partial)];
}

async function load(profile, id) {
  current?.abort();
  const control = (current = new AbortController());
  const status = byId("document-status");
  show(status, "Looking up \u2026");
  try {
    const path = ofProfile(profile, "documents", id);
    const [body, matches] = await Promise.all([get(path, control.signal), get(`${path}/matches`, control.signal)]);
    show(status);
    show(
      byId("document-result"),
      h("h3", {}, foreign(body.id)),
      captionLine("", body),
      description(profile, body),
      matchList(profile, matches),
      clusterTable(profile, matches),
    );
  } catch (error) {
    if (control.signal.aborted) return;
    show(status, h("span", { class: "problem" }, problemText(error)));
    show(byId("document-result"));
  }
}

/** Prepare the view; return the function that shows a document in it. */
export function prepareDocument() {
  byId("document-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const parts = [byId("document-profile").value, byId("document-id").value.toWellFormed()];
    delete byId("document-profile").dataset.wanted; // the user has selected a profile
    const target = `#document/${parts.map(encodeURIComponent).join("/")}`;
    if (location.hash === target) load(...parts);
    else location.hash = target;
  });
  return {
    show: (profile, id) => {
      if (profile === undefined || id === undefined) return;
      const select = byId("document-profile");
      select.value = select.dataset.wanted = profile; // the options may not be loaded yet (`fillProfiles`)
      byId("document-id").value = id;
      load(profile, id);
    },
  };
}
