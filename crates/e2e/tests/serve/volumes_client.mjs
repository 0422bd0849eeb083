// Drives the volumes of an unmodified E2B SDK (npm `e2b`) against a running server.
//
// Reads E2B_MODULES, E2B_API_URL, E2B_SANDBOX_URL, E2B_VOLUME_API_URL and E2B_API_KEY. Prints `ok NAME`
// or `failed NAME: why`, and exits 1 if it failed.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const require = createRequire(`${process.env.E2B_MODULES}/`)
const { Sandbox, Volume } = require('e2b')

async function volumes_work() {
  const volume = await Volume.create(`node-${process.pid}`)
  const sandbox = await Sandbox.create({ volumeMounts: { '/mnt/data': volume } })
  try {
    await sandbox.files.write('/mnt/data/inside.txt', 'inside')
    assert.equal(await volume.readFile('/inside.txt'), 'inside')
    const entry = await volume.writeFile('/a.txt', new Blob(['outside']))
    assert.equal(entry.size, 7)
    assert.ok(entry.mtime instanceof Date, String(entry.mtime))
    const stream = new ReadableStream({
      start(controller) {
        for (let at = 0; at < 100; at++) controller.enqueue(new TextEncoder().encode('0123456789'))
        controller.close()
      },
    })
    assert.equal((await volume.writeFile('/stream', stream)).size, 1000)
    await volume.makeDir('/d/e', { force: true })
    assert.deepEqual((await volume.list('/')).map((one) => one.path), ['/a.txt', '/d', '/inside.txt', '/stream'])
    assert.equal((await sandbox.commands.run('cat /mnt/data/a.txt')).stdout, 'outside')
    assert.equal((await volume.updateMetadata('/a.txt', { mode: 0o600 })).mode, 0o600)
    await volume.remove('/d')
    assert.equal(await volume.exists('/d'), false)
    await assert.rejects(Volume.destroy(volume.volumeId), /in use/)
  } finally {
    await sandbox.kill()
  }
  assert.equal(await Volume.destroy(volume.volumeId), true)
  assert.equal(await Volume.destroy(volume.volumeId), false)
}

try {
  await volumes_work()
  console.log('ok volumes_work')
} catch (error) {
  console.error(error)
  console.log(`failed volumes_work: ${String(error).slice(0, 600)}`)
  process.exit(1)
}
