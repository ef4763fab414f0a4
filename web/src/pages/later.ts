/** What is loaded when it is first shown, as one script: with two, a third would have what all three
 * share, and would be needed at the start. */

export { default as Api } from "./Api.svelte";
export { default as Settings } from "./Settings.svelte";
