// modern_server.mjs - a small MCP server of the stateless era, made with the official TypeScript SDK, 2.x.
// It speaks the handshake revisions, too. modern_server.py is the same server on the Python SDK: the tests run one
// battery against both.
// Run: node modern_server.mjs [reject]                  (MCP on stdin and stdout, logs on stderr)
//      node modern_server.mjs http [reject|sessionless]  (MCP at the address it says on stderr, the port being PORT or any)
// With reject, it refuses handshakes; with sessionless, it takes them without keeping anything.
// SPDX-License-Identifier: 0BSD

import { createServer } from 'node:http';
import {
    NodeStreamableHTTPServerTransport, localhostHostValidation, localhostOriginValidation, toNodeHandler, toWebRequest,
} from '@modelcontextprotocol/node';
import {
    McpServer, ResourceTemplate, acceptedContent, completable, createMcpHandler, createRequestStateCodec, inputRequired,
    isLegacyRequest,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod/v4';

const codec = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)), ttlSeconds: 600 });

const text = text => ({ content: [{ type: 'text', text }] });

const person = z.object({
    name: z.string().min(1).meta({ title: 'Name', description: 'What to call you' }),
    age: z.number().int().min(0).default(30),
    color: z.enum(['red', 'green', 'blue']).default('green'),
    member: z.boolean().default(true),
});
const question = { message: 'Who are you?', requestedSchema: person };

const toModel = {
    messages: [{ role: 'user', content: { type: 'text', text: 'What is the capital of France?' } }],
    systemPrompt: 'Answer in one word.',
    maxTokens: 100,
    temperature: 0.5,
    stopSequences: ['.'],
};

let handler; // of the stateless era over HTTP, where each request has a server of its own
let grown = false;

function build({ era }) {
    const tell = era === 'modern' && handler?.notify;
    const server = new McpServer({ name: 'modern-typescript', title: 'Modern', version: '1.2.3' }, {
        instructions: 'Ask for anything.',
        capabilities: { logging: {}, resources: { subscribe: true } },
        cacheHints: { 'tools/list': { ttlMs: 600_000 } },
        requestState: { verify: codec.verify },
        inputRequired: { maxRounds: 100 },
    });

    // Tools.

    server.registerTool('echo', {
        title: 'Echo', description: 'Says what it is told.', annotations: { readOnlyHint: true },
        inputSchema: z.object({ message: z.string() }),
    }, ({ message }) => text(message));

    server.registerTool('add', {
        description: 'Adds two numbers.',
        inputSchema: z.object({ a: z.number(), b: z.number() }),
        outputSchema: z.object({ sum: z.number() }),
    }, ({ a, b }) => ({ ...text(JSON.stringify({ sum: a + b })), structuredContent: { sum: a + b } }));

    // Over HTTP in the stateless era, the SDK checks that the headers say the same.
    const region = z.string().meta({ 'x-mcp-header': 'Region' });
    const urgent = z.boolean().meta({ 'x-mcp-header': 'Urgent' });
    const floor = z.number().int().meta({ 'x-mcp-header': 'Floor' });
    server.registerTool('route', {
        description: 'Says where a parcel goes.',
        inputSchema: z.object({ region, urgent: urgent.optional(), address: z.object({ floor }).optional() }),
    }, ({ region, urgent, address }) => text([region, urgent ?? 'none', ...address ? [address.floor] : []].join(', ')));

    const progress = (ctx, progress, total, message) => ctx.mcpReq._meta?.progressToken !== undefined &&
        ctx.mcpReq.notify({
            method: 'notifications/progress',
            params: { progressToken: ctx.mcpReq._meta.progressToken, progress, total, message },
        });

    server.registerTool('count', {
        description: 'Counts, and reports each step.',
        inputSchema: z.object({ steps: z.number().int() }),
    }, async ({ steps }, ctx) => {
        for (let step = 1; step <= steps; step++) {
            await progress(ctx, step, steps, `step ${step}`);
        }
        return text(`counted to ${steps}`);
    });

    server.registerTool('wait', {
        description: 'Waits until it is cancelled, and then says so on stderr.',
    }, async ctx => {
        const { signal } = ctx.mcpReq;
        const cancelled = new Promise(resolve => signal.addEventListener('abort', resolve));
        await progress(ctx, 1, 2, 'waiting');
        await cancelled;
        console.error('wait was cancelled');
        return text('cancelled');
    });

    server.registerTool('log', { description: 'Logs on three levels.' }, async ctx => {
        await ctx.mcpReq.log('debug', 'of little interest', 'modern');
        await ctx.mcpReq.log('info', { of: ['some', 'interest'] }, 'modern');
        await ctx.mcpReq.log('error', 'of much interest');
        return text('logged');
    });

    server.registerTool('fail', { description: 'Fails.' }, () => { throw new Error('this tool always fails'); });

    // Questions of the server, in the two ways that the two eras have; the SDK chooses.

    server.registerTool('ask', { description: 'Asks the user who they are.' }, ctx => {
        const answer = ctx.mcpReq.inputResponses?.person;
        if (!answer) {
            return inputRequired({ inputRequests: { person: inputRequired.elicit(question) } });
        }
        if (answer.action !== 'accept') {
            return text(`the user answered ${answer.action}`);
        }
        const { name, age, color, member } = person.parse(answer.content);
        return text(`${name}, ${age}, ${color}, ${member}`);
    });

    server.registerTool('visit', { description: 'Asks the user to open a page.' }, ctx => {
        const answer = ctx.mcpReq.inputResponses?.visit;
        const url = 'https://example.com/sign-in';
        return answer ? text(`the user answered ${answer.action}`)
            : inputRequired({ inputRequests: { visit: inputRequired.elicitUrl({ message: 'Sign in', url }) } });
    });

    server.registerTool('sample', { description: "Asks the client's model." }, ctx => {
        const answer = ctx.mcpReq.inputResponses?.answer;
        return answer ? text(`${answer.model} as ${answer.role} says ${answer.content.text} (${answer.stopReason})`)
            : inputRequired({ inputRequests: { answer: inputRequired.createMessage(toModel) } });
    });

    server.registerTool('roots', { description: "Asks for the client's roots." }, ctx => {
        const listed = ctx.mcpReq.inputResponses?.roots;
        return listed ? text(listed.roots.map(root => `${root.uri} (${root.name})`).join(' '))
            : inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
    });

    server.registerTool('interview', {
        description: 'Asks three questions at once, and then a fourth that depends on the first.',
    }, async ctx => {
        const { inputResponses, requestState } = ctx.mcpReq;
        const known = requestState();
        if (known) {
            const { confirmed } = acceptedContent(inputResponses, 'confirm');
            return text(`${known.name}, ${known.capital}, ${known.roots}, ${confirmed ? 'True' : 'False'}`);
        }
        if (inputResponses) {
            const { name } = acceptedContent(inputResponses, 'person');
            return inputRequired({
                inputRequests: {
                    confirm: inputRequired.elicit({
                        message: `Are you sure, ${name}?`,
                        requestedSchema: z.object({ confirmed: z.boolean() }),
                    }),
                },
                requestState: await codec.mint({
                    name,
                    capital: inputResponses.answer.content.text,
                    roots: inputResponses.roots.roots.length,
                }),
            });
        }
        return inputRequired({
            inputRequests: {
                person: inputRequired.elicit(question),
                answer: inputRequired.createMessage(toModel),
                roots: inputRequired.listRoots(),
            },
        });
    });

    // What no other tool asks for, so that the client gives answers of every form.
    const choices = { type: 'array', items: { type: 'string', enum: ['x', 'y'] } };
    const survey = {
        form: () => inputRequired.elicit({
            message: 'How was it?',
            requestedSchema: { type: 'object', properties: { score: { type: 'number' }, picks: choices } },
        }),
        image: () => inputRequired.createMessage({ ...toModel, systemPrompt: 'Draw.' }),
        tools: () => inputRequired.createMessage({ ...toModel, tools: [{ name: 'a', inputSchema: { type: 'object' } }] }),
        roots: () => inputRequired.listRoots(),
    };
    server.registerTool('survey', {
        description: 'Asks for something, and returns the answer as JSON.', inputSchema: z.object({ of: z.enum(Object.keys(survey)) }),
    }, ({ of }, ctx) => {
        const answer = ctx.mcpReq.inputResponses?.answer;
        return answer ? text(JSON.stringify(answer)) : inputRequired({ inputRequests: { answer: survey[of]() } });
    });

    server.registerTool('pester', {
        description: 'Asks again and again, and only in the stateless era.',
    }, async ctx => {
        const rounds = (ctx.mcpReq.requestState() ?? 0) + 1;
        return inputRequired({
            inputRequests: {
                again: inputRequired.elicit({
                    message: `Question ${rounds}?`, requestedSchema: { type: 'object', properties: {} },
                }),
            },
            requestState: await codec.mint(rounds),
        });
    });

    // Changes.

    const grow = () => {
        server.registerTool('grown', { description: 'Is new.' }, () => text('grown'));
        server.registerPrompt('grown', {}, () => ({ messages: [{ role: 'user', content: { type: 'text', text: 'grown' } }] }));
        server.registerResource('grown', 'note://grown', {}, uri => ({ contents: [{ uri: uri.href, text: 'grown' }] }));
        notes.push({ name: 'grown', uri: 'note://grown' });
    };
    server.registerTool('grow', { description: 'Adds a tool, a prompt and a resource, and tells of it.' }, () => {
        grown = true;
        if (tell) {
            tell.toolsChanged();
            tell.promptsChanged();
            tell.resourcesChanged();
        } else {
            grow(); // the SDK tells
        }
        return text('grown');
    });

    server.registerTool('touch', {
        description: 'Tells that a resource is not what it was.',
        inputSchema: z.object({ uri: z.string() }),
    }, async ({ uri }) => {
        await (tell ? tell.resourceUpdated(uri) : server.server.sendResourceUpdated({ uri }));
        return text('touched');
    });

    // The two requests of the handshake era that the SDK leaves to the server; nobody else can be subscribed.
    server.server.setRequestHandler('resources/subscribe', () => ({}));
    server.server.setRequestHandler('resources/unsubscribe', () => ({}));

    // Resources.

    const note = (uri, of) => ({ contents: [{ uri: uri.href, ...of }] });

    server.registerResource('text_note', 'note://text', { title: 'A note', mimeType: 'text/plain' },
        uri => note(uri, { mimeType: 'text/plain', text: 'a note, é' }));

    server.registerResource('blob_note', 'note://blob', { mimeType: 'application/octet-stream' },
        uri => note(uri, {
            mimeType: 'application/octet-stream',
            blob: Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('base64'),
        }));

    const numbers = { number: () => ['1', '2', '3'] };
    server.registerResource('numbered', new ResourceTemplate('note://numbered/{number}', { complete: numbers }),
        { mimeType: 'text/plain' }, (uri, { number }) => note(uri, { text: `note number ${number}` }));

    server.registerResource('signed_note', new ResourceTemplate('note://signed/{name}', {}),
        { description: 'A note that the user has to sign first.' }, async (uri, { name }, ctx) => {
            const sign = acceptedContent(ctx.mcpReq.inputResponses, 'sign');
            if (sign) {
                return note(uri, { text: `${name}, signed by ${sign.signature}, was ${ctx.mcpReq.requestState()}` });
            }
            const properties = { signature: { type: 'string' } };
            return inputRequired({
                inputRequests: {
                    sign: inputRequired.elicit({ message: 'Sign?', requestedSchema: { type: 'object', properties } }),
                },
                requestState: await codec.mint('unsigned'),
            });
        });

    // The SDK lists all on one page; these come two on a page.
    const notes = [
        { name: 'text_note', title: 'A note', uri: 'note://text', mimeType: 'text/plain' },
        { name: 'blob_note', uri: 'note://blob', mimeType: 'application/octet-stream' },
        ...['1', '2', '3'].map(n => ({ name: `note ${n}`, uri: `note://numbered/${n}`, size: 13 })),
    ];
    server.server.setRequestHandler('resources/list', ({ params }) => {
        const start = Number(params?.cursor ?? 0);
        const resources = notes.slice(start, start + 2);
        return start + 2 < notes.length ? { resources, nextCursor: String(start + 2) } : { resources };
    });

    // Prompts.

    const say = text => ({ messages: [{ role: 'user', content: { type: 'text', text } }] });

    server.registerPrompt('greet', {
        title: 'Greeting', description: 'Asks for a greeting.',
        argsSchema: z.object({
            name: z.string(),
            style: completable(z.string(), (value, context) => ['plain', 'pirate', 'formal']
                .filter(style => style.startsWith(value))
                .map(style => `${style} ${context?.arguments?.name ?? ''}`.trim())).optional(),
        }),
    }, ({ name, style = 'plain' }) => say(`Greet ${name} in a ${style} style.`));

    server.registerPrompt('hello', { description: 'Says hello.' }, () => say('Hello!'));

    if (grown) {
        grow();
    }
    return server;
}

const onerror = error => console.error(error.message);
if (process.argv[2] === 'http') {
    serveHTTP(process.argv[3]);
} else {
    serveStdio(build, { legacy: process.argv[2] ?? 'serve', onerror });
}

// serveHTTP serves both eras at one address. The handshake era has sessions, and streams that can be resumed.
function serveHTTP(how = 'sessions') {
    handler = createMcpHandler(build, { legacy: how === 'sessionless' ? 'stateless' : 'reject', onerror });
    const stateless = toNodeHandler(handler, { onerror });
    const sessions = new Map();

    const handshake = async (req, res, body) => {
        const id = req.headers['mcp-session-id'];
        let transport = sessions.get(id);
        if (id !== undefined && transport === undefined) {
            const error = { code: -32001, message: 'Session not found' };
            res.writeHead(404, { 'content-type': 'application/json' });
            return res.end(JSON.stringify({ jsonrpc: '2.0', error, id: null }));
        }
        if (transport === undefined) {
            transport = new NodeStreamableHTTPServerTransport({
                sessionIdGenerator: () => crypto.randomUUID(),
                onsessioninitialized: id => { sessions.set(id, transport); },
                onsessionclosed: id => { sessions.delete(id); },
                eventStore: eventStore(),
                retryInterval: 50,
            });
            transport.onerror = onerror;
            await build({ era: 'legacy' }).connect(transport);
        }
        return transport.handleRequest(req, res, body);
    };

    const hostIsFine = localhostHostValidation();
    const originIsFine = localhostOriginValidation();
    const server = createServer(async (req, res) => {
        if (!hostIsFine(req, res) || !originIsFine(req, res)) {
            return;
        }
        if (how !== 'sessions') {
            return stateless(req, res);
        }
        try {
            const request = await toWebRequest(req);
            const body = await request.clone().json().catch(() => undefined);
            await (await isLegacyRequest(request, body) ? handshake : stateless)(req, res, body);
        } catch (error) { // such as a body that is too large
            res.writeHead(error.status ?? 500, { connection: 'close' }).end(error.message);
        }
    });
    server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
        console.error(`listening on http://127.0.0.1:${server.address().port}/mcp`);
    });
}

// eventStore keeps what was sent, to be sent again.
function eventStore() {
    const events = []; // an event's id is its place, from 1
    return {
        storeEvent: async (stream, message) => String(events.push({ stream, message })),
        getStreamIdForEventId: async id => events[id - 1]?.stream,
        async replayEventsAfter(id, { send }) {
            const { stream } = events[id - 1];
            for (const [i, event] of events.entries()) {
                if (i >= id && event.stream === stream && event.message.jsonrpc) { // without it, one that only gave an id
                    await send(String(i + 1), event.message);
                }
            }
            return stream;
        },
    };
}
