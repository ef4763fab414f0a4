/** Short messages of the page, and questions that it asks before an action. */

import { Refused } from "./http.ts";
import { said, t, toldFaults } from "./language.svelte.ts";
import type { Said } from "./types.ts";

export interface Toast {
  id: number;
  text: string;
  isBad: boolean;
  /** The change that the message offers to undo. */
  undoable?: number;
}

export interface Question {
  title: string;
  text: string;
  /** Further lines below the text. */
  lines?: readonly string[];
  action: string;
  isDangerous?: boolean;
  /** Text that must be typed before the action can be chosen. */
  phrase?: string;
}

const SHOWN_MS = 6000;
/** Longer, for a message with an offer. */
const OFFERED_MS = 20_000;
const TOASTS_MAX = 3;

class Feedback {
  toasts = $state.raw<Toast[]>([]);
  question = $state.raw<Question | null>(null);

  #answer: (isYes: boolean) => void = () => undefined;
  #count = 0;

  /** Show a message of the page. */
  say(text: string, isBad = false, undoable?: number | null): void {
    const offer = undoable == null ? {} : { undoable };
    const toast = { id: ++this.#count, text, isBad, ...offer };
    this.toasts = [...this.toasts.slice(1 - TOASTS_MAX), toast];
    // An error stays until it is dismissed.
    const shownMs = undoable == null ? SHOWN_MS : OFFERED_MS;
    if (!isBad) setTimeout(() => this.dismiss(toast.id), shownMs);
  }

  /** Show what the device did; with `isUndoable` offer to undo it. */
  show(answer: Said, isUndoable = false): void {
    this.say(said(answer.msg_coded), false, isUndoable ? answer.revision : null);
  }

  dismiss(id: number): void {
    this.toasts = this.toasts.filter((toast) => toast.id !== id);
  }

  /** Ask, and wait for the answer. A question that is still open is answered with no. */
  ask(question: Question): Promise<boolean> {
    this.#answer(false);
    this.question = question;
    return new Promise((resolve) => (this.#answer = resolve));
  }

  answer(isYes: boolean): void {
    this.question = null;
    this.#answer(isYes);
  }

  /**
   * Run an action and show its result, with `isUndoable` with an offer to undo it. Resolves to true
   * if it succeeded.
   */
  async during(act: () => Promise<Said>, isUndoable = false): Promise<boolean> {
    try {
      this.show(await act(), isUndoable);
      return true;
    } catch (error) {
      this.say(faultText(error), true);
      return false;
    }
  }
}

export const feedback = new Feedback();

/** The text of an error for the operator. */
export function faultText(error: unknown): string {
  if (!(error instanceof Refused)) return error instanceof Error ? error.message : String(error);
  if (error.status === 0) return t("unreachable");
  return error.faults.length > 0 ? toldFaults(error.faults) : error.message;
}
