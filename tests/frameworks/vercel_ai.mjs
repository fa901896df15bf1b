// An agent with one tool. Its task is the first line of standard input; the tool asks on standard output and is answered
// on standard input; the last line of the output is what came of the task.
import { createInterface } from "node:readline";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { z } from "zod";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value);
const say = (value, then) => process.stdout.write(JSON.stringify(value) + "\n", then);

globalThis.AI_SDK_LOG_WARNINGS = false; // they would stand between these lines
const task = await next();
const own = { apiKey: task.key };
const models = {
  "anthropic": () => createAnthropic({ ...own, baseURL: `${task.url}/v1` })("claude-test"),
  "openai-chat": () => createOpenAI({ ...own, baseURL: `${task.url}/v1` }).chat("gpt-test"),
  "openai-responses": () => createOpenAI({ ...own, baseURL: `${task.url}/v1` })("gpt-test"),
  "gemini": () => createGoogleGenerativeAI({ ...own, baseURL: `${task.url}/v1beta` })("gemini-test"),
};

let reading = Promise.resolve(); // one after the other, in the order of the calls
const read = tool({
  description: task.description,
  inputSchema: z.object({ path: z.string() }),
  execute: ({ path }) => (reading = reading.catch(() => 0).then(async () => {
    say({ read: path });
    const answer = await next();
    if (answer.error) throw new Error(answer.error);
    return answer.text;
  })),
});

const caching = { // the SDK's own settings
  anthropic: { cacheControl: { type: "ephemeral" } },
  openai: { promptCacheKey: "one", promptCacheRetention: "24h" },
};
const kept = task.caching ? caching : { anthropic: {}, openai: {} };
const settings = {
  model: models[task.format](),
  tools: { read },
  stopWhen: stepCountIs(task.turns),
  maxOutputTokens: 999,
  system: task.system ?? undefined,
  // else answers are sent as references, and the script counts answers
  providerOptions: { openai: { store: false, ...kept.openai }, anthropic: kept.anthropic },
};
const messages = [];
const texts = [];
for (const [number, text] of task.prompts.entries()) {
  const image = number === 0 && task.image ? [{ type: "image", image: task.image, mediaType: "image/png" }] : [];
  messages.push({ role: "user", content: [...image, { type: "text", text }] });
  const asked = { ...settings, messages };
  const answer = task.mode === "stream" ? streamText({ ...asked, onError: () => 0 }) : await generateText(asked);
  texts.push(await answer.text);
  messages.push(...(await answer.response).messages);
}
say({ texts, history: messages }, () => process.exit(0));
