/** The names of groups, as last loaded. */

import { call } from "./http.ts";
import { OPS } from "./paths.ts";
import type { Group } from "./types.ts";

class GroupNames {
  names = $state.raw<string[]>([]);

  async load(): Promise<void> {
    try {
      const { data } = await call<{ data: Group[] }>("GET", `${OPS}/groups?resolved=false`);
      this.names = data.map((group) => group.name);
    } catch {
      // The names are suggestions only: any name can be typed.
    }
  }
}

export const groupNames = new GroupNames();
