/** Light, dark, or as the system has it. */

export type Theme = "auto" | "light" | "dark";

const STORED = "egressd.theme";
const darkSystem = matchMedia("(prefers-color-scheme: dark)");

let theme = $state<Theme>(stored());
let isSystemDark = $state(darkSystem.matches);
darkSystem.addEventListener("change", (event) => (isSystemDark = event.matches));

function stored(): Theme {
  const value = localStorage.getItem(STORED);
  return value === "light" || value === "dark" ? value : "auto";
}

export function currentTheme(): Theme {
  return theme;
}

/** Whether the page is dark at the moment: what a canvas has to know. */
export function isDark(): boolean {
  return theme === "dark" || (theme === "auto" && isSystemDark);
}

/** Switch the page over, and remember it in this browser. */
export function useTheme(wanted: Theme): void {
  localStorage.setItem(STORED, wanted);
  theme = wanted;
  showTheme();
}

/** Tell the style sheet which theme it is. */
export function showTheme(): void {
  document.documentElement.dataset["theme"] = theme;
}
