// The same with AWS's library for JavaScript. Arguments: where its packages are, and a file.
import { createReadStream, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [packages, file] = process.argv.slice(2);
const require = createRequire(packages + "/");
const { S3Client, PutObjectCommand, GetObjectCommand } = require("@aws-sdk/client-s3");
const { Upload } = require("@aws-sdk/lib-storage");
const own = new S3Client({ forcePathStyle: true });
const big = readFileSync(file);

const put = (Key, Body) => own.send(new PutObjectCommand({ Bucket: "bucket", Key, Body }));
const got = async (Key, Range) => {
  const answer = await own.send(new GetObjectCommand({ Bucket: "bucket", Key, Range }));
  return Buffer.from(await answer.Body.transformToByteArray());
};
const expect = (name, found, expected) =>
  console.log("node", name, found.equals(expected) ? "right" : "WRONG: " + found.subarray(0, 200));

await put("text", "some text");
expect("text", await got("text"), Buffer.from("some text"));
await put("stream-of-node", createReadStream(file));
expect("stream", await got("stream-of-node"), big);
const Body = createReadStream(file);
await new Upload({ client: own, params: { Bucket: "bucket", Key: "parts-of-node", Body } }).done();
expect("parts", await got("parts-of-node"), big);
expect("range", await got("parts-of-node", "bytes=6000000-6000099"), big.subarray(6000000, 6000100));
