// A program of Node's that queries by TLS and without, with a parameter and in a pool.
const { Client, Pool } = require(process.argv[2]);

(async () => {
  for (const ssl of [false, true]) {
    const client = new Client({ ssl });
    await client.connect();
    const found = await client.query("select current_user as a, $1::text as b", ["given"]);
    console.log(found.rows[0].a, found.rows[0].b, ssl);
    await client.end();
  }
  const pool = new Pool({ max: 4, ssl: true });
  const asked = Array.from({ length: 20 }, (_, at) => pool.query("select $1::int as a", [at]));
  const all = await Promise.all(asked);
  console.log(all.reduce((sum, one) => sum + one.rows[0].a, 0));
  await pool.end();
  const other = new Client({ database: "other" });
  await other.connect().catch((error) => console.log(error.code, error.hint.slice(0, 14)));
})();
