// Puts a key into each request to a server: for clients that cannot. Arguments: the server, the key.
// Prints the port that it listens at.
import http from 'node:http'

const [, , server, key] = process.argv
const target = new URL(server)
const listener = http.createServer((request, answer) => {
  const headers = { ...request.headers, authorization: `Bearer ${key}` }
  const { method, url: path } = request
  const options = { host: target.hostname, port: target.port, method, path, headers }
  const asked = http.request(options, (got) => {
    answer.writeHead(got.statusCode, got.headers)
    got.pipe(answer)
  })
  asked.on('error', () => answer.destroy())
  answer.on('close', () => asked.destroy())
  request.pipe(asked)
})
listener.listen(0, '127.0.0.1', () => console.log(`listening ${listener.address().port}`))
