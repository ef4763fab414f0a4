/** All Chinese texts, in a script that only Chinese pages load. */

export { deviceZh } from "./device_zh.ts";
export { faultsZh } from "./faults_zh.ts";
export { zh } from "./zh.ts";
