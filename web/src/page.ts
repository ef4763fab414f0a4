import { mount } from "svelte";
import App from "./App.svelte";
import { showLanguage } from "./lib/language.svelte.ts";
import { showTheme } from "./lib/theme.svelte.ts";

function show(): void {
  showTheme();
  showLanguage();
  mount(App, { target: document.getElementById("page") ?? document.body });
}

// The first script does not wait for the document, which may still be loading.
if (document.readyState === "loading") addEventListener("DOMContentLoaded", show, { once: true });
else show();
