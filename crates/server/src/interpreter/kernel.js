// JavaScript and TypeScript kernel of Atoll's code interpreter: runs cells in one process, see
// server.py. Cells are evaluated in V8's REPL mode, by an inspector session of this thread: const,
// let and class may be declared again in a later cell, and `await` works at the top level.
'use strict';
const inspector = require('node:inspector');
const { createRequire } = require('node:module');
const nodeModule = require('node:module');
const net = require('node:net');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const util = require('node:util');
const vm = require('node:vm');

const MAX_PART = 32 << 20;
const HIDDEN_FRAME = /node:inspector|node:vm|node:internal|kernel\.js|evalmachine|new Promise \(<anonymous>\)/;
const DISPLAY = Symbol.for('Jupyter.display');
const stringify = JSON.stringify;
const CODE_TOKEN = /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|\/\/.*|\/\*[\s\S]*?\*\/)|(?<![.\w$])import\s*\(/g;
const IMPORT_LINE = /(?<=^|;)[ \t]*import\s+(?:([^'"();]+?)\s+from\s+)?(['"])([^'"\n]+)\2(?:\s+with\s+\{[^}]*\})?[ \t]*;?/gm;

const socket = new net.Socket({ fd: Number(process.argv[2]), readable: true, writable: true });
const session = new inspector.Session();
session.connect();
let token = '';
let running = null;
let interrupt = () => {};

/** Sends one message to the server. */
function send(message) {
  socket.write(`\n${token} ${stringify(message)}\n`);
}

/** Sends an error. */
function sendError(name, value, traceback) {
  send({ type: 'error', name, value, traceback: traceback || `${name}: ${value}` });
}

/** Sends a MIME bundle; parts that are too large become errors. */
function sendResult(mime, main) {
  const kept = {};
  for (const [kind, value] of Object.entries(mime)) {
    const size = Buffer.byteLength(typeof value === 'string' ? value : stringify(value) ?? '');
    if (size > MAX_PART) {
      sendError('OutputTooLarge', `the result's ${kind} part has ${size} bytes; the limit is ${MAX_PART}`);
    } else {
      kept[kind] = value;
    }
  }
  if (Object.keys(kept).length) send({ type: 'result', mime: kept, main });
}

/** Returns whether a value is a plain object or an array, which JSON can hold. */
function isPlain(value) {
  if (value === null || typeof value !== 'object') return false;
  const prototype = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === Object.prototype || prototype === null;
}

/** Returns a value's representations by MIME type. */
function bundle(value) {
  const custom = value !== null && typeof value === 'object' && value[DISPLAY];
  if (typeof custom === 'function') return custom.call(value);
  const mime = { 'text/plain': typeof value === 'string' ? quote(value) : util.inspect(value) };
  if (isPlain(value)) {
    try {
      mime['application/json'] = JSON.parse(stringify(value));
    } catch {
      // A value with cycles or big integers has only text.
    }
  }
  return mime;
}

/** Quotes a string once; the server strips the quotes. */
function quote(text) {
  return `'${text}'`;
}

/** Imports a module as seen from the working directory. */
function importModule(name, options) {
  const base = path.join(process.cwd(), 'cell.js');
  if (/^\.{0,2}\//.test(name)) return import(pathToFileURL(path.resolve(name)).href, options);
  if (/^[a-z]+:/.test(name) || nodeModule.builtinModules.includes(name)) return import(name, options);
  try {
    return import(pathToFileURL(createRequire(base).resolve(name)).href, options);
  } catch {
    return import(name, options);
  }
}

/** Rewrites import statements and import() calls, which REPL mode lacks. */
function rewriteImports(code) {
  const lines = code.replace(IMPORT_LINE, (whole, clause, _quote, name) => {
    if (clause && /^type\s/.test(clause)) return '';
    const load = `await __atoll_import(${stringify(name)})`;
    return clause ? bindImport(clause.trim(), load) : `${load};`;
  });
  return lines.replace(CODE_TOKEN, (whole, skipped) => skipped ?? '__atoll_import(');
}

/** Turns an import clause into a declaration. */
function bindImport(clause, load) {
  const names = clause.match(/^(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)|\{([^}]*)\})?$/);
  if (!names) return `${load};`;
  const [, main, all, list] = names;
  const members = (list ?? '').split(',').map((part) => part.trim()).filter((part) => part && !/^type\s/.test(part));
  const pattern = [...(main ? [`default: ${main}`] : []), ...members.map((part) => part.replace(/\s+as\s+/, ': '))];
  return all && !main ? `const ${all} = ${load};` : `const { ${pattern.join(', ')} } = ${load};${all ? ` const ${all} = ${load};` : ''}`;
}

/** Strips the types of TypeScript code. */
function stripTypes(code) {
  if (nodeModule.stripTypeScriptTypes) {
    try {
      return nodeModule.stripTypeScriptTypes(code, { mode: 'transform' });
    } catch (error) {
      throw Object.assign(new SyntaxError(error.message), { stack: `SyntaxError: ${error.message}` });
    }
  }
  let typescript;
  try {
    typescript = createRequire(path.join(process.cwd(), 'cell.js'))('typescript');
  } catch {
    const error = new Error(`cannot run TypeScript: Node ${process.version} cannot strip types. Use Node 22.13 or later, or install the package typescript`);
    throw Object.assign(error, { name: 'LanguageNotAvailable', stack: `LanguageNotAvailable: ${error.message}` });
  }
  return typescript.transpile(code, { target: 'esnext', module: 'esnext', verbatimModuleSyntax: true });
}

/** Posts to the inspector session, interruptible by SIGINT while code runs. */
function post(method, parameters) {
  return new Promise((resolve, reject) => {
    globalThis.__atoll_post = () => session.post(method, parameters, (error, reply) => (error ? reject(error) : resolve(reply)));
    vm.runInThisContext('__atoll_post()', { breakOnSigint: true });
  });
}

/** Returns the value of a remote object of this thread. */
async function fetchValue(remote) {
  if (remote.type === 'undefined') return undefined;
  if (remote.subtype === 'null') return null;
  if (!remote.objectId && remote.unserializableValue === undefined) return remote.value;
  const { objectId, unserializableValue } = remote;
  let value;
  globalThis.__atoll_value = (item) => { value = item; };
  const target = (await post('Runtime.evaluate', { expression: 'globalThis' })).result.objectId;
  await post('Runtime.callFunctionOn', {
    objectId: target, functionDeclaration: '(item) => __atoll_value(item)', arguments: [{ objectId, unserializableValue }],
  });
  return value;
}

/** Evaluates a cell; returns its last value, or throws what it threw. */
async function evaluate(code) {
  const reply = await Promise.race([
    post('Runtime.evaluate', { expression: code, replMode: true, objectGroup: 'cell' }),
    new Promise((_, reject) => { interrupt = () => reject(interruptError()); }),
  ]);
  const failure = reply.exceptionDetails;
  const value = await fetchValue(failure?.exception ?? reply.result);
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  if (failure) throw value;
  return value;
}

/** Returns the error of an interrupted cell. */
function interruptError() {
  const error = new Error('the cell was interrupted');
  return Object.assign(error, { name: 'KeyboardInterrupt', stack: 'KeyboardInterrupt: the cell was interrupted' });
}

/** Returns an error's stack without the kernel's own frames. */
function cleanStack(error, name) {
  const lines = String(error.stack ?? error).split('\n');
  return lines.filter((line) => !/^\s+at /.test(line) || !HIDDEN_FRAME.test(line))
    .map((line) => line.replace(/<anonymous>:(\d+:\d+)/, `${name}:$1`)).join('\n');
}

/** Reports what a cell threw. */
function report(error, name) {
  if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') error = interruptError();
  if (util.types.isNativeError(error) || error instanceof Error) {
    sendError(String(error.name), String(error.message), cleanStack(error, name));
  } else {
    sendError('UncaughtException', util.inspect(error), `Uncaught ${util.inspect(error)}`);
  }
}

/** Sets environment variables; returns what undoes it. */
function setEnvironment(changes) {
  const before = {};
  for (const [name, value] of Object.entries(changes)) {
    before[name] = process.env[name] ?? null;
    if (value === null) delete process.env[name];
    else process.env[name] = value;
  }
  return before;
}

/** Runs one cell. */
async function run(request) {
  const name = `Cell In[${request.id}]`;
  const before = setEnvironment(request.env);
  running = name;
  try {
    const code = request.typescript ? stripTypes(request.code) : request.code;
    const value = await evaluate(/\bimport\b/.test(code) ? rewriteImports(code) : code);
    if (value !== undefined) {
      globalThis.__atoll_show = () => sendResult(bundle(value), true);
      vm.runInThisContext('__atoll_show()', { breakOnSigint: true });
    }
  } catch (error) {
    try {
      report(error, name);
    } catch {
      sendError('Error', 'the error could not be shown');
    }
  }
  running = null;
  interrupt = () => {};
  setEnvironment(before);
  send({ type: 'done', id: request.id });
}

/** Reports an error that a callback of a cell threw. */
function reportStray(error) {
  process.stderr.write(`Uncaught ${error instanceof Error ? cleanStack(error, running ?? 'Cell') : util.inspect(error)}\n`);
}

/** Defines what cells find in their global scope. */
function defineGlobals() {
  const define = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  define('require', createRequire(path.join(process.cwd(), 'cell.js')));
  define('module', { exports: {} });
  define('exports', globalThis.module.exports);
  define('__atoll_import', importModule);
  define('display', (value) => sendResult(bundle(value), false));
  for (const name of ['__atoll_post', '__atoll_value', '__atoll_show']) define(name, undefined);
  process.exit = (code) => {
    const error = new Error(String(code ?? 0));
    throw Object.assign(error, { name: 'SystemExit', stack: `SystemExit: ${code ?? 0}` });
  };
}

/** Takes the server's token and working directory. */
function begin(hello) {
  token = hello.token;
  process.chdir(hello.cwd);
  defineGlobals();
}

/** Runs requests until the server closes the socket. */
function serve() {
  let buffered = '';
  const requests = [];
  const pump = async () => {
    while (requests.length) {
      await run(requests[0]);
      requests.shift();
    }
  };
  socket.setEncoding('utf8');
  socket.on('data', (data) => {
    const lines = (buffered + data).split('\n');
    buffered = lines.pop();
    for (const line of lines.filter(Boolean).map((text) => JSON.parse(text))) {
      if (line.token) begin(line);
      else if (requests.push(line) === 1) pump();
    }
  });
  for (const event of ['end', 'error']) socket.on(event, () => process.kill(-process.pid, 'SIGKILL'));
  process.on('SIGINT', () => interrupt());
  process.on('uncaughtException', reportStray);
  process.on('unhandledRejection', reportStray);
  process.removeAllListeners('warning');
}

process.argv.length = 1;
serve();
