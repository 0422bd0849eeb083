// Many requests at once by one connection of HTTP/2; what came of each limit, a line each.
import http2 from 'node:http2';

const session = http2.connect('https://example.com');
session.on('error', (error) => console.log('the connection ended', error.message));

// One request: its status, how many bytes came, and whether it broke off.
function ask(path, body, headers = {}) {
  const stream = session.request({ ':path': path, ':method': body === undefined ? 'GET' : 'POST', ...headers });
  const came = { status: 0, bytes: 0, broke: false };
  stream.on('response', (told) => { came.status = told[':status']; });
  stream.on('data', (data) => { came.bytes += data.length; });
  stream.on('error', () => { came.broke = true; });
  stream.on('aborted', () => { came.broke = true; });
  came.head = new Promise((done) => { stream.on('response', done); stream.on('close', done); });
  came.over = new Promise((done) => stream.on('close', () => done(came)));
  came.stream = stream;
  if (body !== undefined && body !== null) stream.end(Buffer.alloc(body, 'x'));
  return came;
}
const many = (count, one) => Promise.all(Array.from({ length: count }, () => one().over));
const of = (all, status) => all.filter((one) => one.status === status && !one.broke).length;

let all = await many(40, () => ask('/requests/x'));
console.log('requests', of(all, 200), of(all, 429));

// Streams that stay open take a place each.
const open = Array.from({ length: 10 }, () => ask('/connections/echo', null));
await Promise.all(open.map((one) => one.head));
const count = (status) => open.filter((one) => one.status === status).length;
console.log('connections', count(200), count(429));
for (const one of open) one.stream.end();
await Promise.all(open.map((one) => one.over));
let last;
for (let tried = 0; tried < 600 && last !== 200; tried++) {
  last = (await ask('/connections/x').over).status;
  if (last !== 200) await new Promise((done) => setTimeout(done, 50));
}
console.log('and then', last);

const one = await ask('/upload/sum', 50000).over;
all = await many(10, () => ask('/upload/sum', 50000));
console.log('upload', one.status, of(all, 200) === 10 ? 'all' : of(all, 200) <= 3 ? 'few' : 'too many');

const first = await ask('/download/bytes?count=50000').over;
all = await many(10, () => ask('/download/bytes?count=50000'));
const whole = all.filter((one) => one.status === 200 && !one.broke);
const bytes = first.bytes + all.filter((one) => one.status === 200).reduce((sum, one) => sum + one.bytes, 0);
console.log('download', first.bytes, whole.every((one) => one.bytes === 50000), whole.length === 10 ? 'all' : bytes <= 200 * 1024 ? 'few' : 'too many');

const told = ask('/body/sum', 20000, { 'content-length': 20000 });
const untold = ask('/body/sum', 20000);
const small = ask('/body/sum', 8000);
await Promise.all([told.over, untold.over, small.over]);
console.log('body', told.status, untold.status === 200 && !untold.broke, small.status);

const long = ask('/duration/echo', null);
await long.head;
const patience = setTimeout(() => long.stream.end(), Number(process.argv[2]));
await long.over;
clearTimeout(patience);
console.log('duration', long.broke, (await ask('/duration/x').over).status);

const began = Date.now();
all = await many(2, () => ask('/rate/bytes?count=50000'));
console.log('rate', all.map((one) => one.bytes).join(' '), Date.now() - began >= 1500 ? 'slowly' : 'at once');
session.close();
