// The servers of the web: HTTP/1.1 and HTTP/2, plain and within TLS. Each writes down
// what reaches it, as "method path host version".
const fs = require('fs'), http = require('http'), http2 = require('http2'), crypto = require('crypto');
const note = (file, text) => fs.appendFileSync(file, text + '\n');
const pem = (name) => ({ key: fs.readFileSync(name + '.key'), cert: fs.readFileSync(name + '.pem') });

function answer(request, response) {
  const url = new URL(request.url, 'http://x');
  const host = request.headers[':authority'] || request.headers.host;
  note('requests', `${request.method} ${request.url} ${host} ${request.httpVersion}`);
  const number = (name) => Number(url.searchParams.get(name));
  switch (url.pathname) {
    case '/echo':
      response.writeHead(200);
      return request.pipe(response);
    case '/headers':
      return response.end(JSON.stringify(request.headers));
    case '/sum': {
      const sum = crypto.createHash('sha256');
      let bytes = 0;
      request.on('data', (data) => { sum.update(data); bytes += data.length; });
      return request.on('end', () => response.end(`${bytes} ${sum.digest('hex')}`));
    }
    case '/limited':
    case '/bytes': {
      let left = number('count');
      const block = Buffer.alloc(65536, 'x');
      response.writeHead(200, url.searchParams.has('length') ? { 'content-length': left } : {});
      const more = () => {
        while (left > 0) {
          const part = block.subarray(0, Math.min(left, block.length));
          left -= part.length;
          if (!response.write(part)) return response.once('drain', more);
        }
        response.end();
      };
      return more();
    }
    case '/events': {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      let count = 0;
      const next = () => {
        response.write(`data: ${count++}\n\n`);
        if (count < 3) setTimeout(next, 150); else response.end();
      };
      return next();
    }
    case '/trailers':
      response.writeHead(200, { 'content-type': 'application/grpc', trailer: 'grpc-status' });
      response.write('message');
      response.addTrailers({ 'grpc-status': '7' });
      return response.end();
    case '/packed':
      response.writeHead(200, { 'content-encoding': 'gzip' });
      return response.end(require('zlib').gzipSync('unpacked'));
    case '/cut':
      response.writeHead(200, { 'content-length': 100 });
      response.write('part');
      return setTimeout(() => request.socket.destroy(), 50);
    case '/cut-unknown':
      // Without a length; its end is that of the chunks, and does not come.
      response.write('part');
      return setTimeout(() => request.socket.destroy(), 50);
    case '/hints':
      response.writeEarlyHints({ link: '</style.css>; rel=preload' });
      return setTimeout(() => response.end('after hints\n'), 50);
    case '/status':
      response.writeHead(number('is'));
      return response.end();
    default:
      return response.end(`this is ${host} by ${request.httpVersion}\n`);
  }
}

// A WebSocket as far as a proxy sees it: bytes both ways after the answer.
function upgrade(request, socket) {
  note('requests', `UPGRADE ${request.url} ${request.headers.host} ${request.headers.upgrade}`);
  const accept = crypto.createHash('sha1');
  accept.update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    `Sec-WebSocket-Accept: ${accept.digest('base64')}\r\n\r\n`);
  socket.pipe(socket);
}

function expect(request, response) {
  if (request.url.startsWith('/refused')) {
    note('requests', `EXPECT ${request.url}`);
    response.writeHead(413);
    return response.end('not wanted');
  }
  note('requests', 'CONTINUE');
  response.writeContinue();
  answer(request, response);
}

const servers = [
  [http.createServer(answer), 80, '93.184.216.34'],
  [http2.createServer(answer), 8080, '93.184.216.34'],
  [http2.createSecureServer({ ...pem('example'), allowHTTP1: true }, answer), 443, '93.184.216.34'],
  [require('https').createServer(pem('example'), answer), 8443, '93.184.216.34'],
  [http2.createSecureServer({ ...pem('wrong'), allowHTTP1: true }, answer), 443, '93.184.216.36'],
  [http2.createSecureServer({ ...pem('late'), allowHTTP1: true }, answer), 443, '93.184.216.37'],
  [http2.createSecureServer({ ...pem('unknown'), allowHTTP1: true }, answer), 443, '93.184.216.38'],
];
let waiting = servers.length;
for (const [server, port, at] of servers) {
  server.on('upgrade', upgrade);
  server.on('checkContinue', expect);
  server.on('error', (error) => note('errors', String(error)));
  server.listen(port, at, () => { if (--waiting === 0) note('listening', 'all'); });
}
