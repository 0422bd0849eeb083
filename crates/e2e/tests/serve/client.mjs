// Drives an unmodified E2B SDK (npm `e2b`) against a running server.
//
// Reads E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY, and E2B_MODULES: the directory whose
// node_modules holds the SDK. Arguments name checks; none runs all, in order. Prints `ok NAME`
// or `failed NAME: why` for each, and exits 1 if one failed.
import assert from 'node:assert/strict'
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'

const {
  AuthenticationError, CommandExitError, FileNotFoundError, InvalidArgumentError,
  NotFoundError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError,
} = createRequire(resolve(process.env.E2B_MODULES ?? '.') + '/')('e2b')

const HOME = '/home/user'
const NO_PID = 4_000_000
const WRONG_KEY = 'e2b_' + '0'.repeat(40)
const ODD = 'a b=c"d\'$e\n'
const CHECKS = {}

/** Makes a sandbox for the function, and kills it after. */
async function sandbox(options, use) {
  const box = await Sandbox.create({ timeoutMs: 120_000, ...options })
  try {
    await use(box)
  } catch (error) {
    await box.kill().catch(() => {})
    throw error
  }
  await box.kill()
}

/** Defines a check that has a sandbox of its own. */
function check(name, use, options = {}) {
  CHECKS[name] = () => sandbox(options, use)
}

function equal(got, want, what) {
  assert(isDeepStrictEqual(got, want), `${what} is ${shortened(got)}, not ${shortened(want)}`)
}

function shortened(value) {
  const text = JSON.stringify(value) ?? String(value)
  return text.length < 200 ? text : `${text.slice(0, 200)}… (${text.length} characters)`
}

/** Awaits `promise`, which must reject with `kind`; returns the error. */
async function raises(kind, promise, what) {
  let got
  try {
    got = await promise
  } catch (error) {
    if (error instanceof kind) return error
    throw error
  }
  assert.fail(`${what} gives ${shortened(got)}, not ${kind.name}`)
}

/** Waits until `condition` holds. */
async function poll(condition, what, seconds = 15) {
  const end = Date.now() + seconds * 1000
  while (!(await condition())) {
    assert(Date.now() < end, `${what}: not within ${seconds} s`)
    await sleep(100)
  }
}

const sha256 = (data) => createHash('sha256').update(data).digest('hex')

/** Waits until no process in the sandbox has this id. */
async function gone(box, pid, what) {
  const command = `if kill -0 ${pid} 2>/dev/null; then echo there; else echo gone; fi`
  await poll(async () => (await box.commands.run(command)).stdout === 'gone\n', what)
}

check('create_run', async (box) => {
  assert.match(box.sandboxId, /^i[0-9a-z]{20}$/)
  const fields = ({ stdout, stderr, exitCode, error }) => [stdout, stderr, exitCode, error]
  const got = fields(await box.commands.run('echo hello'))
  equal(got, ['hello\n', '', 0, undefined], 'result of echo')
  const failing = box.commands.run('echo out; echo err >&2; exit 3')
  const failed = fields(await raises(CommandExitError, failing, 'exit 3'))
  equal(failed, ['out\n', 'err\n', 3, 'exit status 3'], 'result of exit 3')
})

check('environment', async (box) => {
  const run = async (command, options) => (await box.commands.run(command, options)).stdout
  equal(await run('printf %s "$GREETING"'), 'hello', 'variable of the sandbox')
  equal(await run('printf %s "$ODD"'), ODD, 'variable with odd characters')
  const own = { envs: { GREETING: 'other', MORE: '1' } }
  const both = 'printf %s "$GREETING$MORE"'
  equal(await run(both, own), 'other1', 'variables of the command')
  equal(await run(both), 'hello', 'variables of the next command')
  equal(await run('whoami'), 'user\n', 'user')
  equal(await run('pwd'), `${HOME}\n`, 'default directory')
  equal(await run('pwd', { cwd: '/tmp' }), '/tmp\n', 'directory of the command')
  for (const [what, kind, options] of [
    ['/no/such', InvalidArgumentError, { cwd: '/no/such' }],
    ['ghost', AuthenticationError, { user: 'ghost' }],
  ]) {
    const { message } = await raises(kind, run('true', options), `run with ${what}`)
    assert(message.includes(what), `error does not name ${what}: ${message}`)
  }
}, { envs: { GREETING: 'hello', ODD } })

check('stdin', async (box) => {
  const timeoutMs = 20_000
  equal((await box.commands.run('cat', { timeoutMs })).stdout, '', 'output of cat without stdin')
  const cat = await box.commands.run('cat', { background: true, stdin: true, timeoutMs })
  await box.commands.sendStdin(cat.pid, 'one ä\n')
  await poll(() => cat.stdout === 'one ä\n', 'first line')
  await cat.sendStdin(new TextEncoder().encode('two\n'))
  await cat.closeStdin()
  const { stdout, exitCode } = await cat.wait()
  equal([stdout, exitCode], ['one ä\ntwo\n', 0], 'result of cat')
  await raises(NotFoundError, box.commands.sendStdin(NO_PID, 'x'), 'stdin of an unknown pid')
})

check('background', async (box) => {
  const command = 'read line; echo got $line; exec sleep 600'
  const first = await box.commands.run(command, { background: true, stdin: true })
  const listed = (await box.commands.list()).filter(({ pid }) => pid === first.pid)
  const want = [['/bin/bash', ['-l', '-c', command]]]
  equal(listed.map(({ cmd, args }) => [cmd, args]), want, 'entry of the list')
  equal((await box.commands.run(`kill -0 ${first.pid}`)).exitCode, 0, 'kill -0')
  await raises(CommandExitError, box.commands.run(`kill -0 ${NO_PID}`), 'kill -0')
  const second = await (await Sandbox.connect(box.sandboxId)).commands.connect(first.pid)
  equal(second.pid, first.pid, 'pid of the second handle')
  await first.sendStdin('later\n')
  await poll(() => second.stdout === 'got later\n', 'output for the second handle')
  await second.disconnect()
  await sleep(300)
  equal((await box.commands.run(`kill -0 ${first.pid}`)).exitCode, 0, 'after disconnect')
  equal(await first.kill(), true, 'kill of a running command')
  const ended = await raises(CommandExitError, first.wait(), 'wait for a killed command')
  equal([ended.exitCode, ended.stdout], [-1, 'got later\n'], 'result of a killed command')
  await gone(box, first.pid, 'end of a killed command')
  equal(await box.commands.kill(NO_PID), false, 'kill of an unknown pid')
  await raises(NotFoundError, box.commands.connect(NO_PID), 'connect to an unknown pid')
})

check('streams', async (box) => {
  const out = [], err = []
  await box.commands.run('for i in 1 2 3; do echo ö$i; echo err$i >&2; sleep 0.05; done', {
    onStdout: (text) => void out.push(text), onStderr: (text) => void err.push(text),
  })
  equal(out.join(''), 'ö1\nö2\nö3\n', 'stdout of the callbacks')
  equal(err.join(''), 'err1\nerr2\nerr3\n', 'stderr of the callbacks')
  assert(out.length > 1, 'output comes all at once')
  const size = 5 << 20
  const { stdout, stderr } = await box.commands.run(
    `head -c ${(size * 3) / 4} /dev/urandom | base64 -w 0 > /tmp/large` +
      ' && sha256sum /tmp/large >&2 && cat /tmp/large')
  equal(stdout.length, size, 'length of a large output')
  equal(sha256(stdout), stderr.split(' ')[0], 'digest of a large output')
})

check('command_timeout', async (box) => {
  const start = Date.now()
  await raises(TimeoutError, box.commands.run('sleep 30', { timeoutMs: 1000 }), 'timeout')
  const took = Date.now() - start
  assert(took > 900 && took < 10_000, `timeout of 1 s comes after ${took} ms`)
  const options = { background: true, timeoutMs: 1000 }
  const late = await box.commands.run('exec sleep 600', options)
  await raises(TimeoutError, late.wait(), 'timeout in the background')
  await gone(box, late.pid, 'end of a command at its timeout')
  equal((await box.commands.run('sleep 1; echo on')).stdout, 'on\n', 'later command')
})

check('pty', async (box) => {
  let seen = ''
  const shell = await box.pty.create({
    rows: 24, cols: 80, cwd: '/tmp', envs: { MARK: 'here' },
    onData: (data) => void (seen += Buffer.from(data).toString('latin1')),
  })
  const send = async (line, wanted) => {
    await box.pty.sendInput(shell.pid, new TextEncoder().encode(`${line}\n`))
    await poll(() => seen.includes(wanted), `output ${wanted}`)
  }
  assert((await box.commands.list()).some(({ pid }) => pid === shell.pid), 'not in the list')
  await send('stty size', '24 80')
  await box.pty.resize(shell.pid, { rows: 40, cols: 100 })
  await send('stty size', '40 100')
  await send('echo "<$PWD $MARK $TERM>"', '</tmp here xterm-256color>')
  await send('exit 7', '')
  equal((await raises(CommandExitError, shell.wait(), 'exit 7')).exitCode, 7, 'exit code')

  const killed = await box.pty.create({ rows: 24, cols: 80, onData: () => {} })
  equal(await box.pty.kill(killed.pid), true, 'kill of a shell')
  equal((await raises(CommandExitError, killed.wait(), 'killed')).exitCode, -1, 'exit code')
  equal(await box.pty.kill(NO_PID), false, 'kill of an unknown pid')
})

check('files', async (box) => {
  for (const part of [files_content, files_tree, files_info, files_errors, files_large]) {
    await part(box)
  }
})

async function files_content({ files }) {
  const { name, type, path } = await files.write('hello.txt', 'grüße\n')
  equal([name, type, path], ['hello.txt', 'file', `${HOME}/hello.txt`], 'answer to a write')
  equal(await files.read('hello.txt'), 'grüße\n', 'text by a relative path')
  await files.write('hello.txt', 'x')
  equal(await files.read(`${HOME}/hello.txt`), 'x', 'text after a shorter write')
  await files.write('empty', '')
  equal(await files.read('empty'), '', 'text of an empty file')
  const every = Uint8Array.from({ length: 768 }, (_, i) => i)
  await files.write('/tmp/bytes', every.buffer)
  equal(await files.read('/tmp/bytes', { format: 'bytes' }), every, 'bytes')
  const odd = `${HOME}/new/nested/a b+c&d%20é;'.txt`
  equal((await files.write(odd, 'odd')).path, odd, 'path with odd characters')
  equal(await files.read(odd), 'odd', 'text by a path with odd characters')
  const paths = [`${HOME}/many/one.txt`, `${HOME}/many/two/two é.txt`]
  const many = await files.write(paths.map((path, i) => ({ path, data: `${i}` })))
  equal(many.map(({ path }) => path), paths, 'paths of a write of many')
  equal([await files.read(paths[0]), await files.read(paths[1])], ['0', '1'], 'texts of many')
}

async function files_tree({ files }) {
  const top = `${HOME}/tree`
  equal(await files.makeDir(`${top}/a/b`), true, 'makeDir')
  equal(await files.makeDir(`${top}/a/b`), false, 'makeDir of what is there')
  await files.write(`${top}/a/b/deep`, '')
  await files.write(`${top}/f`, '12345')
  const list = async (options) =>
    (await files.list(top, options)).map(({ path, type }) => [path, type])
  const a = [`${top}/a`, 'dir'], b = [`${top}/a/b`, 'dir'], f = [`${top}/f`, 'file']
  equal(await list(), [a, f], 'list')
  equal(await list({ depth: 2 }), [a, b, f], 'list of depth 2')
  const { name, path, size } = await files.rename(f[0], `${top}/g`)
  equal([name, path, size], ['g', `${top}/g`, 5], 'answer to a rename')
  equal([await files.exists(f[0]), await files.exists(path)], [false, true], 'exists')
  await files.remove(path)
  await files.remove(a[0])
  equal(await list(), [], 'list after removals')
  await files.remove(`${top}/no`)
}

async function files_info({ files, commands }) {
  const info = async (of) => {
    const { name, path, type, size, mode, permissions, owner } = await files.getInfo(of)
    return [name, path, type, type === 'dir' ? 0 : size, mode, permissions, owner]
  }
  await files.write('info.txt', '12345')
  await files.makeDir('directory')
  const file = ['info.txt', `${HOME}/info.txt`, 'file', 5, 0o644, '-rw-r--r--', 'user']
  const directory = ['directory', `${HOME}/directory`, 'dir', 0, 0o755, 'drwxr-xr-x', 'user']
  equal(await info('info.txt'), file, 'information on a file')
  equal(await info('directory'), directory, 'information on a directory')
  const seconds = Number((await commands.run('stat -c %Y info.txt')).stdout)
  const { modifiedTime, symlinkTarget } = await files.getInfo('info.txt')
  const got = [Math.floor(modifiedTime / 1000), symlinkTarget]
  equal(got, [seconds, undefined], 'time of the last change, target')
  await commands.run('ln -s info.txt link')
  const link = await files.getInfo('link')
  const want = [`${HOME}/link`, 'file', `${HOME}/info.txt`]
  equal([link.path, link.type, link.symlinkTarget], want, 'information on a symbolic link')
}

async function files_errors({ files }) {
  await files.write('plain', '')
  for (const [what, kind, call] of [
    ['read of a missing file', FileNotFoundError, () => files.read('missing')],
    ['read of a directory', InvalidArgumentError, () => files.read('/tmp')],
    ['information on a missing file', FileNotFoundError, () => files.getInfo('missing')],
    ['list of a missing directory', FileNotFoundError, () => files.list('missing')],
    ['list of a file', InvalidArgumentError, () => files.list('plain')],
    ['rename of a missing file', FileNotFoundError, () => files.rename('missing', 'to')],
    ['makeDir of a file', InvalidArgumentError, () => files.makeDir('plain')],
    ['write to a directory', InvalidArgumentError, () => files.write('/tmp', 'x')],
  ]) await raises(kind, call(), what)
}

async function files_large({ files, commands }) {
  const data = randomBytes(20 << 20)
  const blob = new Blob([data])
  for (const [how, body, options] of [
    ['compressed', blob, { gzip: true }], ['as a stream', blob.stream(), {}], ['at once', blob, {}],
  ]) {
    await files.write('large', '')
    await files.write('large', body, options)
    const { stdout } = await commands.run('sha256sum large')
    equal(stdout.split(' ')[0], sha256(data), `digest inside of 20 MiB sent ${how}`)
  }
  const bytes = await files.read('large', { format: 'bytes' })
  equal(sha256(bytes), sha256(data), 'digest of 20 MiB read')
  const hash = createHash('sha256')
  for await (const chunk of await files.read('large', { format: 'stream' })) hash.update(chunk)
  equal(hash.digest('hex'), sha256(data), 'digest of 20 MiB read as a stream')
}

check('signed_urls', async (box) => {
  const path = `${HOME}/signed é.txt`
  await box.files.write(path, 'secret')
  const status = async (url, options) => (await fetch(url, options)).status
  const post = (url) => {
    const body = new FormData()
    body.append('file', new Blob(['sent']), 'any.txt')
    return status(url, { method: 'POST', body })
  }
  const lasting = { useSignatureExpiration: 300 }, past = { useSignatureExpiration: -10 }
  for (const options of [{}, { user: 'user' }, lasting]) {
    const answer = await fetch(await box.downloadUrl(path, options))
    equal([answer.status, await answer.text()], [200, 'secret'], 'signed download')
  }
  equal(await post(await box.uploadUrl(`${HOME}/up/form.txt`)), 200, 'upload of a form')
  equal(await box.files.read('up/form.txt'), 'sent', 'text of an uploaded form')
  const expired = await fetch(await box.downloadUrl(path, past))
  const want = { code: 401, message: 'signature is already expired' }
  equal(expired.status, 401, 'status of an expired download')
  equal(await expired.json(), want, 'answer to an expired download')
  const good = await box.downloadUrl(path, lasting)
  for (const [name, value] of [
    ['signature', 'v1_' + 'A'.repeat(43)], ['path', '/etc/passwd'], ['username', 'root'],
    ['signature_expiration', `${Math.floor(Date.now() / 1000) + 9000}`],
  ]) {
    const url = new URL(good)
    url.searchParams.set(name, value)
    equal(await status(url), 401, `status of a download with another ${name}`)
  }
  equal(await status(await box.uploadUrl(path)), 401, 'download with an upload URL')
  equal(await post(await box.uploadUrl(path, past)), 401, 'expired upload')
  equal(await post(good), 401, 'upload with a download URL')
})

check('watch', async ({ commands, files }) => {
  await files.makeDir('top/sub')
  const flat = [], deep = []
  const note = (to) => ({ name, type }) => void to.push(`${type} ${name}`)
  const handles = [await files.watchDir('top', note(flat)),
    await files.watchDir('top', note(deep), { recursive: true })]
  const see = (events, ...wanted) =>
    poll(() => wanted.every((event) => events.includes(event)), `events ${wanted}`)
  await files.write('top/sub/inner', '1')
  await files.write('top/file', '1')
  await see(deep, 'create sub/inner', 'write sub/inner')
  await see(flat, 'create file', 'write file')
  equal(flat.filter((event) => event.includes('inner')), [], 'events of a file below')
  await commands.run('cd top && mv file moved && echo 2 >> moved && rm moved')
  await see(flat, 'rename file', 'create moved', 'write moved', 'remove moved')
  await files.makeDir('top/late')
  await see(deep, 'create late')
  await files.write('top/late/new', '1')
  await see(deep, 'write late/new')
  await files.remove('top/sub/inner')
  await see(deep, 'remove sub/inner')
  for (const handle of handles) await handle.stop()
  const before = flat.length
  await files.write('top/after', '1')
  await sleep(300)
  equal(flat.length, before, 'number of events after stop')
  await raises(FileNotFoundError, files.watchDir('no', () => {}), 'watch of nothing')
  await files.write('file', '')
  await raises(InvalidArgumentError, files.watchDir('file', () => {}), 'watch of a file')
})

CHECKS.life_cycle = async () => {
  const tag = randomUUID()
  const metadata = { 'a b': `c&d=${tag}`, 'ä+%': '1/2' }
  await sandbox({ metadata }, async (box) => {
    await life_cycle_info(box, metadata)
    await life_cycle_list(tag)
    equal([await box.isRunning(), await box.kill()], [true, true], 'running, killed')
    equal([await box.isRunning(), await box.kill()], [false, false], 'running, killed again')
    for (const [what, kind, call] of [
      ['getInfo', SandboxNotFoundError, () => box.getInfo()],
      ['connect', SandboxNotFoundError, () => Sandbox.connect(box.sandboxId)],
      ['setTimeout', SandboxNotFoundError, () => box.setTimeout(60_000)],
      ['command', SandboxNotFoundError, () => box.commands.run('true')],
      ['read', TimeoutError, () => box.files.read('x')],
    ]) await raises(kind, call(), `${what} of a killed sandbox`)
    equal(await listed({ query: { metadata } }), [], 'list after the kill')
  })
  await sandbox({ timeoutMs: 2000 }, async (brief) => {
    equal(await brief.isRunning(), true, 'running at first')
    await poll(async () => !(await brief.isRunning()), 'end of a sandbox of 2 s')
    await raises(SandboxNotFoundError, brief.getInfo(), 'getInfo after the timeout')
  })
}

async function life_cycle_info(box, metadata) {
  const second = await Sandbox.connect(box.sandboxId)
  await second.files.write('shared', 'by the second')
  equal((await box.commands.run('cat shared')).stdout, 'by the second', 'text of the second object')
  const info = await second.getInfo()
  const got = [info.sandboxId, info.metadata, info.state, info.envdVersion]
  equal(got, [box.sandboxId, metadata, 'running', '0.6.13'], 'information')
  const left = async () => ((await box.getInfo()).endAt - Date.now()) / 1000
  for (const seconds of [3000, 300]) {
    await box.setTimeout(seconds * 1000)
    assert(Math.abs((await left()) - seconds) < 60, `${await left()} s left, not ${seconds}`)
  }
  await Sandbox.connect(box.sandboxId, { timeoutMs: 10_000 })
  assert((await left()) > 200, `connect shortens the timeout to ${await left()} s`)
  equal(await listed({ query: { metadata } }), [box.sandboxId], 'list by metadata')
  const other = { ...metadata, 'a b': 'c' }
  equal(await listed({ query: { metadata: other } }), [], 'list by other metadata')
  equal(await listed({ query: { metadata, state: ['paused'] } }), [], 'list of paused sandboxes')
}

async function life_cycle_list(tag) {
  const query = { metadata: { group: tag } }
  await sandbox(query, (a) => sandbox(query, (b) => sandbox(query, async (c) => {
    const ids = [a, b, c].map(({ sandboxId }) => sandboxId)
    equal(await listed({ query, limit: 1, order: 'asc' }), ids, 'list by pages, oldest first')
    equal(await listed({ query, limit: 1 }), ids.reverse(), 'list by pages of one')
    equal(await listed({ query, limit: 2 }), ids, 'list by pages of two')
  })))
}

/** Returns the ids of all pages of a list. */
async function listed(options) {
  const pages = Sandbox.list(options)
  const ids = []
  while (pages.hasNext) {
    const page = await pages.nextItems()
    assert(page.length <= (options.limit ?? 100), `${page.length} on a page`)
    ids.push(...page.map(({ sandboxId }) => sandboxId))
  }
  return ids
}

check('kill_during_command', async (box) => {
  let ready = false
  const onStdout = () => void (ready = true)
  const ended = box.commands.run('echo ready; exec sleep 50', { onStdout })
    .then(() => 'no error', (error) => error)
  await poll(() => ready, 'start of the command')
  equal(await box.kill(), true, 'kill')
  const error = await Promise.race([ended, sleep(5000, 'nothing within 5 s')])
  assert(error instanceof TimeoutError, `command ends with ${error}`)
  assert.match(error.message, /was killed or reached its end of life/)
  equal(await box.isRunning(), false, 'running')
})

CHECKS.parallel = async () => {
  const ids = new Set()
  await Promise.all(Array.from({ length: 8 }, (_, number) => sandbox({}, async (box) => {
    ids.add(box.sandboxId)
    equal((await box.commands.run(`echo ${number}`)).stdout, `${number}\n`, 'output')
  })))
  equal(ids.size, 8, 'number of ids')
}

check('wrong_key', async (box) => {
  const wrong = { apiKey: WRONG_KEY }
  for (const [what, call] of [
    ['create', () => Sandbox.create({ timeoutMs: 10_000, ...wrong })],
    ['list', () => Sandbox.list(wrong).nextItems()],
    ['connect', () => Sandbox.connect(box.sandboxId, wrong)],
    ['kill', () => Sandbox.kill(box.sandboxId, wrong)],
  ]) await raises(AuthenticationError, call(), `${what} with a wrong key`)
  equal(await box.isRunning(), true, 'running after a kill with a wrong key')
})

CHECKS.refused_fields = async () => {
  for (const options of [
    { mcp: { time: {} } },
    { iam: { tokens: { t: { audience: 'a', tokenType: 'JWT-SVID' } } } },
    { volumeMounts: { '/mnt': 'no-such-volume' } },
    { template: 'no-such-template' },
  ]) {
    const [what] = Object.keys(options)
    const made = sandbox({ timeoutMs: 10_000, ...options }, () => {})
    const error = await raises(SandboxError, made, `create with ${what}`)
    console.error(`refused_fields: ${what}: ${error.message}`)
    const { statusCode } = error
    assert(statusCode >= 400 && statusCode < 500, `${what}: status ${statusCode}: ${error}`)
  }
  await sandbox({}, async (box) => {
    equal((await box.commands.run('echo on')).stdout, 'on\n', 'command after refusals')
  })
}

const names = process.argv.slice(2)
const unknown = names.filter((name) => !Object.hasOwn(CHECKS, name))
if (unknown.length > 0) {
  console.error(`no check is called ${unknown}; there are ${Object.keys(CHECKS)}`)
  process.exit(1)
}
for (const name of names.length > 0 ? names : Object.keys(CHECKS)) {
  try {
    await CHECKS[name]()
    console.log(`ok ${name}`)
  } catch (error) {
    process.exitCode = 1
    console.error(error)
    const why = error.cause ? `${error}: ${error.cause}` : `${error}`
    console.log(`failed ${name}: ${why.replace(/\s+/g, ' ')}`)
  }
}
process.exit()
