/** Elements, and foreign texts as text: no function of this module takes HTML. All views use it. */

/**
 * Characters that would be invisible or would reorder the text beside them: controls except tab and line feed, controls
 * of direction, zero-width and separating characters, and halves of surrogate pairs. The joiners U+200C and U+200D are
 * letters in many scripts and stay.
 */
const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f]|[\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|" +
    "[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  "g",
);

/** Invisible characters of ordinary texts, shown only in a difference: soft hyphen, joiners, variation selectors. */
const UNSEEN = /[\u00ad\u034f\u200c\u200d\ufe00-\ufe0f]/g;
/** Spaces that look like a blank, shown only in a difference. A test compares the sets with `cli/rendering/safe_text.py`. */
const ODD_SPACES = /[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/g;

function nameOf(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code); // the picture of a control character
  if (code === 0x7f) return "\u2421"; // the picture of DEL
  if (code >= 0xd800 && code <= 0xdfff) return "\ufffd"; // half of a surrogate pair
  return `\u27e6U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e7`;
}

/** Return a text with its hidden characters made visible. */
export function visible(text) {
  return String(text).replaceAll("\r\n", "\n").replace(HIDDEN, nameOf);
}

/** Return a passage that only one text has, where also joiners, soft hyphens and odd spaces are visible. */
export function visibleDifference(text) {
  return visible(text).replace(UNSEEN, nameOf).replace(ODD_SPACES, nameOf);
}

/**
 * Return an element.
 *
 * An attribute whose value is a function is a listener; one that is null or false is left out. Children are nodes, or
 * texts of the page itself; texts of others go through `foreign`.
 */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  show(node, ...children);
  return node;
}

/** Return a text of others as an element whose direction does not reach beyond it. */
export function foreign(text, attributes = {}) {
  return h("bdi", attributes, visible(text));
}

export function byId(id) {
  return document.getElementById(id);
}

/** Replace the children of a node; null and undefined are left out. */
export function show(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SMALL = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** Return a number with separators; a small one with a decimal place. */
export function number(value) {
  if (value === null || value === undefined) return "unknown";
  return (Math.abs(value) < 10 ? SMALL : NUMBER).format(value);
}

/** Return a number with its noun. */
export function counted(count, singular, plural = `${singular}s`) {
  return `${number(count)} ${count === 1 ? singular : plural}`;
}

/** Return the size of a cluster in words; the index counts no further than 1,000. */
export function clusterSize(size) {
  return size >= 1000 ? "1000+ documents" : counted(size, "document");
}

/** Return how many sources a cluster has, since when, and its earliest document; null where no source is known. */
export function spread({ size, sources, since, earliest_id: id, earliest_source: source }) {
  if (!sources) return null;
  const count = size >= 1000 ? `${number(sources)}+ sources` : counted(sources, "source");
  const earliest = source ?? id;
  return h("span", {}, `${count} since `, time(since), earliest ? [", earliest ", foreign(earliest)] : null);
}

export function bytes(value) {
  if (value === null || value === undefined) return "unknown";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let row = 0;
  for (; value >= 1024 && row < units.length - 1; row++) value /= 1024;
  return `${row === 0 ? NUMBER.format(value) : SMALL.format(value)} ${units[row]}`;
}

/** Return a similarity with four decimals, as the commands print it. */
export function similarity(value) {
  return value.toFixed(4);
}

const two = (value) => String(value).padStart(2, "0");

function zoneOf(moment) {
  const minutes = -moment.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "\u2212" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** Return an element for a time (RFC 3339), shown in the local time zone, with its distance from UTC. */
export function time(text) {
  const moment = new Date(text);
  if (text === null || text === undefined || Number.isNaN(moment.getTime())) return h("span", {}, "unknown time");
  const date = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  const utc = moment.toISOString();
  return h("time", { datetime: utc, title: utc }, `${date} ${clock} ${zoneOf(moment)}`);
}

/** Return a table with a caption and the names of its columns; it scrolls where the page is narrow. */
export function table(caption, names, rows) {
  const head = h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell))));
  return h("div", { class: "scroll" }, h("table", {}, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, body)));
}

/** Return names with their values, as a list of descriptions. */
export function facts(rows) {
  return h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]).flat());
}

export function documentLink(profile, id) {
  const target = `#document/${encodeURIComponent(profile)}/${encodeURIComponent(id.toWellFormed())}`;
  return h("a", { href: target }, foreign(id));
}

/**
 * Return a line with the words by which people recognise a document: label, source and time of publication; null without
 * a label.
 */
export function captionLine(role, { label, source, published_at: publishedAt }) {
  if (!label) return null;
  const origin = [source, publishedAt].filter((part) => part).map((part) => [" \u00b7 ", foreign(part)]);
  const before = role === "" ? null : h("span", { class: "quiet" }, `${role} `);
  return h("p", { class: "below caption" }, before, foreign(label, { class: "label" }), h("span", { class: "quiet" }, origin.flat()));
}

export function similarityMeter(value) {
  return h("span", { class: "similarity" }, h("meter", { min: 0, max: 1, value, "aria-hidden": "true" }), similarity(value));
}
