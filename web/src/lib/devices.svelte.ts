/** The devices of the LANs, loaded while a page shows them. */

import { faultText } from "./feedback.svelte.ts";
import { call } from "./http.ts";
import { live } from "./live.svelte.ts";
import { OPS } from "./paths.ts";
import type { Device, DeviceList, Said } from "./types.ts";

/** Milliseconds between two loads. New devices are loaded at once, by their events. */
const RELOAD_MS = 30_000;
/** Devices that are loaded at first: those without a rule come first. */
const LOADED_FIRST = 500;
/** The most that the device lists. */
const LOADED_MAX = 65_536;

/** The settings of a device that an operator makes. */
export type DeviceSettings = Pick<Device, "name" | "comment" | "is_bound">;

class Devices {
  readonly path = `${OPS}/devices`;
  list = $state.raw<DeviceList | null>(null);
  problem = $state("");
  #most = LOADED_FIRST;

  /** Load all devices from now on, as those that are searched. */
  loadAll(): void {
    if (this.#most === LOADED_MAX) return;
    this.#most = LOADED_MAX;
    void this.load();
  }

  /** Load the devices now and then until the returned function is called. For `$effect`. */
  watch(): () => void {
    const load = (): void => void this.load();
    load();
    const timer = setInterval(() => document.hidden || load(), RELOAD_MS);
    const stops = [live.on("device", load), live.onChangeOf(["devices", "rules"], load)];
    return () => {
      clearInterval(timer);
      for (const stop of stops) stop();
    };
  }

  /** Never raises: see `problem`. */
  async load(): Promise<void> {
    try {
      this.list = await call<DeviceList>("GET", `${this.path}?limit=${this.#most}`);
      this.problem = "";
    } catch (error) {
      this.problem = faultText(error);
    }
  }

  pathOf(mac: string): string {
    return `${this.path}/${mac}`;
  }

  forget(mac: string): Promise<Said> {
    return call("DELETE", this.pathOf(mac));
  }

  /** Discard everything: another operator may log in. */
  clear(): void {
    this.list = null;
    this.#most = LOADED_FIRST;
    this.problem = "";
  }
}

export const devices = new Devices();

/** The best name of a device. */
export function labelOf(device: Device): string {
  return device.name || device.hostname || device.vendor || device.mac;
}
