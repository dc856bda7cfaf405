// clock.mjs - a clock that a test can put forward: who imports this first gets it in place of Date.
// Each line on stdin is so many seconds. When the clock is forward, stderr says so.
// SPDX-License-Identifier: 0BSD

import { createInterface } from 'node:readline';

const right = Date.now;
let ahead = 0;
Date.now = () => right() + ahead * 1000;
globalThis.Date = new Proxy(Date, {
    construct: (date, given, made) => Reflect.construct(date, given.length > 0 ? given : [Date.now()], made),
});
createInterface({ input: process.stdin }).on('line', line => {
    ahead += Number(line);
    console.error(`the clock is ${ahead} s ahead`);
});
