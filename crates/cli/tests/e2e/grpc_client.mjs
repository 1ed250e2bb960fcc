// Calls methods with the official client of gRPC for JavaScript, and prints what it says became of each. The arguments are the
// directory of its package, and the object that `grpc_client.py` describes.

import net from "node:net";
import { createRequire } from "node:module";

const grpc = createRequire(process.argv[2] + "/")("@grpc/grpc-js");

const wanted = JSON.parse(process.argv[3]);
const same = (bytes) => bytes;

function flood(address) {
  const requests = Buffer.from("GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100));
  const stream = net.connect(address);
  const send = () => {
    while (!stream.destroyed && stream.write(requests)) {
      // Until the socket is full.
    }
  };
  stream.on("connect", send).on("drain", send).on("data", () => {}).on("error", () => {});
  return stream;
}

async function flooded(address, ask) {
  const streams = Array.from({ length: 6 }, () => flood(address));
  const end = Date.now() + 30_000;
  let said = await ask();
  while (said.code === "OK" && Date.now() < end) {
    said = await ask();
  }
  for (const stream of streams) {
    stream.destroy();
  }
  return said;
}

function ended(error) {
  if (!error) {
    return { code: "OK", message: "", has_details: false };
  }
  const details = error.metadata?.get("grpc-status-details-bin") ?? [];
  return { code: grpc.status[error.code], message: error.details, has_details: details.length > 0 };
}

function asked(client, call) {
  const metadata = new grpc.Metadata();
  if (call.token) {
    metadata.set("authorization", `Bearer ${call.token}`);
  }
  const message = "length" in call ? Buffer.alloc(call.length, 0xff) : Buffer.from(call.message, "hex");
  const options = { deadline: Date.now() + 60_000 };
  return new Promise((resolve) => {
    const over = (error) => resolve(ended(error));
    if (call.flow === "unary") {
      client.makeUnaryRequest(call.path, same, same, message, metadata, options, over);
      return;
    }
    const stream =
      call.flow === "server"
        ? client.makeServerStreamRequest(call.path, same, same, message, metadata, options)
        : client.makeBidiStreamRequest(call.path, same, same, metadata, options);
    stream.on("data", () => over(null)).on("error", over).on("end", () => over(null));
    if (call.flow === "both") {
      stream.write(message);
    }
  });
}

const answers = [];
for (const call of wanted.calls) {
  const options = { "grpc.enable_retries": 0, "grpc.enable_http_proxy": 0 };
  if (call.authority) {
    options["grpc.default_authority"] = call.authority;
  }
  const client = new grpc.Client(wanted.target, grpc.credentials.createInsecure(), options);
  const ask = () => asked(client, call);
  answers.push(call.flood ? await flooded(call.flood, ask) : await ask());
  client.close();
}
process.stdout.write(JSON.stringify(answers), () => process.exit(0));
