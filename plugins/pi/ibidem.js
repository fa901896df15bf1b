// An extension of pi: each request is handed to a running `ibidem proxy` just before it is sent, and what comes back is
// sent instead. Sessions keep every text in full. Where there is no clean answer in time, the request goes as it came.

const { IBIDEM_URL, IBIDEM_TOKEN, IBIDEM_PATIENCE_MS } = process.env;
const URL_OF_IBIDEM = IBIDEM_URL || "http://127.0.0.1:8123";
const PATIENCE_MS = Number(IBIDEM_PATIENCE_MS) || 300;

// By the interface that pi speaks: the format, and where the history stands in it.
const FORMATS = {
  "anthropic-messages": ["anthropic", "messages"],
  "openai-completions": ["openai-chat", "messages"],
  "openai-responses": ["openai-responses", "input"],
  "azure-openai-responses": ["openai-responses", "input"],
  "openai-codex-responses": ["openai-responses", "input"],
  "google-generative-ai": ["gemini", "contents"],
  "google-vertex": ["gemini", "contents"],
};

// Requests that go through the proxy anyway are rewritten there.
function leadsThere(address) {
  try {
    const [there, ours] = [new URL(address), new URL(URL_OF_IBIDEM)];
    const host = (url) => (/^(localhost|127\..*|\[::1\])$/.test(url.hostname) ? "here" : url.hostname);
    return host(there) === host(ours) && there.port === ours.port;
  } catch {
    return false;
  }
}

// The proxy loads what it needs while the first request is still to come. Nobody waits for that.
async function announce() {
  try {
    const headers = IBIDEM_TOKEN ? { "x-ibidem-token": IBIDEM_TOKEN } : {};
    const asked = { headers, redirect: "error", signal: AbortSignal.timeout(2000) };
    await fetch(new URL("/ibidem/v1/compact", URL_OF_IBIDEM), asked);
  } catch {
    // then it is not there
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
  announce();
  pi.on("before_provider_request", async ({ payload }, ctx) => {
    try {
      const [format, key] = FORMATS[ctx.model?.api] ?? [];
      const history = payload?.[key];
      if (!Array.isArray(history) || leadsThere(ctx.model.baseUrl)) return undefined;
      const found = (await compacted(JSON.stringify(payload), format, ctx.sessionManager.getSessionId()))?.[key];
      if (!Array.isArray(found) || found.length !== history.length) return undefined;
      // What is as it was stays the very object, and so does everything beside the history.
      const same = (at) => JSON.stringify(found[at]) === JSON.stringify(history[at]);
      const sent = history.map((entry, at) => (same(at) ? entry : found[at]));
      return sent.every((entry, at) => entry === history[at]) ? undefined : { ...payload, [key]: sent };
    } catch {
      return undefined; // nobody listens, or it takes too long
    }
  });
}
