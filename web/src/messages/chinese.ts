/** All Chinese texts, in a script that only Chinese pages load. */

export { sentencesZh, wordsZh } from "./sentences_zh.ts";
export { zh } from "./zh.ts";
