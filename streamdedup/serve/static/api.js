/** Requests to the service: JSON, problems as errors, and the token. */

const PREFIX = "urn:streamdedup:problem:";
const STORED = "streamdedup-token";
/** Texts for problems that the service does not word for people. */
const ADVICE = {
  "store-unavailable": "Redis does not answer, or the index is being rebuilt or deleted. Try again in a moment.",
  "index-absent": "The index does not exist yet: a daemon creates it at its start.",
  "index-mismatch": "The index was built with other settings than those of this service.",
  "unknown-document": "The index has no such document: it was never inserted, was deleted, or has expired.",
  "too-many-requests": "The service has as many requests or streams as it allows. Try again in a moment.",
};

/** A problem that the service reported, or a failure to reach it. */
export class Problem extends Error {
  constructor(kind, text, { field = "", retryAfterS = null } = {}) {
    super(text);
    this.kind = kind;
    this.field = field;
    this.retryAfterS = retryAfterS;
  }

  static async of(response) {
    const retryAfter = Number.parseFloat(response.headers.get("retry-after"));
    const options = { retryAfterS: Number.isNaN(retryAfter) ? null : retryAfter };
    let body;
    try {
      body = await response.json();
    } catch {
      return new Problem("unreadable", `The service answered with status ${response.status}.`, options);
    }
    const type = typeof body?.type === "string" ? body.type : "";
    const kind = type.startsWith(PREFIX) ? type.slice(PREFIX.length) : "unreadable";
    const words = [body?.title ?? `Status ${response.status}`, body?.detail].filter(Boolean).join(": ");
    return new Problem(kind, ADVICE[kind] ?? `${words}.`, { ...options, field: body?.field ?? "" });
  }
}

let token = recall();
let asking = null; // promise of the dialog that asks for a token, shared by all requests; null without a dialog
let askForToken = async () => null; // set by `onTokenRequired`

function recall() {
  try {
    return sessionStorage.getItem(STORED);
  } catch {
    return null; // the browser keeps nothing for this page: the token is in memory alone
  }
}

/** Set the function that asks for a token; its argument tells whether one was refused. */
export function onTokenRequired(ask) {
  askForToken = ask;
}

export function hasToken() {
  return token !== null;
}

/** Use a token in this tab of the browser; null forgets the present one. */
export function useToken(newToken) {
  token = newToken;
  try {
    if (newToken === null) sessionStorage.removeItem(STORED);
    else sessionStorage.setItem(STORED, newToken);
  } catch {
    // in memory alone
  }
}

async function send(path, options) {
  const headers = { ...options.headers };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  try {
    return await fetch(new URL(path, document.baseURI), { cache: "no-store", ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem("unreachable", "The service does not answer.");
  }
}

/**
 * Send a request; ask for a token where the service requires one, once for all requests that wait for it.
 *
 * @throws {Problem} The response is no success.
 */
export async function open(path, options = {}) {
  for (;;) {
    const used = token; // another request may ask for a token meanwhile, and then this one is sent again
    const response = await send(path, options);
    if (response.ok) return response;
    if (response.status !== 401) throw await Problem.of(response);
    if (used === token) {
      asking ??= askForToken(used !== null).finally(() => {
        asking = null;
      });
      await asking;
    }
  }
}

export async function get(path, signal) {
  return (await open(path, { signal })).json();
}

/** Send JSON; return the JSON of the answer. */
export async function post(path, body, signal) {
  const options = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" }, signal };
  return (await open(path, options)).json();
}

export function ofProfile(profile, ...parts) {
  return ["v1/profiles", ...[profile, ...parts].map((part) => encodeURIComponent(part.toWellFormed()))].join("/");
}

export function problemText(error) {
  return error instanceof Problem ? error.message : `The page has a defect: ${error.name}.`;
}
