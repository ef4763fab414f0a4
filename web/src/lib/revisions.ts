/** Changes of objects by what is typed in a form, over what others change meanwhile. */

import { changedFields, overtaken, rebased } from "./edits.ts";
import { Overtaken, Refused, request } from "./http.ts";
import { t } from "./language.svelte.ts";
import type { Said } from "./types.ts";

/** Times that a change is made anew because another one came between. */
const TRIES = 10;

export class Revisions {
  /** What an operator was shown of other changes since a form was opened, by its first values. */
  #seen = new WeakMap<object, object>();
  /** The versions of objects whose forms have fields that the device never shows, as of then. */
  #tags = new WeakMap<object, string>();

  /**
   * Note the version of the object at `path` for its form, which has fields that the device never
   * shows: that another operator has changed one of them is seen by nothing else.
   */
  async open(path: string, before: object): Promise<void> {
    try {
      this.#tags.set(before, (await readNow(path)).tag);
    } catch {
      // It cannot be read at the moment. Saving tells why, if that is still so.
    }
  }

  /**
   * Change the object at `path` that was `before` when the form was opened: fields that differ from
   * it are set as typed, all others keep their current values. If another operator has changed the
   * same fields meanwhile, `Overtaken` is raised the first time; also if a field that the device
   * never shows may be one of them. An object that is not changed by
   * field is replaced as a whole with `method` PUT.
   */
  async save<F extends object>(
    path: string,
    before: F,
    typed: F,
    method: "PATCH" | "PUT" = "PATCH",
  ): Promise<Said> {
    for (let tries = 1; ; tries += 1) {
      const { now, tag } = await readNow<F>(path);
      const seen = (this.#seen.get(before) ?? before) as F;
      const theirs = overtaken<F>(seen, before, typed, now);
      this.#seen.set(before, now);
      if ((this.#tags.get(before) ?? tag) !== tag) {
        for (const field of Object.keys(typed)) if (!(field in now)) theirs[field] = null;
        this.#tags.set(before, tag);
      }
      if (Object.keys(theirs).length > 0) throw new Overtaken(theirs);
      const values = method === "PUT" ? rebased<F> : changedFields<F>;
      const body = JSON.stringify(values(before, typed, now));
      try {
        const init = { body, type: "application/json", ifMatch: tag };
        return (await (await request(method, path, init)).json()) as Said;
      } catch (error) {
        // Another change came between.
        if (!(error instanceof Refused && error.status === 412) || tries === TRIES) throw error;
      }
    }
  }
}

async function readNow<F>(path: string): Promise<{ now: F; tag: string }> {
  try {
    const answer = await request("GET", path);
    return { now: (await answer.json()) as F, tag: answer.headers.get("etag") ?? "" };
  } catch (error) {
    if (error instanceof Refused && error.status === 404) throw new Error(t("edit.gone"));
    throw error;
  }
}
