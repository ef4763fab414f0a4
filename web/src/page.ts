import { mount } from "svelte";
import App from "./App.svelte";
import { showLanguage } from "./lib/language.svelte.ts";
import { showTheme } from "./lib/theme.svelte.ts";

async function show(): Promise<void> {
  showTheme();
  await showLanguage();
  mount(App, { target: document.getElementById("page") ?? document.body });
}

// The first script does not wait for the document, which may still be loading.
if (document.readyState === "loading") {
  addEventListener("DOMContentLoaded", () => void show(), { once: true });
} else {
  void show();
}
