// Any program is a door: post what you are about to send to a running `ibidem proxy`, and send what comes back.
//     node compact_client.mjs FORMAT CONVERSATION < body.json
import { readFileSync, writeFileSync } from "node:fs";

const { IBIDEM_URL: url = "http://127.0.0.1:8123", IBIDEM_TOKEN: token, IBIDEM_PATIENCE_MS: patience = "300" } = process.env;

/** The body as it is to be sent: rewritten, or as it came where there is no clean answer in time. */
export async function compact(body, format, conversation) {
  try {
    const headers = { "content-type": "application/json", "x-ibidem-format": format, "x-ibidem-conversation": conversation };
    if (token) headers["x-ibidem-token"] = token;
    const asked = { method: "POST", headers, body, redirect: "error", signal: AbortSignal.timeout(Number(patience)) };
    const answer = await fetch(new URL("/ibidem/v1/compact", url), asked);
    const found = Buffer.from(await answer.arrayBuffer());
    return answer.status === 200 && answer.headers.get("x-ibidem-outcome") ? found : body;
  } catch {
    return body; // nobody listens, or it takes too long
  }
}

const [format, conversation] = process.argv.slice(2);
if (format) writeFileSync(1, await compact(readFileSync(0), format, conversation ?? ""));
