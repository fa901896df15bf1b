// A plugin of OpenCode: outputs of tools that repeat what stands above are replaced by references, in what is sent and
// nowhere else: OpenCode keeps, and shows, every text in full. A running `ibidem proxy` decides what is replaced. It is
// shown the conversation in OpenAI's words, a row for each output; those that change are copied back, by position.
// Where there is no clean answer in time, the request goes as it came.

const { IBIDEM_URL, IBIDEM_TOKEN, IBIDEM_PATIENCE_MS } = process.env;
const URL_OF_IBIDEM = IBIDEM_URL || "http://127.0.0.1:8123";
const PATIENCE_MS = Number(IBIDEM_PATIENCE_MS) || 300;

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

// What a user's part is on the wire, as far as it is text.
function said(part) {
  if (part.type === "text") return part.ignored ? "" : part.text;
  if (part.type === "compaction") return "What did we do so far?";
  return part.type === "subtask" ? "The following tool was executed by the user" : "";
}

// An output whose text goes out as it is, in one piece. Of others only the place counts.
function isPlain({ state }) {
  return state.status === "completed" && typeof state.output === "string" && !state.time?.compacted
    && !state.attachments?.length;
}

// Failed answers without anything in them are not sent.
function isLeftOut({ info, parts }) {
  const something = parts.some(({ type }) => type !== "step-start" && type !== "reasoning");
  return info.error && !(info.error.name === "MessageAbortedError" && something);
}

// The conversation in OpenAI's words, and for each row the part whose output it is, if it may change.
function shadow(messages) {
  const rows = [], owners = [];
  const add = (row, owner) => { rows.push(row); owners.push(owner); };
  for (const message of messages) {
    const { info, parts } = message;
    if (info.role === "user") {
      const text = parts.map(said).join("");
      if (text) add({ role: "user", content: text });
      continue;
    }
    if (isLeftOut(message)) continue;
    for (const step of steps(parts)) {
      const calls = step.filter(({ type }) => type === "tool");
      const text = step.filter(({ type }) => type === "text").map((part) => part.text).join("");
      if (calls.some(({ metadata }) => metadata?.providerExecuted)) throw new Error("results that stand elsewhere");
      const called = calls.map(({ callID: id, tool: name, state }) => (
        { id, type: "function", function: { name, arguments: JSON.stringify(state.input ?? {}) } }));
      if (text || calls.length) add({ role: "assistant", content: text || null, ...(calls.length && { tool_calls: called }) });
      for (const part of calls) {
        const row = { role: "tool", tool_call_id: part.callID };
        add({ ...row, content: isPlain(part) ? part.state.output : `(${part.callID})` }, isPlain(part) ? part : undefined);
      }
    }
  }
  return { rows, owners };
}

// Each step of an answer has its calls before their results.
function steps(parts) {
  const found = [[]];
  for (const part of parts) part.type === "step-start" ? found.push([]) : found.at(-1).push(part);
  return found;
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

// New texts by part; undefined where anything else than such a text is not as it was.
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
  announce();
  let providers = {};
  const summed = new Set(); // sessions whose next request is for a summary, which is to have every text in full
  return {
    config: async (config) => { providers = config?.provider ?? {}; },
    "experimental.session.compacting": async ({ sessionID }) => { summed.add(sessionID); },
    "experimental.chat.messages.transform": async (_, output) => {
      try {
        const { messages } = output, asked = messages.findLast(({ info }) => info.role === "user")?.info;
        const { providerID, modelID } = asked?.model ?? {};
        if (!asked || summed.delete(asked.sessionID) || leadsThere(providers[providerID]?.options?.baseURL)) return;
        const told = shadow(messages), texts = changes(await compacted(told.rows, modelID ?? "", asked.sessionID), told);
        if (!texts?.size) return;
        for (const [at, message] of messages.entries()) { // in place: it is this list that is sent
          if (!message.parts.some((part) => texts.has(part))) continue;
          const parts = message.parts.map((part) => (
            texts.has(part) ? { ...part, state: { ...part.state, output: texts.get(part) } } : part));
          messages[at] = { ...message, parts };
        }
      } catch {
        // nobody listens, or it takes too long: it goes as it came
      }
    },
  };
}
