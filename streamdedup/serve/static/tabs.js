/** Tabs as the ARIA pattern describes them: one is in the order of the Tab key, arrows move between them. */

import { byId } from "./dom.js";

/**
 * Prepare a list of tabs.
 *
 * @param {HTMLElement} list Element of role tablist; the id of a tab is "tab-" and its name.
 * @param {function(string): void} onSelect Called with the name of the tab that was selected.
 * @returns {{select: function(string): boolean}} `select` tells whether there is such a tab.
 */
export function prepareTabs(list, onSelect) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const nameOf = (tab) => tab.id.slice("tab-".length);

  function select(name) {
    const selected = tabs.find((tab) => nameOf(tab) === name);
    if (selected === undefined) return false;
    for (const tab of tabs) {
      const isSelected = tab === selected;
      tab.setAttribute("aria-selected", String(isSelected));
      tab.tabIndex = isSelected ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !isSelected;
    }
    onSelect(name);
    return true;
  }

  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  list.addEventListener("keydown", (event) => {
    const index = tabs.indexOf(document.activeElement);
    if (index < 0) return;
    let next = null;
    if (event.key in steps) next = tabs[(index + steps[event.key] + tabs.length) % tabs.length];
    else if (event.key === "Home") next = tabs[0];
    else if (event.key === "End") next = tabs.at(-1);
    if (next === null) return;
    event.preventDefault();
    next.focus();
    next.click();
  });
  for (const tab of tabs) tab.addEventListener("click", () => select(nameOf(tab)));
  return { select };
}
