/** A form's way to the device and back: busy, then done, or the device's texts at its fields. */

import { faultText } from "./feedback.svelte.ts";
import { Refused } from "./http.ts";

export class Form {
  isBusy = $state(false);
  /** By field; what belongs to none stands under "". */
  problems = $state.raw<Record<string, string>>({});

  #fields: readonly string[];

  constructor(fields: readonly string[]) {
    this.#fields = fields;
  }

  /** Do it; whether it went well. */
  async send(act: () => Promise<unknown>): Promise<boolean> {
    if (this.isBusy) return false;
    this.isBusy = true;
    try {
      await act();
      this.problems = {};
      return true;
    } catch (error) {
      this.problems =
        error instanceof Refused && error.status !== 0
          ? error.byField(this.#fields)
          : { "": faultText(error) };
      return false;
    } finally {
      this.isBusy = false;
    }
  }
}
