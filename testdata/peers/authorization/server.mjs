// server.mjs - an authorization server on oidc-provider, whose people log in under any name and with any password.
// It registers clients, rotates the refresh tokens of public ones, and tells the protected server what a token is good for.
// Run: node server.mjs    (at the address it says on stderr, which is its issuer; the port being PORT or any)
// SPDX-License-Identifier: 0BSD

import './clock.mjs';
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const seconds = () => Number(process.env.TOKEN_SECONDS ?? 3600); // that an access token lives

// What a person's client is, whatever its port.
const native = {
    application_type: 'native', redirect_uris: ['http://127.0.0.1/callback'],
    grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
};

// What is registered beforehand: the protected server, which asks about tokens, a client for persons, and programs that
// nobody logs in for.
const clients = [
    { client_id: 'protected-server', client_secret: 'protected-server-secret', grant_types: [] },
    { client_id: 'registered', client_secret: 'registered-secret-0123456789', ...native },
    { client_id: 'machine', client_secret: 'machine-secret-0123456789', grant_types: ['client_credentials'] },
];
if (process.env.MACHINE_KEY) { // as a JWK
    clients.push({
        client_id: 'machine-key', grant_types: ['client_credentials'], token_endpoint_auth_method: 'private_key_jwt',
        token_endpoint_auth_signing_alg: 'ES256', jwks: { keys: [JSON.parse(process.env.MACHINE_KEY)] },
    });
}

const server = createServer();
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
    const issuer = `http://127.0.0.1:${server.address().port}`;
    const provider = new Provider(issuer, {
        clients: clients.map(client => ({ redirect_uris: [], response_types: [], ...client })),
        cookies: { keys: [randomBytes(16).toString('hex')] },
        pkce: { required: () => true },
        ttl: { AccessToken: seconds, ClientCredentials: seconds },
        // In place of the network: what a client's metadata document says.
        fetch: async url => Response.json({ client_id: String(url), token_endpoint_auth_method: 'none', ...native }),
        features: {
            clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
            clientCredentials: { enabled: true },
            dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
            introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === 'protected-server' },
            registration: { enabled: true },
            revocation: { enabled: true },
            resourceIndicators: {
                enabled: true,
                getResourceServerInfo: (_, audience) => ({ audience, scope: 'notes:read notes:write', accessTokenFormat: 'opaque' }),
            },
        },
    });
    provider.on('registration_create.success', () => console.error('registered a client'));
    provider.on('grant.success', ctx => console.error(`granted ${ctx.oidc.params.grant_type}`));
    provider.on('grant.error', (ctx, error) => console.error(`refused ${ctx.oidc.params?.grant_type}: ${error.error_detail}`));
    provider.on('server_error', (_, error) => console.error(error));
    const callback = provider.callback();
    server.on('request', async (req, res) => {
        if (req.method === 'DELETE') { // an operator's: ends one access token, and leaves its refresh token
            await (await provider.AccessToken.find(req.url.slice(1)))?.destroy();
            return res.end();
        }
        callback(req, res);
    });
    console.error(`listening on ${issuer}`);
});
