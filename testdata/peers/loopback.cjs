// loopback.cjs - makes a server that listens on all addresses listen on 127.0.0.1 only, and say where.
// Run: node --require ./loopback.cjs the/server.js
// SPDX-License-Identifier: 0BSD

const { Server } = require('node:net');

const path = process.argv.includes('sse') ? '/sse' : '/mcp'; // of server-everything's endpoint
const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
    this.once('listening', () => console.error(`listening on http://127.0.0.1:${this.address().port}${path}`));
    return listen.call(this, { port: Number(port), host: '127.0.0.1' }, ...rest.filter(arg => typeof arg === 'function'));
};
