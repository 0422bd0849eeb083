// Says a text in the places that only HTTP/2 has, or has otherwise. Arguments: the text. Prints
// each row and the status of its answer.
const http2 = require('http2');
const text = process.argv[2];

function ask(row, headers, trailers) {
  return new Promise((done) => {
    const session = http2.connect('https://example.com', { rejectUnauthorized: false });
    session.on('error', () => {});
    const head = { ':method': 'POST', ':path': `/v1/record-${row}`, ...headers };
    const request = session.request(head, { waitForTrailers: trailers !== undefined });
    let status = 'none';
    request.on('wantTrailers', () => request.sendTrailers(trailers));
    request.on('response', (answer) => { status = answer[':status']; });
    request.on('error', () => {});
    request.on('close', () => { console.log(row, status); session.close(); done(); });
    request.resume();
    request.end('body');
  });
}

(async () => {
  await ask('header', { 'x-key': text });
  await ask('crumb', { cookie: ['a=b', `c=${text}`] });
  await ask('crumbs', { cookie: [`a=${text.slice(0, 20)}`, text.slice(20)] });
  await ask('path', { ':path': `/v1/record-path/${text}` });
  await ask('authority', { ':authority': `${text}.example.com` });
  await ask('trailer', {}, { 'x-said': text });
  await ask('plain', {}, { 'x-said': 'nothing' });
})();
