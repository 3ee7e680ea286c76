#!/usr/bin/env node
// server PORT: answer every POST with what was posted, once all of it is there.
'use strict';
const http = require('http');

http
  .createServer((request, response) => {
    let body = '';
    request.on('data', (data) => { body += data; });
    request.on('end', () => response.end(body));
  })
  .listen(Number(process.argv[2]), '0.0.0.0');
