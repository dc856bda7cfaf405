// judge.mjs - says what the official TypeScript SDKs' schemas of the protocol make of recorded messages.
// Run: node judge.mjs <messages
// It reads and writes what judge.py does. Each revision is judged by the SDK nearest to it: 2024-11-05 by one of its own
// days, the later handshake revisions by the 1.x line, the stateless one by the 2.x line. Only the client's messages are
// judged. These schemas let members pass that they do not know, but not null in the place of something.
// SPDX-License-Identifier: 0BSD

import { readFileSync } from 'node:fs';
import * as modern from '@modelcontextprotocol/core';
import * as handshake from '@modelcontextprotocol/sdk/types.js';
import * as first from 'mcp-sdk-2024/types.js';

const sdks = { '2024-11-05': first, '2026-07-28': modern };
const asked = new Map(); // the method of each of the server's requests, by revision and id

function judge(revision, sender, message) {
    const sdk = sdks[revision] ?? handshake;
    sdk.JSONRPCMessageSchema.parse(message);
    if (message.method === undefined) {
        const method = asked.get(JSON.stringify([revision, message.id]));
        if (sender === 'client' && method === undefined) {
            throw new Error('it answers no request');
        }
        if (sender === 'client' && message.error === undefined) {
            results(sdk, revision)[method].parse(message.result);
        }
    } else if (sender === 'client') {
        schema(sdk, message.id === undefined ? 'ClientNotification' : 'ClientRequest', message.method).parse(message);
    } else if (message.id !== undefined) {
        asked.set(JSON.stringify([revision, message.id]), message.method);
    }
}

// schema finds the member of a union that is for a method, for an error that says more than that none of them fits.
function schema(sdk, union, method) {
    for (const option of sdk[`${union}Schema`].options) {
        if (option.shape.method.safeParse(method).success) {
            return option;
        }
    }
    throw new Error(`no ${union} is ${method}`);
}

const results = (sdk, revision) => ({
    'elicitation/create': sdk.ElicitResultSchema,
    ping: sdk.EmptyResultSchema,
    'roots/list': sdk.ListRootsResultSchema,
    'sampling/createMessage': revision < '2025-11-25' ? sdk.CreateMessageResultSchema : sdk.CreateMessageResultWithToolsSchema,
});

for (const line of readFileSync(0, 'utf8').split('\n').filter(line => line)) {
    const { revision, sender, message } = JSON.parse(line);
    try {
        judge(revision, sender, message);
        console.log('valid');
    } catch (error) {
        const reason = error.issues?.map(issue => `${issue.path.join('.')}: ${issue.message}`).join('; ') ?? error.message;
        console.log('refused:', reason.replaceAll('\n', ' '));
    }
}
