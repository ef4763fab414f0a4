/** The device's interfaces and its lines' names, as far as the page has seen them. */

import { call } from "./http.ts";
import { live } from "./live.svelte.ts";
import { V1 } from "./paths.ts";

class Interfaces {
  names = $state.raw<string[]>([]);

  async load(): Promise<void> {
    try {
      this.names = (
        await call<{ interfaces: string[] }>("GET", `${V1}/system/interfaces`)
      ).interfaces;
    } catch {
      // The names are offered, not needed: any name can be typed.
    }
  }

  /** Those that clients' traffic can leave by, for a picker. */
  get outward(): string[] {
    const inward = new Set(
      live.overview?.interfaces.filter((one) => one.role === "lan").map((one) => one.name),
    );
    return this.names.filter((name) => !inward.has(name));
  }
}

export const interfaces = new Interfaces();
