// Drives the code tool of LibreChat's agents (npm `@librechat/agents`) against a server, without a
// language model; files go there and back by the requests of LibreChat's own server.
//
// Reads NODE_MODULES, CODE_URL, CODE_KEY, OTHER_KEY, a key of another tenant, and KEYS, a directory
// with keys that `librechat.mjs keys DIRECTORY` has made. Prints `ok NAME` or `failed NAME: why` for
// each check; exits 1 if one failed.

import assert from "node:assert/strict";
import { createPrivateKey, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const ID = "lc-codeapi";
if (process.argv[2] === "keys") {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const one = { ...publicKey.export({ format: "jwk" }), kid: ID, alg: "EdDSA", use: "sig" };
  writeFileSync(`${process.argv[3]}/public.json`, JSON.stringify({ keys: [one] }));
  writeFileSync(`${process.argv[3]}/private.json`, JSON.stringify(privateKey.export({ format: "jwk" })));
  process.exit(0);
}

const { CODE_URL, CODE_KEY, OTHER_KEY, NODE_MODULES, KEYS } = process.env;
process.env.LIBRECHAT_CODE_BASEURL = CODE_URL;
const agents = pathToFileURL(`${NODE_MODULES}/@librechat/agents/dist/esm/tools/CodeExecutor.mjs`);
const { createCodeExecutionTool } = await import(agents);

// A token as LibreChat's server makes one for each user (`CODEAPI_JWT_…`).
function token(changes = {}) {
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: "https://chat.example.com", aud: "atoll", sub: "user-1", iat: now, nbf: now, exp: now + 300, jti: randomUUID(), tenant_id: "legacy", role: "USER", principal_source: "librechat_jwt", ...changes };
  const text = [{ alg: "EdDSA", typ: "JWT", kid: ID }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  const key = createPrivateKey({ key: JSON.parse(readFileSync(`${KEYS}/private.json`)), format: "jwk" });
  return `${text}.${sign(null, Buffer.from(text), key).toString("base64url")}`;
}

async function run(lang, code, { args, files, key = CODE_KEY, auth, ...more } = {}) {
  const tool = createCodeExecutionTool({ authHeaders: auth ?? { "X-API-Key": key }, ...more });
  const call = { name: "execute_code", id: "1", type: "tool_call", args: { lang, code, ...(args && { args }) } };
  const { content, artifact } = await tool.invoke({ ...call, ...(files && { _injected_files: files }) });
  return { content, artifact };
}

const headers = (key = CODE_KEY) => ({ "X-API-Key": key, "User-Agent": "LibreChat/1.0" });
const ask = (path, key) => fetch(`${CODE_URL}/${path}`, { headers: headers(key) });

async function upload(name, content, key) {
  const form = new FormData();
  form.append("kind", "user");
  form.append("id", "user-1");
  form.append("file", new Blob([content]), name);
  return fetch(`${CODE_URL}/upload`, { method: "POST", headers: headers(key), body: form });
}

const reference = (file, session, name) => ({ id: file, storage_session_id: session, name, kind: "user", resource_id: "user-1" });

const checks = {
  async code_runs() {
    const { content } = await run("py", "import sys\nprint('out', sys.argv[1:])\nprint('err', file=sys.stderr)", { args: ["a b", "$HOME"] });
    assert.match(content, /stdout:\nout \['a b', '\$HOME'\]\n/);
    assert.match(content, /stderr:\nerr$/m);
    assert.match((await run("js", "console.log(6 * 7)")).content, /stdout:\n42$/m);
    assert.match((await run("bash", "echo $((40 + 2)); pwd")).content, /stdout:\n42\n\/home\/user$/m);
    assert.match((await run("c", "#include <stdio.h>\nint main(void) { puts(\"c\"); }")).content, /stdout:\nc$/m);
    assert.match((await run("py", "1 / 0")).content, /ZeroDivisionError[^]*exit status 1/);
  },

  async files_come_back() {
    const code = "open('/mnt/data/a.txt', 'w').write('a')\nimport os\nos.makedirs('d', exist_ok=True)\nopen('d/b.bin', 'wb').write(bytes(range(256)))\nopen('.hidden', 'w')\nopen('/tmp/scratch', 'w')";
    const { artifact } = await run("py", code);
    assert.deepEqual(artifact.files.map((file) => file.name).sort(), ["a.txt", "d/b.bin"]);
    for (const { id } of artifact.files) assert.match(id, /^[A-Za-z0-9_-]{21}$/);
    assert.match(artifact.session_id, /^[A-Za-z0-9_-]{21}$/);
    const binary = artifact.files.find((file) => file.name === "d/b.bin");
    const got = await ask(`download/${artifact.session_id}/${binary.id}?kind=user&id=user-1`);
    assert.deepEqual([...new Uint8Array(await got.arrayBuffer())], [...Array(256).keys()]);
    // Another run begins with them, and tells only what it has changed.
    const files = artifact.files.map((file) => reference(file.id, file.storage_session_id, file.name));
    const next = await run("py", "print(open('/mnt/data/a.txt').read(), len(open('d/b.bin', 'rb').read()))\nopen('a.txt', 'a').write('b')", { files });
    assert.match(next.content, /stdout:\na 256$/m);
    assert.deepEqual(next.artifact.files.map((file) => file.name), ["a.txt"]);
    assert.notEqual(next.artifact.session_id, artifact.session_id);
    // The one before is as it was.
    const first = artifact.files.find((file) => file.name === "a.txt");
    assert.equal(await (await ask(`download/${artifact.session_id}/${first.id}`)).text(), "a");
    const failed = await run("py", "open('/mnt/data/x.txt', 'w')\nraise SystemExit(1)");
    assert.equal(failed.artifact.files, undefined);
  },

  async uploads_are_kept() {
    const sent = await upload("data.csv", "x\n1\n2\n");
    const { message, storage_session_id: session, files: [{ fileId, filename }] } = await sent.json();
    assert.deepEqual([message, filename], ["success", "data.csv"]);
    const { lastModified } = await (await ask(`sessions/${session}/objects/${fileId}?kind=user&id=user-1`)).json();
    assert.ok(Math.abs(Date.now() - new Date(lastModified)) < 60_000);
    const [listed] = await (await ask(`files/${session}?detail=full`)).json();
    assert.deepEqual([listed.name, listed.metadata["original-filename"]], [`${session}/${fileId}`, "data.csv"]);
    const { content } = await run("py", "print(open('/mnt/data/data.csv').read().split())", { files: [reference(fileId, session, "data.csv")] });
    assert.match(content, /\['x', '1', '2'\]/);
    for (const name of ["../x", "/etc/x"]) assert.equal((await upload(name, "x")).status, 400);
  },

  async runs_are_apart() {
    const first = await run("bash", "echo secret > /mnt/data/secret.txt; echo x > /tmp/left");
    const { content } = await run("bash", "ls -A /mnt/data/ /tmp /tmp/run; cat /mnt/data/secret.txt", { session_id: first.artifact.session_id });
    assert.doesNotMatch(content, /secret\n|left/);
    await assert.rejects(run("py", "1", { files: [reference("0".repeat(21), first.artifact.session_id, "x")] }), /Execution error/);
  },

  async tokens_name_the_user() {
    const bearer = (changes) => ({ auth: { Authorization: `Bearer ${token(changes)}` } });
    assert.match((await run("py", "print('by token')", bearer())).content, /by token/);
    for (const wrong of [{ aud: "codeapi" }, { exp: 1 }, { iss: "librechat" }]) {
      await assert.rejects(run("py", "1", bearer(wrong)), /not authorized/);
    }
  },

  async others_are_refused() {
    const { artifact } = await run("bash", "echo secret > /mnt/data/secret.txt");
    const [{ id, storage_session_id: session }] = artifact.files;
    for (const [key, status] of [[OTHER_KEY, 404], ["wrong", 401]]) {
      for (const path of [`download/${session}/${id}`, `sessions/${session}/objects/${id}`, `files/${session}`]) {
        assert.equal((await ask(path, key)).status, status, path);
      }
    }
    await assert.rejects(run("py", "1", { key: "wrong" }), /not authorized/);
    await assert.rejects(run("py", "1", { key: OTHER_KEY, files: [reference(id, session, "secret.txt")] }), /Execution error/);
    assert.equal((await fetch(`${CODE_URL}/exec`, { method: "POST", body: "{\"lang\":\"py\",\"code\":\"1\"}" })).status, 401);
    assert.equal((await upload("x", "x", "wrong")).status, 401);
    await assert.rejects(run("d", "1"), /rejected/);
    await assert.rejects(run("py", "1", { executionProfile: "stateful" }), /rejected|supported/);
  },
};

let failed = false;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    failed = true;
    console.log(`failed ${name}: ${error}`);
    console.error(error);
  }
}
process.exit(failed ? 1 : 0);
