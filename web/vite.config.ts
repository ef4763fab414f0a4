import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** Have the browser fetch at once what the first script imports when it runs. */
const preloadImports: Plugin = {
  name: "preload-imports",
  transformIndexHtml: {
    order: "post",
    handler: (_, { chunk }) =>
      (chunk?.dynamicImports ?? []).map((file) => ({
        tag: "link",
        injectTo: "head" as const,
        attrs: { rel: "modulepreload", crossorigin: true, href: `./${file}` },
      })),
  },
};

export default defineConfig({
  plugins: [svelte(), preloadImports],
  base: "./",
  build: {
    outDir: "../src/egressd/console/page",
    emptyOutDir: true,
    target: "es2022",
    // A data: URL would need a hole in the content security policy.
    assetsInlineLimit: 0,
    // One sheet: that of what comes later would have to be waited for.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // Of what the bundle contains; the console serves it with the page.
    license: { fileName: "licenses.txt" },
  },
});
