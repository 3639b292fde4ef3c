// Drives the TypeScript client against one endpoint. The endpoint and the era (legacy, auto or modern) are arguments, the
// token comes in MCPD_TOKEN, the steps as a JSON array on stdin; the outcome of each step is printed as one JSON array.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { text } from 'node:stream/consumers';

const [url, era] = process.argv.slice(2);
const modes = { legacy: 'legacy', auto: 'auto', modern: { pin: '2026-07-28' } };

const client = new Client(
  { name: 'e2e', version: '1.0.0' },
  { versionNegotiation: { mode: modes[era] }, capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } },
);
// What the server asks is answered at once, as by a user who agrees.
const asked = [];
const answers = {
  'elicitation/create': () => ({ action: 'accept', content: { name: 'Paul', check: true, color: 'blue' } }),
  'sampling/createMessage': () => ({ role: 'assistant', content: { type: 'text', text: 'the spice must flow' }, model: 'e2e-model' }),
  'roots/list': () => ({ roots: [{ uri: 'file:///sietch', name: 'sietch' }] }),
};
for (const [method, answer] of Object.entries(answers)) {
  client.setRequestHandler(method, async (request) => {
    asked.push({ method, params: request.params });
    return answer();
  });
}
const heard = [];
let wake = () => {};
for (const method of [
  'notifications/tools/list_changed',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed',
  'notifications/resources/updated',
]) {
  client.setNotificationHandler(method, (notification) => {
    heard.push({ method, uri: notification.params?.uri });
    wake();
  });
}

let subscription;

const steps = {
  identity: async () => ({
    era: client.getProtocolEra(),
    version: client.getNegotiatedProtocolVersion(),
    server: client.getServerVersion()?.name,
  }),
  callTool: async (params) => client.callTool(params),
  asked: async () => asked.splice(0),
  callToolWithProgress: async (params) => {
    const progress = [];
    const result = await client.callTool(params, { onprogress: (p) => progress.push(p.progress) });
    return { progress, result };
  },
  // Aborts the call as soon as its first progress message is here.
  cancelTool: async (params) => {
    const controller = new AbortController();
    let progress = 0;
    try {
      await client.callTool(params, {
        signal: controller.signal,
        onprogress: () => {
          progress++;
          controller.abort();
        },
      });
      return { cancelled: false };
    } catch {
      return { cancelled: true, progress };
    }
  },
  listTools: async (params) => client.listTools(params),
  listResources: async (params) => client.listResources(params),
  listResourceTemplates: async (params) => client.listResourceTemplates(params),
  readResource: async (params) => client.readResource(params),
  listPrompts: async (params) => client.listPrompts(params),
  getPrompt: async (params) => client.getPrompt(params),
  complete: async (params) => client.complete(params),
  listen: async (params) => {
    subscription = await client.listen(params);
    return subscription.honoredFilter;
  },
  // Waits until so many notifications have come, and returns them all.
  heard: async ({ count }) => {
    while (heard.length < count) {
      await new Promise((resolve) => (wake = resolve));
    }
    return heard;
  },
  unlisten: async () => {
    await subscription.close();
    return {};
  },
};

const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${process.env.MCPD_TOKEN}` } },
});
const outcomes = [];
try {
  const todo = JSON.parse(await text(process.stdin));
  await client.connect(transport);
  for (const { step, params } of todo) {
    try {
      outcomes.push({ ok: await steps[step](params) });
    } catch (error) {
      outcomes.push({ error: { code: error.code, message: error.message } });
    }
  }
} catch (error) {
  outcomes.push({ error: { message: `connect: ${error.stack ?? error}` } });
}
process.stdout.write(JSON.stringify(outcomes));
await client.close();
process.exit(0);
