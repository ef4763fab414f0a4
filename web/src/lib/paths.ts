/** Where the device's endpoints are, and how the console makes itself known to them. */

export const V1 = "/svc/api/v1";
export const OPS = "/ops";
export const CONSOLE = "/console";

export const SESSION = `${CONSOLE}/session`;
/** The rules that differ from those of a revision, which follows; all of them where that is 0. */
export const RULES_SINCE = `${OPS}/rules?since=`;
/** What a page that is one list begins with. */
export const LISTS: Partial<Record<string, string>> = {
  rules: `${RULES_SINCE}0`,
  nodes: `${V1}/nodes`,
  lines: `${V1}/vpn-lines`,
  proxies: `${V1}/proxy-services`,
};

/** The console's own header: a foreign page cannot send it without the device's consent. */
export const OWN: Readonly<Record<string, string>> = { "x-egressd-console": "1" };
