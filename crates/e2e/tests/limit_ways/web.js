// Servers of example.com by HTTP/1.1 and HTTP/2, plain and within TLS. What they do is the
// last part of the path; what reaches them they write down.
const fs = require('fs'), http = require('http'), http2 = require('http2'), crypto = require('crypto');
const note = (file, text) => fs.appendFileSync(file, text + '\n');
const tls = { key: fs.readFileSync('example.key'), cert: fs.readFileSync('example.pem') };

function answer(request, response) {
  const url = new URL(request.url, 'http://x');
  note('requests', `${request.method} ${url.pathname} ${request.httpVersion}`);
  switch (url.pathname.split('/').pop()) {
    case 'echo':
      response.writeHead(200);
      return request.pipe(response);
    case 'sum': {
      let bytes = 0;
      request.on('data', (data) => { bytes += data.length; });
      // What is taken back ends as well.
      return request.on('end', () => { if (request.stream?.aborted || request.stream?.rstCode) return; note('whole', `${url.pathname} ${bytes}`); response.end(String(bytes)); });
    }
    case 'bytes':
      response.writeHead(200);
      return response.end(Buffer.alloc(Number(url.searchParams.get('count')), 'x'));
    default:
      return response.end('here');
  }
}

// A WebSocket as far as a proxy sees it: bytes both ways after the answer.
function upgrade(request, socket) {
  note('requests', `UPGRADE ${request.url}`);
  const accept = crypto.createHash('sha1');
  accept.update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
    `Sec-WebSocket-Accept: ${accept.digest('base64')}\r\n\r\n`);
  socket.on('error', () => {});
  socket.pipe(socket);
}

const servers = [[http.createServer(answer), 80], [http2.createSecureServer({ ...tls, allowHTTP1: true }, answer), 443]];
let waiting = servers.length;
for (const [server, port] of servers) {
  server.on('upgrade', upgrade);
  server.on('sessionError', () => {});
  server.listen(port, '93.184.216.34', () => { if (--waiting === 0) note('listening', 'all'); });
}
