// The HTTP proxy of Anthropic's sandbox runtime, with a filter that lets everything pass. Its port is written to a file.
import { renameSync, writeFileSync } from 'node:fs';
import { createHttpProxyServer } from './node_modules/@anthropic-ai/sandbox-runtime/dist/sandbox/http-proxy.js';

const server = createHttpProxyServer({ filter: () => true });
server.listen(0, '127.0.0.1', () => {
  const file = process.argv[2];
  writeFileSync(`${file}.new`, String(server.address().port));
  renameSync(`${file}.new`, file);
});
