// better_auth_server.mjs - a protected MCP server and its authorization server in one process: better-auth's, with its
// MCP plugin, which is its OAuth provider. package.json has the newest better-auth that this plugin can be installed with.
//
// better-auth does the OAuth, all of it: the metadata of both servers, the registration of clients (RFC 7591), PKCE,
// resource indicators, codes and tokens, revocation (RFC 7009), the person's password and session, what a person agreed
// to, and the refusals at /mcp. Its issuer has a path. It registers a client at 127.0.0.1 as a native one alone. Its access
// tokens are JWTs, which nobody revokes; it gives refresh tokens for the scope offline_access alone, and takes an old one
// for another 30 seconds. The official TypeScript SDK, 2.x, does the MCP.
//
// Written here, since better-auth leaves it to the application: the pages with the two forms, which hand what is filled in
// to better-auth; and that anybody may register a client, which is an option. What it remembers is in memory, also its key.
//
// Run: PORT=0 TOKEN_SECONDS=3600 REFRESH=yes SCOPES=notes:read node better_auth_server.mjs
// (MCP at the address it says on stderr). The person is heron, with the password heron.
// SPDX-License-Identifier: 0BSD

import './clock.mjs';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { mcp, requireMcpAuth } from '@better-auth/mcp';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { betterAuth } from 'better-auth';
import { toNodeHandler } from 'better-auth/node';
import { jwt } from 'better-auth/plugins';

const scopes = (process.env.SCOPES ?? 'notes:read').split(' ').filter(Boolean);
const refreshScopes = process.env.REFRESH === 'no' ? [] : ['offline_access'];

function build() {
    const server = new McpServer({ name: 'notes', version: '1.2.3' });
    server.registerTool('list_notes', { description: 'Lists the notes.' }, () => (
        { content: [{ type: 'text', text: 'A heron stands in shallow water.' }] }
    ));
    return server;
}

function page(title, text, action, fields) {
    const body = `<!doctype html><title>${title}</title>
<h1>${title}</h1>
<p>${escape(text)}</p>
<form method="post" action="${escape(action)}">${fields}</form>
`;
    return new Response(body, { headers: { 'content-type': 'text/html; charset=utf-8' } });
}

const escape = text => text.replace(/[&<>"]/g, character => `&#${character.charCodeAt()};`);

// loginPage shows the form for a person, and hands it to better-auth, which goes on with the authorization.
async function loginPage(request, auth) {
    const url = new URL(request.url);
    let title = 'Log in';
    if (request.method === 'POST') {
        const form = new URLSearchParams(await request.text());
        const answer = await ask(request, auth, '/sign-in/email', {
            email: `${form.get('user')}@example.com`, password: form.get('password'), oauth_query: url.search.slice(1),
        });
        if (answer.status !== 401) {
            return answer;
        }
        title = 'Wrong user or password';
    }
    return page(title, 'The person is heron.', url.pathname + url.search,
        '<input name="user"> <input name="password" type="password"> <button>Log in</button>');
}

// consentPage asks a person who is logged in.
async function consentPage(request, auth) {
    const url = new URL(request.url);
    if (request.method === 'POST') {
        const form = new URLSearchParams(await request.text());
        return ask(request, auth, '/oauth2/consent', { accept: !form.has('deny'), oauth_query: url.search.slice(1) });
    }
    const text = `A program asks for: ${url.searchParams.get('scope')}`;
    return page('Authorize', text, url.pathname + url.search,
        '<button>Approve</button> <button name="deny" value="yes">Deny</button>');
}

// ask calls an endpoint of better-auth as its own client in a browser would. Where that leads elsewhere, so does the answer.
async function ask(request, auth, path, body) {
    const { origin } = new URL(request.url);
    const headers = { 'content-type': 'application/json', accept: 'application/json', origin };
    if (request.headers.has('cookie')) {
        headers.cookie = request.headers.get('cookie');
    }
    const post = { method: 'POST', headers, body: JSON.stringify(body) };
    const answer = await auth.handler(new Request(`${origin}/api/auth${path}`, post));
    const { url } = await answer.clone().json();
    if (!url) {
        return answer;
    }
    const there = new Headers({ location: url });
    for (const cookie of answer.headers.getSetCookie()) {
        there.append('set-cookie', cookie);
    }
    return new Response(null, { status: 303, headers: there });
}

// report says on stderr what the authorization server has done.
async function report(request, response) {
    const { pathname } = new URL(request.url);
    if (pathname.endsWith('/oauth2/register') && response.ok) {
        console.error('registered a client');
    } else if (pathname.endsWith('/oauth2/revoke')) {
        console.error(`revoked: ${response.status}`);
    } else if (pathname.endsWith('/oauth2/token')) {
        const what = new URLSearchParams(await request.text()).get('grant_type');
        const { error } = await response.clone().json();
        console.error(error ? `refused ${what}: ${error}` : `granted ${what}`);
    }
}

const server = createServer();
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', async () => {
    const origin = `http://127.0.0.1:${server.address().port}`;
    const auth = betterAuth({
        baseURL: origin,
        secret: randomBytes(32).toString('hex'),
        emailAndPassword: { enabled: true, minPasswordLength: 1 },
        logger: { level: 'error' },
        telemetry: { enabled: false },
        plugins: [
            jwt(),
            mcp({
                resource: `${origin}/mcp`,
                loginPage: '/login',
                consentPage: '/consent',
                scopes: ['openid', 'profile', 'email', ...refreshScopes, ...scopes],
                accessTokenExpiresIn: Number(process.env.TOKEN_SECONDS ?? 3600),
                allowDynamicClientRegistration: true,
                allowUnauthenticatedClientRegistration: true,
            }),
        ],
    });
    await auth.api.signUpEmail({ body: { name: 'Heron', email: 'heron@example.com', password: 'heron' } });
    const tools = createMcpHandler(build);
    const needs = { resource: `${origin}/mcp`, requiredScopes: scopes };
    const protectedTools = requireMcpAuth(auth, request => tools.fetch(request), needs);
    server.on('request', toNodeHandler(async request => {
        const { pathname } = new URL(request.url);
        switch (pathname) {
        case '/mcp':
            return protectedTools(request);
        case '/login':
            return loginPage(request, auth);
        case '/consent':
            return consentPage(request, auth);
        }
        const copy = request.clone();
        const response = await auth.handler(request);
        await report(copy, response);
        return response;
    }));
    console.error(`listening on ${origin}/mcp`);
});
