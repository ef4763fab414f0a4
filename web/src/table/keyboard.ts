/** The keys of a table. Pure. */

/** The act of a key; `to` may lie beyond the first or last row. */
export type KeyAct =
  | { act: "move"; to: number; extendsSelection: boolean }
  | { act: "toggle"; hasRange: boolean }
  | { act: "toggleAll" | "edit" | "clear" | "delete" };

/** The keyboard's place in a table. */
export interface Place {
  /** The index of the active row; -1 without one. */
  active: number;
  /** Number of rows. */
  rows: number;
  /** Number of rows that Page Up and Page Down pass. */
  page: number;
}

type Pressed = Pick<KeyboardEvent, "key" | "shiftKey" | "ctrlKey" | "metaKey">;

/** Return what a pressed key does; null if the browser is to handle it. */
export function actOf(pressed: Pressed, { active, rows, page }: Place): KeyAct | null {
  const moves = new Map([
    ["ArrowDown", active + 1],
    ["ArrowUp", active - 1],
    ["PageDown", active + page],
    ["PageUp", active - page],
    ["Home", 0],
    ["End", rows - 1],
  ]);
  const to = moves.get(pressed.key);
  if (to !== undefined) return { act: "move", to, extendsSelection: pressed.shiftKey };
  switch (pressed.key) {
    case " ":
      return active < 0 ? null : { act: "toggle", hasRange: pressed.shiftKey };
    case "Enter":
      return active < 0 ? null : { act: "edit" };
    case "a":
      return pressed.ctrlKey || pressed.metaKey ? { act: "toggleAll" } : null;
    case "Escape":
      return { act: "clear" };
    case "Delete":
      return { act: "delete" };
    default:
      return null;
  }
}
