/** Where the device's endpoints are. */

export const V1 = "/svc/api/v1";
export const OPS = "/ops";
export const CONSOLE = "/console";
