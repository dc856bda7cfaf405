// old_server.mjs - a small MCP server of the days of 2024-11-05, made with the official TypeScript SDK of that time.
// That SDK knows nothing of later revisions, and has no tool results but content.
// Run: node old_server.mjs         (MCP on stdin and stdout)
//      node old_server.mjs sse     (MCP over HTTP+SSE at the address it says on stderr, the port being PORT or any)
// SPDX-License-Identifier: 0BSD

import { createServer } from 'node:http';
import { Server } from 'mcp-sdk-2024/server/index.js';
import { SSEServerTransport } from 'mcp-sdk-2024/server/sse.js';
import { StdioServerTransport } from 'mcp-sdk-2024/server/stdio.js';
import {
    CallToolRequestSchema, CompleteRequestSchema, CreateMessageResultSchema, GetPromptRequestSchema,
    ListPromptsRequestSchema, ListResourcesRequestSchema, ListResourceTemplatesRequestSchema, ListRootsResultSchema,
    ListToolsRequestSchema, ReadResourceRequestSchema, SetLevelRequestSchema, SubscribeRequestSchema,
    UnsubscribeRequestSchema,
} from 'mcp-sdk-2024/types.js';

const server = new Server({ name: 'old', version: '0.1.0' }, {
    capabilities: {
        tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: {}, logging: {},
    },
});

const text = text => ({ content: [{ type: 'text', text }] });
const inputSchema = { type: 'object' };
const subscribed = new Set();
const notes = { 'note://text': { text: 'a note, é' }, 'note://blob': { blob: 'AAEC/w==' } };
let level = 'none';

const tools = {
    echo: ({ message }) => text(message),
    level: () => text(level),
    async count({ steps }, token) {
        for (let progress = 1; progress <= steps; progress++) {
            await server.notification({
                method: 'notifications/progress', params: { progressToken: token, progress, total: steps },
            });
        }
        return text(`counted to ${steps}`);
    },
    async log() {
        await server.sendLoggingMessage({ level: 'error', logger: 'old', data: 'of much interest' });
        return text('logged');
    },
    async grow() {
        tools.grown ??= () => text('grown');
        await server.sendToolListChanged();
        return text('grown');
    },
    async touch({ uri }) {
        if (subscribed.has(uri)) {
            await server.sendResourceUpdated({ uri });
        }
        return text([...subscribed].join(' '));
    },
    async sample() {
        const params = {
            messages: [{ role: 'user', content: { type: 'text', text: 'What is the capital of France?' } }],
            systemPrompt: 'Answer in one word.', maxTokens: 100,
        };
        const answer = await server.request({ method: 'sampling/createMessage', params }, CreateMessageResultSchema);
        return text(`${answer.model} as ${answer.role} says ${answer.content.text} (${answer.stopReason})`);
    },
    async roots() {
        const { roots } = await server.request({ method: 'roots/list' }, ListRootsResultSchema);
        return text(roots.map(root => `${root.uri} (${root.name})`).join(' '));
    },
    async ping() {
        await server.ping();
        return text('pong');
    },
};

server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: Object.keys(tools).map(name => ({ name, description: `The tool ${name}.`, inputSchema })),
}));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
    if (!Object.hasOwn(tools, params.name)) {
        throw new Error(`unknown tool ${params.name}`);
    }
    return tools[params.name](params.arguments, params._meta?.progressToken);
});

// One resource on a page.
server.setRequestHandler(ListResourcesRequestSchema, ({ params }) => {
    const uris = Object.keys(notes);
    const at = Number(params?.cursor ?? 0);
    const page = { resources: [{ uri: uris[at], name: uris[at] }] };
    return at + 1 < uris.length ? { ...page, nextCursor: String(at + 1) } : page;
});
server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'note://{name}', name: 'notes' }],
}));
server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => {
    if (!Object.hasOwn(notes, uri)) {
        throw Object.assign(new Error('Resource not found'), { code: -32002 });
    }
    return { contents: [{ uri, ...notes[uri] }] };
});
server.setRequestHandler(SubscribeRequestSchema, ({ params }) => { subscribed.add(params.uri); return {}; });
server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => { subscribed.delete(params.uri); return {}; });

server.setRequestHandler(ListPromptsRequestSchema, () => ({
    prompts: [{ name: 'greet', arguments: [{ name: 'name', required: true }] }, { name: 'hello' }],
}));
server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
    messages: [{
        role: 'user', content: { type: 'text', text: params.arguments ? `Greet ${params.arguments.name}.` : 'Hello!' },
    }],
}));
server.setRequestHandler(CompleteRequestSchema, ({ params }) => ({
    completion: { values: [`${params.argument.value}nn`], total: 1, hasMore: false },
}));
server.setRequestHandler(SetLevelRequestSchema, ({ params }) => { level = params.level; return {}; });

if (process.argv[2] !== 'sse') {
    await server.connect(new StdioServerTransport());
} else {
    // One client at a time.
    let transport;
    const http = createServer(async (req, res) => {
        const url = new URL(req.url, 'http://localhost');
        if (url.pathname === '/sse' && req.method === 'GET') {
            transport = new SSEServerTransport('/messages', res);
            return server.connect(transport);
        }
        if (url.pathname === '/messages' && req.method === 'POST' && url.searchParams.get('sessionId') === transport?.sessionId) {
            return transport.handlePostMessage(req, res);
        }
        return res.writeHead(url.pathname === '/sse' ? 405 : 404).end();
    });
    http.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
        console.error(`listening on http://127.0.0.1:${http.address().port}/sse`);
    });
}
