/** What is loaded when it is first shown, as one script: with two, a third would have what all three
 * share, and would be needed at the start. */

import Api from "./Api.svelte";
import Devices from "./Devices.svelte";
import Groups from "./groups/Groups.svelte";
import History from "./History.svelte";
import Proxies from "./Proxies.svelte";
import Settings from "./Settings.svelte";
import Subscriptions from "./subscriptions/Subscriptions.svelte";
import Whitelist from "./Whitelist.svelte";
import Why from "./Why.svelte";

export { default as Palette } from "../shell/Palette.svelte";

export const LATER = {
  devices: Devices,
  subscriptions: Subscriptions,
  groups: Groups,
  whitelist: Whitelist,
  proxies: Proxies,
  history: History,
  why: Why,
  settings: Settings,
  api: Api,
};

export type LaterPage = keyof typeof LATER;
