// Calls of the Node package `openai`: node openai_calls.mjs CALL '{"url": ..., "model": ...}'

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [call, text, home] = process.argv.slice(2);
const facts = JSON.parse(text);
const OpenAI = createRequire(`${home}/package.json`)("openai");
const messages = [{ role: "user", content: "hello" }];
const connect = (apiKey = "none") =>
  new OpenAI({ baseURL: `${facts.url}/v1`, apiKey, maxRetries: 0 });
const client = connect();
const asked = (extra = {}) => ({
  model: facts.model, messages, max_tokens: 12, temperature: 0, ...extra,
});
const create = (extra) => client.chat.completions.create(asked(extra));

async function waitIdle() {
  const ends = Date.now() + 300_000;
  for (;;) {
    const node = await (await fetch(`${facts.url}/v1/diagnostics/node`)).json();
    if (!node.supervisorRunners.some((runner) => runner.inProgressTasks.length)) return;
    assert(Date.now() < ends, "the request goes on after its client has hung up");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const calls = {
  async list() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    assert(ids.includes(facts.model));
    assert.equal((await client.models.retrieve(facts.model)).id, facts.model);
  },

  async chat() {
    const whole = await create();
    let streamed = "";
    for await (const chunk of await create({ stream: true })) {
      streamed += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(streamed, whole.choices[0].message.content);
    assert.equal(whole.usage.completion_tokens, 12);
    const helper = client.chat.completions.stream(asked());
    assert.equal(await helper.finalContent(), streamed);
  },

  async responses() {
    const body = { model: facts.model, input: "hello", max_output_tokens: 12, temperature: 0 };
    const whole = await client.responses.create(body);
    let streamed = "";
    for await (const event of await client.responses.create({ ...body, stream: true })) {
      if (event.type === "response.output_text.delta") streamed += event.delta;
    }
    assert.equal(streamed, whole.output_text);
    assert.equal((await client.responses.retrieve(whole.id)).output_text, streamed);
  },

  async tools() {
    const tool_choice = { type: "function", function: { name: "paint" } };
    const answer = await create({ tools: [facts.tool], tool_choice, max_tokens: 200 });
    const [called] = answer.choices[0].message.tool_calls;
    assert(["red", "green"].includes(JSON.parse(called.function.arguments).colour));
  },

  async schema() {
    const json_schema = { name: "x", schema: facts.schema };
    const response_format = { type: "json_schema", json_schema };
    const answer = await create({ response_format, max_tokens: 300 });
    const typed = JSON.parse(answer.choices[0].message.content);
    assert.deepEqual(Object.keys(typed).sort(), ["colour", "count"]);
  },

  async errors() {
    await assert.rejects(create({ model: "x/y" }), OpenAI.NotFoundError);
    await assert.rejects(create({ temperature: -1 }), OpenAI.BadRequestError);
    const long = [{ role: "user", content: "a ".repeat(9000) }];
    await assert.rejects(create({ messages: long }), /context_length_exceeded/);
    const stranger = connect("skt_0000000000000000_none");
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },

  async cancel() {
    const stream = await create({ stream: true, max_tokens: 2000 });
    for await (const _ of stream) break;
    await waitIdle();
  },
};

await calls[call]();
