// OpenCode plugin: replaces tool outputs that repeat earlier text with references, only in the request. OpenCode stores
// and shows the full texts. A running `ibidem proxy` computes the replacements: it gets the conversation in OpenAI's
// format, one row per output, and changed rows are copied back by position. If there is no valid response in time, the
// request is sent unchanged.

const { IBIDEM_URL, IBIDEM_TOKEN, IBIDEM_PATIENCE_MS } = process.env;
const URL_OF_IBIDEM = IBIDEM_URL || "http://127.0.0.1:8123";
const PATIENCE_MS = Number(IBIDEM_PATIENCE_MS) || 300;

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

// The text that OpenCode sends for a user's part.
function userText(part) {
  if (part.type === "text") return part.ignored ? "" : part.text;
  if (part.type === "compaction") return "What did we do so far?";
  return part.type === "subtask" ? "The following tool was executed by the user" : "";
}

// True for an output that OpenCode sends as one unchanged text. Other outputs only keep their position.
function isPlain({ state }) {
  return state.status === "completed" && typeof state.output === "string" && !state.time?.compacted
    && !state.attachments?.length;
}

// True for failed responses without content: OpenCode does not send them.
function isOmitted({ info, parts }) {
  const something = parts.some(({ type }) => type !== "step-start" && type !== "reasoning");
  return info.error && !(info.error.name === "MessageAbortedError" && something);
}

// The conversation as OpenAI messages, and for each row the part that it may change.
function toChatRows(messages) {
  const rows = [], owners = [];
  const add = (row, owner) => { rows.push(row); owners.push(owner); };
  for (const message of messages) {
    const { info, parts } = message;
    if (info.role === "user") {
      const text = parts.map(userText).join("");
      if (text) add({ role: "user", content: text });
      continue;
    }
    if (isOmitted(message)) continue;
    for (const step of steps(parts)) {
      const calls = step.filter(({ type }) => type === "tool");
      const text = step.filter(({ type }) => type === "text").map((part) => part.text).join("");
      if (calls.some(({ metadata }) => metadata?.providerExecuted)) throw new Error("results are not next to their calls");
      const toolCalls = calls.map(({ callID: id, tool: name, state }) => (
        { id, type: "function", function: { name, arguments: JSON.stringify(state.input ?? {}) } }));
      if (text || calls.length) add({ role: "assistant", content: text || null, ...(calls.length && { tool_calls: toolCalls }) });
      for (const part of calls) {
        const row = { role: "tool", tool_call_id: part.callID };
        add({ ...row, content: isPlain(part) ? part.state.output : `(${part.callID})` }, isPlain(part) ? part : undefined);
      }
    }
  }
  return { rows, owners };
}

// Split a response into steps. Each step has its calls before their results.
function steps(parts) {
  const found = [[]];
  for (const part of parts) part.type === "step-start" ? found.push([]) : found.at(-1).push(part);
  return found;
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

async function compacted(rows, model, conversation) {
  const headers = { "content-type": "application/json", "x-ibidem-format": "openai-chat", "user-agent": "ibidem-opencode" };
  if (conversation) headers["x-ibidem-conversation"] = conversation;
  if (IBIDEM_TOKEN) headers["x-ibidem-token"] = IBIDEM_TOKEN;
  const body = JSON.stringify({ model, messages: rows });
  const asked = { method: "POST", headers, body, redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS) };
  const answer = await fetch(new URL("/ibidem/v1/compact", URL_OF_IBIDEM), asked);
  if (answer.status !== 200 || answer.headers.get("x-ibidem-outcome") === null) return undefined;
  return (await answer.json()).messages;
}

// New texts by part; undefined if the proxy changed anything except these texts.
function changes(found, { rows, owners }) {
  if (!Array.isArray(found) || found.length !== rows.length) return undefined;
  const texts = new Map();
  for (const [at, row] of rows.entries()) {
    const { content, ...rest } = found[at] ?? {}, { content: before, ...same } = row;
    if (JSON.stringify(rest) !== JSON.stringify(same)) return undefined;
    if (content === before) continue;
    if (!owners[at] || typeof content !== "string") return undefined;
    texts.set(owners[at], content);
  }
  return texts;
}

export default async function ibidem() {
  warmUp();
  let providers = {};
  const summarized = new Set(); // sessions whose next request is for a summary, which needs the full texts
  return {
    config: async (config) => { providers = config?.provider ?? {}; },
    "experimental.session.compacting": async ({ sessionID }) => { summarized.add(sessionID); },
    "experimental.chat.messages.transform": async (_, output) => {
      try {
        const { messages } = output, asked = messages.findLast(({ info }) => info.role === "user")?.info;
        const { providerID, modelID } = asked?.model ?? {};
        if (!asked || summarized.delete(asked.sessionID) || isProxyAddress(providers[providerID]?.options?.baseURL)) return;
        const told = toChatRows(messages), texts = changes(await compacted(told.rows, modelID ?? "", asked.sessionID), told);
        if (!texts?.size) return;
        for (const [at, message] of messages.entries()) { // in place: OpenCode sends this list
          if (!message.parts.some((part) => texts.has(part))) continue;
          const parts = message.parts.map((part) => (
            texts.has(part) ? { ...part, state: { ...part.state, output: texts.get(part) } } : part));
          messages[at] = { ...message, parts };
        }
      } catch {
        // no proxy is running, or the timeout expired: send the request unchanged
      }
    },
  };
}
