// The official clients of the Model Context Protocol for TypeScript:
//
//   node mcp_client.mjs PACKAGES PACKAGE MODE ANSWER stdio SERVER ARGUMENT...
//   node mcp_client.mjs PACKAGES PACKAGE MODE ANSWER http URL
//
// PACKAGE is `sdk` (the era with a handshake) or `client` (MODE `legacy` or `auto`). For HTTP the token is in TOKEN; SOCKET is the
// Unix socket to go by, if there is one. Prints one JSON object: what was offered, and what came of some calls. Results are checked
// by the client against the schemas that the server has given.

import { existsSync } from "node:fs";
import http from "node:http";
import { pathToFileURL } from "node:url";

const [packages, name, mode, answer, way, ...server] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${packages}/node_modules/@modelcontextprotocol/${file}`));

async function parts() {
  if (name === "sdk") {
    const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }, types] = await Promise.all(
      ["client/index.js", "client/stdio.js", "client/streamableHttp.js", "types.js"].map((file) => load(`sdk/dist/esm/${file}`)),
    );
    return { Client, StdioClientTransport, StreamableHTTPClientTransport, elicitation: types.ElicitRequestSchema };
  }
  const [main, stdio] = await Promise.all([load("client/dist/index.mjs"), load("client/dist/stdio.mjs")]);
  return { ...main, ...stdio, elicitation: "elicitation/create" };
}

// What `fetch` has no word for: a request by way of a Unix socket.
function fetchBySocket(url, init = {}) {
  const { pathname, search } = new URL(url);
  const headers = Object.fromEntries(new Headers(init.headers));
  return new Promise((resolve, reject) => {
    const request = http.request(
      { socketPath: process.env.SOCKET, path: pathname + search, method: init.method ?? "GET", headers, signal: init.signal },
      (response) => {
        const stream = new ReadableStream({
          start(controller) {
            response.on("data", (bytes) => controller.enqueue(new Uint8Array(bytes)));
            response.on("end", () => controller.close());
            response.on("error", (error) => controller.error(error));
          },
          cancel: () => response.destroy(),
        });
        const bare = [202, 204].includes(response.statusCode);
        resolve(new Response(bare ? null : stream, { status: response.statusCode, headers: response.headers }));
      },
    );
    request.on("error", reject);
    request.end(init.body);
  });
}

function transport({ StdioClientTransport, StreamableHTTPClientTransport }) {
  if (way === "stdio") {
    const [command, ...args] = server;
    return new StdioClientTransport({ command, args, env: { ...process.env }, cwd: process.cwd() });
  }
  const requestInit = { headers: { Authorization: `Bearer ${process.env.TOKEN}` } };
  const fetch = process.env.SOCKET ? fetchBySocket : undefined;
  return new StreamableHTTPClientTransport(new URL(server[0]), { requestInit, fetch });
}

const asked = [];
const seen = [];
const loaded = await parts();
const options = { capabilities: { elicitation: { form: {} } } };
if (name === "client") options.versionNegotiation = { mode };
const client = new loaded.Client({ name: "test", version: "1" }, options);
client.setRequestHandler(loaded.elicitation, async ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { answer } };
});
const line = transport(loaded);
await client.connect(line);

const call = async (tool, input, options) => {
  const params = { name: tool, arguments: input };
  return name === "sdk" ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
const done = {
  version: name === "sdk" ? (line.protocolVersion ?? null) : client.getNegotiatedProtocolVersion(),
  tools: (await client.listTools()).tools.map((tool) => tool.name),
};
done.exec = (await call("exec", { command: "echo out; exit 3" })).structuredContent;
done.slow = (await call("exec", { command: "sleep 2.5" }, { onprogress: ({ progress }) => seen.push(progress) })).isError ?? false;
await call("write_file", { path: "a.txt", content: "one\n" });
done.read = (await call("read_file", { path: "a.txt" })).structuredContent.content;
const outside = await call("write_file", { path: "/etc/x", content: "x" });
done.outside = [outside.isError, outside.structuredContent.denial.rule];
done.explain = (await call("explain", { command: "ls" })).structuredContent.decision;
done.asked = (await call("exec", { command: "mkdir made" })).structuredContent.ended;
const enough = new AbortController();
const left = call("exec", { command: "touch begun; while :; do sleep 0.1; done; touch ended" }, { signal: enough.signal });
while (!existsSync("begun")) await new Promise((resolve) => setTimeout(resolve, 20));
enough.abort("enough");
done.cancelled = await left.then(() => "done", () => "cancelled");
done.after = (await call("exec", { command: "echo next" })).structuredContent.stdout;
done.progress = seen.length;
done.questions = asked;
await client.close();
console.log(JSON.stringify(done));
