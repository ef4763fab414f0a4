/** The colour theme: light, dark, or the system's. */

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

/** True if the page is dark at the moment. Canvases depend on it. */
export function isDark(): boolean {
  return theme === "dark" || (theme === "auto" && isSystemDark);
}

/** Switch the page to a theme, and store the choice in this browser. */
export function useTheme(wanted: Theme): void {
  localStorage.setItem(STORED, wanted);
  theme = wanted;
  showTheme();
}

/** Set the attribute by which the style sheet selects the theme. */
export function showTheme(): void {
  document.documentElement.dataset["theme"] = theme;
}
