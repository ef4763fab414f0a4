/** Paths of the device's endpoints, and the header by which they recognise the console. */

export const V1 = "/svc/api/v1";
export const OPS = "/ops";
export const CONSOLE = "/console";

export const SESSION = `${CONSOLE}/session`;
/** Path of the rules that changed since a revision, to be appended; 0 returns all rules. */
export const RULES_SINCE = `${OPS}/rules?since=`;
/** The first request of each page that shows a list. */
export const LISTS: Partial<Record<string, string>> = {
  rules: `${RULES_SINCE}0`,
  nodes: `${V1}/nodes`,
  lines: `${V1}/vpn-lines`,
  proxies: `${V1}/proxy-services`,
};

/**
 * The headers of every request: the console's own, which a foreign page cannot send without the
 * device's consent, and the form of answers to requests that are refused.
 */
export const OWN: Readonly<Record<string, string>> = {
  "x-egressd-console": "1",
  accept: "application/json, application/problem+json, */*;q=0.1",
};
