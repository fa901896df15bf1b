// pi extension: passes each request to a running `ibidem proxy` just before it is sent, and sends the returned request
// instead. Sessions contain the full texts. If there is no valid response in time, the request is sent unchanged.

const { IBIDEM_URL, IBIDEM_TOKEN, IBIDEM_PATIENCE_MS } = process.env;
const URL_OF_IBIDEM = IBIDEM_URL || "http://127.0.0.1:8123";
const PATIENCE_MS = Number(IBIDEM_PATIENCE_MS) || 300;

// By pi's API name: the format, and the key of the history.
const FORMATS = {
  "anthropic-messages": ["anthropic", "messages"],
  "openai-completions": ["openai-chat", "messages"],
  "openai-responses": ["openai-responses", "input"],
  "azure-openai-responses": ["openai-responses", "input"],
  "openai-codex-responses": ["openai-responses", "input"],
  "google-generative-ai": ["gemini", "contents"],
  "google-vertex": ["gemini", "contents"],
};

// True for the address of the proxy: it rewrites these requests itself.
function isProxyAddress(address) {
  try {
    const [there, ours] = [new URL(address), new URL(URL_OF_IBIDEM)];
    const host = (url) => (/^(localhost|127\..*|\[::1\])$/.test(url.hostname) ? "here" : url.hostname);
    return host(there) === host(ours) && there.port === ours.port;
  } catch {
    return false;
  }
}

// Make the proxy load its tables before the first request. The client does not wait for this.
async function warmUp() {
  try {
    const headers = IBIDEM_TOKEN ? { "x-ibidem-token": IBIDEM_TOKEN } : {};
    const asked = { headers, redirect: "error", signal: AbortSignal.timeout(2000) };
    await fetch(new URL("/ibidem/v1/compact", URL_OF_IBIDEM), asked);
  } catch {
    // no proxy is running
  }
}

async function compacted(body, format, conversation) {
  const headers = { "content-type": "application/json", "x-ibidem-format": format, "user-agent": "ibidem-pi" };
  if (conversation) headers["x-ibidem-conversation"] = conversation;
  if (IBIDEM_TOKEN) headers["x-ibidem-token"] = IBIDEM_TOKEN;
  const asked = { method: "POST", headers, body, redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS) };
  const answer = await fetch(new URL("/ibidem/v1/compact", URL_OF_IBIDEM), asked);
  if (answer.status !== 200 || answer.headers.get("x-ibidem-outcome") === null) return undefined;
  return answer.json();
}

export default function ibidem(pi) {
  warmUp();
  pi.on("before_provider_request", async ({ payload }, ctx) => {
    try {
      const [format, key] = FORMATS[ctx.model?.api] ?? [];
      const history = payload?.[key];
      if (!Array.isArray(history) || isProxyAddress(ctx.model.baseUrl)) return undefined;
      const found = (await compacted(JSON.stringify(payload), format, ctx.sessionManager.getSessionId()))?.[key];
      if (!Array.isArray(found) || found.length !== history.length) return undefined;
      // Unchanged messages and all other fields stay the same objects.
      const same = (at) => JSON.stringify(found[at]) === JSON.stringify(history[at]);
      const sent = history.map((entry, at) => (same(at) ? entry : found[at]));
      return sent.every((entry, at) => entry === history[at]) ? undefined : { ...payload, [key]: sent };
    } catch {
      return undefined; // no proxy is running, or the timeout expired
    }
  });
}
