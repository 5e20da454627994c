/** The page: its views, the address of each, the profiles, and the token. */

import { hasToken, onTokenRequired, problemText, useToken } from "./api.js";
import { prepareAsk } from "./ask.js";
import { prepareDocument } from "./document.js";
import { byId, counted, foreign, h, show } from "./dom.js";
import { prepareLive } from "./live.js";
import { loadProfileList } from "./profiles.js";
import { prepareState } from "./state.js";
import { prepareTabs } from "./tabs.js";

const DEFAULT = "ask";

// Token

function askForToken(wasRefused) {
  const dialog = byId("token-dialog");
  const input = byId("token");
  show(byId("token-problem"), wasRefused ? "The service does not accept this token." : null);
  input.value = "";
  return new Promise((resolve) => {
    // Without a token there is nothing to show. A browser closes a dialog at the second Escape.
    const onClose = () => dialog.showModal();
    const onSubmit = (event) => {
      const token = input.value.trim();
      if (!/^[\x21-\x7e]+$/.test(token)) {
        event.preventDefault();
        show(byId("token-problem"), "A token has no blanks, and no characters beyond ASCII.");
        return;
      }
      byId("token-form").removeEventListener("submit", onSubmit);
      dialog.removeEventListener("close", onClose);
      useToken(token);
      showTokenUse();
      resolve();
    };
    byId("token-form").addEventListener("submit", onSubmit);
    dialog.addEventListener("close", onClose);
    if (!dialog.open) dialog.showModal();
  });
}

function showTokenUse() {
  byId("forget-token").hidden = !hasToken();
  byId("links").hidden = hasToken(); // a browser follows a link without the token
}

function prepareToken() {
  onTokenRequired(askForToken);
  showTokenUse();
  byId("forget-token").addEventListener("click", () => {
    useToken(null);
    location.reload();
  });
}

// Profiles

function fillProfiles(profiles) {
  for (const select of document.querySelectorAll("select.profiles")) {
    // A link may have selected a profile before the profiles were loaded (`document.js`).
    const selected = select.dataset.wanted ?? select.value;
    const any = select.dataset.any === undefined ? [] : [h("option", { value: "" }, select.dataset.any)];
    show(select, any, profiles.map(({ name }) => h("option", { value: name }, name)));
    if (profiles.some(({ name }) => name === selected)) select.value = selected;
  }
  byId("ask-scoped").hidden = !profiles.some((profile) => profile.scope_field);
  const words = profiles.flatMap((profile, row) => {
    const count = profile.index === null ? counted(profile.documents, "document") : profile.index.title;
    return [row > 0 ? " \u00b7 " : "", foreign(profile.name), `: ${count}`];
  });
  show(byId("indexes"), words);
}

async function loadProfiles() {
  try {
    fillProfiles(await loadProfileList());
    show(byId("unavailable"));
  } catch (error) {
    const again = h("button", { type: "button", click: loadProfiles }, "Try again");
    show(byId("unavailable"), h("p", { class: "problem" }, problemText(error), " ", again));
  }
}

// Views

function partsOf(hash) {
  try {
    return hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    return []; // not percent-encoded
  }
}

function prepareViews() {
  const nothing = { show: () => {}, hide: () => {} };
  const views = {
    ask: nothing,
    live: prepareLive(),
    document: { ...nothing, ...prepareDocument() },
    state: prepareState(),
  };
  let shown = null;
  const tabs = prepareTabs(byId("views"), (name) => {
    if (shown === name) return;
    if (partsOf(location.hash)[0] !== name) {
      if (shown === null) history.replaceState(null, "", `#${name}`); // no step back to an address without a view
      else history.pushState(null, "", `#${name}`);
    }
    if (shown !== null) {
      views[shown].hide();
      loadProfiles();
    }
    shown = name;
    const title = byId(`tab-${name}`).textContent;
    document.title = `${title} \u00b7 streamdedup`;
    views[name].show(...partsOf(location.hash).slice(1));
  });
  const follow = () => {
    const [name, ...rest] = partsOf(location.hash);
    const before = shown;
    if (!tabs.select(name)) tabs.select(DEFAULT);
    else if (before === name) views[name].show(...rest);
    // The link that was followed is hidden now, and the focus with it.
    if (before !== null && before !== shown) document.querySelector(`#view-${shown} h2`).focus();
  };
  addEventListener("popstate", follow);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  follow();
}

prepareToken();
prepareAsk();
prepareViews();
loadProfiles();
