/** The names of the device's interfaces and lines, as last loaded. */

import { call } from "./http.ts";
import { live } from "./live.svelte.ts";
import { V1 } from "./paths.ts";
import type { Interfaces as Answer } from "./types.ts";

class Interfaces {
  names = $state.raw<string[]>([]);

  async load(): Promise<void> {
    try {
      this.names = (await call<Answer>("GET", `${V1}/system/interfaces`)).interfaces;
    } catch {
      // The names are suggestions only: any name can be typed.
    }
  }

  /** Possible egresses of clients' traffic, for a picker: WANs and lines come first. */
  get outward(): string[] {
    const roles = new Map(live.overview?.interfaces.map((one) => [one.name, one.role]));
    const inner = ["lan", "local", ""];
    const others = this.names.filter((name) => roles.get(name) === "");
    return [...this.names.filter((name) => !inner.includes(roles.get(name) ?? "wan")), ...others];
  }
}

export const interfaces = new Interfaces();
