/** The profiles as the service last described them, and their limits in words. */

import { get } from "./api.js";
import { number } from "./dom.js";

let profilesByName = new Map();

/** Return the profiles, and keep them for the functions below. */
export async function loadProfileList(signal) {
  const { profiles } = await get("v1/profiles", signal);
  profilesByName = new Map(profiles.map((profile) => [profile.name, profile]));
  return profiles;
}

/** Return a profile by its name; without fields where the service has not described it yet. */
export function profileOf(name) {
  return profilesByName.get(name) ?? {};
}

/** Return the sentence for an answer that is not complete, with the limits that a profile (`name`) has. */
export function incompleteText(name) {
  const limits = ["max_candidates", "bucket_cap"].filter((key) => Number.isInteger(profileOf(name)[key]));
  const words = limits.map((key) => `${key} = ${number(profileOf(name)[key])}`).join(", ");
  return `Not all candidates were compared, because there were too many${words === "" ? "" : ` (${words})`}.`;
}
