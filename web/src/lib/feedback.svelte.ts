/** What the page says in passing, and what it asks before it goes on. */

import { Refused } from "./http.ts";
import { t, told } from "./language.svelte.ts";
import type { Said } from "./types.ts";

export interface Toast {
  id: number;
  text: string;
  isBad: boolean;
}

export interface Question {
  title: string;
  text: string;
  action: string;
  isDangerous?: boolean;
  /** What must be typed before the action can be chosen. */
  phrase?: string;
}

const SHOWN_MS = 6000;
const TOASTS_MAX = 3;

class Feedback {
  toasts = $state.raw<Toast[]>([]);
  question = $state.raw<Question | null>(null);

  #answer: (isYes: boolean) => void = () => undefined;
  #count = 0;

  /** Say what the page has to say, or the device. */
  say(text: string, isBad = false): void {
    const toast = { id: ++this.#count, text: told(text), isBad };
    this.toasts = [...this.toasts.slice(1 - TOASTS_MAX), toast];
    // What went wrong stays until it is read.
    if (!isBad) setTimeout(() => this.dismiss(toast.id), SHOWN_MS);
  }

  dismiss(id: number): void {
    this.toasts = this.toasts.filter((toast) => toast.id !== id);
  }

  /** Ask, and wait for the answer. A question that is open still is answered with no. */
  ask(question: Question): Promise<boolean> {
    this.#answer(false);
    this.question = question;
    return new Promise((resolve) => (this.#answer = resolve));
  }

  answer(isYes: boolean): void {
    this.question = null;
    this.#answer(isYes);
  }

  /** Do something, say what came of it, and whether it went well. */
  async during(act: () => Promise<Said>): Promise<boolean> {
    try {
      this.say((await act()).msg);
      return true;
    } catch (error) {
      this.say(faultText(error), true);
      return false;
    }
  }
}

export const feedback = new Feedback();

/** An error as people should read it. */
export function faultText(error: unknown): string {
  if (error instanceof Refused) return error.status === 0 ? t("unreachable") : told(error.message);
  return error instanceof Error ? error.message : String(error);
}
