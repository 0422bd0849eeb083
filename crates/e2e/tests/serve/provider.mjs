// An OpenID provider (oidc-provider of npm) for one audience, on the loopback.
//
// Reads NODE_MODULES from the environment. Prints its address once it can be asked. Its clients and
// what their tokens say are CLIENTS below.

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const at = pathToFileURL(`${process.env.NODE_MODULES}/oidc-provider/lib/index.js`);
const { default: Provider } = await import(at);

// What each client's tokens say besides.
const CLIENTS = {
  ana: { groups: ["staff", "developers"], org: "team-a", preferred_username: "ana" },
  ben: { groups: "developers", org: "team-b", email: "ben@example.com", email_verified: true },
  admin: { groups: ["atoll-admins"], org: "team-a" },
  guest: { groups: ["guests"], org: "team-a" },
  lost: { groups: ["developers"], org: "no tenant" },
};

// Keys of its own, one for each algorithm.
const keys = [
  ["RS256", generateKeyPairSync("rsa", { modulusLength: 2048 })],
  ["ES256", generateKeyPairSync("ec", { namedCurve: "P-256" })],
].map(([alg, pair]) => ({ ...pair.privateKey.export({ format: "jwk" }), alg, kid: alg, use: "sig" }));

const server = createServer();
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  jwks: { keys },
  clients: Object.keys(CLIENTS).map((client_id) => ({
    client_id,
    client_secret: `secret of ${client_id}`,
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
    token_endpoint_auth_method: "client_secret_post",
  })),
  scopes: ["openid", "atoll:read", "atoll:exec"],
  extraTokenClaims: (_, token) => CLIENTS[token.clientId],
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource, client) => ({
        scope: "atoll:read atoll:exec",
        audience: resource.slice("urn:".length),
        accessTokenFormat: "jwt",
        accessTokenTTL: 600,
        jwt: { sign: { alg: client.clientId === "ben" ? "ES256" : "RS256" } },
      }),
    },
  },
});
server.on("request", provider.callback());
console.log(`issuer ${issuer}`);
