// Drives tools by the official SDK of MCP for TypeScript (npm `@modelcontextprotocol/sdk`), over HTTP.
//
// Reads MCP_URL, MCP_KEY, and MODULES: the directory whose node_modules holds the SDK. Prints
// `ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const require = createRequire(resolve(process.env.MODULES) + '/')
const { Client } = require('@modelcontextprotocol/sdk/client/index.js')
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js')

const text = (result) => result.content.map((one) => one.text).join('')
const connect = async (key = process.env.MCP_KEY, sessionId = undefined) => {
  const client = new Client({ name: 'test', version: '1' })
  const requestInit = { headers: { Authorization: `Bearer ${key}` } }
  const url = new URL(process.env.MCP_URL)
  const transport = new StreamableHTTPClientTransport(url, { requestInit, sessionId })
  await client.connect(transport)
  return { client, transport }
}

const CHECKS = {
  async 'tools are listed and called' () {
    const { client, transport } = await connect()
    const { tools } = await client.listTools()
    assert.ok(tools.some((tool) => tool.name === 'upper'), JSON.stringify(tools))
    const result = await client.callTool({ name: 'upper', arguments: { text: 'abc' } })
    assert.equal(text(result), 'ABC')
    await transport.terminateSession()
    await client.close()
  },
  async 'a wrong key is refused' () {
    await assert.rejects(connect('e2b_' + '0'.repeat(40)), /401|not valid/)
  },
  async 'a session is good for nobody else' () {
    const { client, transport } = await connect()
    const headers = {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'Mcp-Session-Id': transport.sessionId,
      Authorization: `Bearer ${process.env.OTHER_KEY}`
    }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} })
    const ask = (headers) => fetch(process.env.MCP_URL, { method: 'POST', headers, body })
    assert.equal((await ask(headers)).status, 404)
    const own = await ask({ ...headers, Authorization: `Bearer ${process.env.MCP_KEY}` })
    assert.equal(own.status, 200)
    await own.text()
    const ended = await fetch(process.env.MCP_URL, { method: 'DELETE', headers })
    assert.equal(ended.status, 404)
    await client.close()
  }
}

let failed = false
for (const [name, check] of Object.entries(CHECKS)) {
  try {
    await check()
    console.log(`ok ${name}`)
  } catch (error) {
    failed = true
    console.log(`failed ${name}: ${error.stack}`)
  }
}
process.exit(failed ? 1 : 0)
