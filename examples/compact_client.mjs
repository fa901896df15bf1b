// Post a request body to a running `ibidem proxy`, and send the body that it returns to your provider.
//     node compact_client.mjs FORMAT CONVERSATION < body.json
import { readFileSync, writeFileSync } from "node:fs";

const { IBIDEM_URL: url = "http://127.0.0.1:8123", IBIDEM_TOKEN: token, IBIDEM_PATIENCE_MS: patience = "300" } = process.env;

/** Returns the rewritten body, or the original if there is no valid response in time. */
export async function compact(body, format, conversation) {
  try {
    const headers = { "content-type": "application/json", "x-ibidem-format": format, "x-ibidem-conversation": conversation };
    if (token) headers["x-ibidem-token"] = token;
    const asked = { method: "POST", headers, body, redirect: "error", signal: AbortSignal.timeout(Number(patience)) };
    const answer = await fetch(new URL("/ibidem/v1/compact", url), asked);
    const found = Buffer.from(await answer.arrayBuffer());
    return answer.status === 200 && answer.headers.get("x-ibidem-outcome") ? found : body;
  } catch {
    return body; // no proxy is running, or the timeout expired
  }
}

const [format, conversation] = process.argv.slice(2);
if (format) writeFileSync(1, await compact(readFileSync(0), format, conversation ?? ""));
