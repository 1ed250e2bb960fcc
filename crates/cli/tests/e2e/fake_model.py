"""A model that says what a script tells it to, on loopback, and the agent that talks to it.

    fake_model.py SCRIPT LOG PROGRAM ARGUMENT...
    fake_model.py SCRIPT LOG --serve ADDRESS CERTIFICATE

SCRIPT is a JSON list: a string is said, an object {"name", "input"} is a tool call. The results of tool calls that the agent
reports go to LOG, one JSON value per line. `{port}` in the script, in arguments and in the environment becomes the port.
Speaks the streaming form of Anthropic's Messages and of OpenAI's Responses. Whoever gets `/reached` is noted in LOG.visits,
and the keys that were sent in LOG.keys. The second form is the model alone, with TLS, at port 9443.
"""

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading

LOG = open(sys.argv[2], "w")
VISITS = open(sys.argv[2] + ".visits", "w")
KEYS = open(sys.argv[2] + ".keys", "w")
LOCK = threading.Lock()
STEP = 0
SEEN = set()


def next_step():
    global STEP
    with LOCK:
        step = SCRIPT[STEP] if STEP < len(SCRIPT) else "done"
        STEP += 1
        return STEP, step


def record(call, output):
    with LOCK:
        if call not in SEEN:
            SEEN.add(call)
            LOG.write(json.dumps({"call": call, "output": output}) + "\n")
            LOG.flush()


def anthropic(request):
    for message in request["messages"]:
        if isinstance(message["content"], list):
            for block in message["content"]:
                if block.get("type") == "tool_result":
                    record(block["tool_use_id"], block["content"])
    if not request.get("tools"):
        number, step = 0, "ok"
    else:
        number, step = next_step()
    if isinstance(step, str):
        block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": step}, "end_turn"
    else:
        block = {"type": "tool_use", "id": "toolu_%d" % number, "name": step["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step["input"])}
        stop = "tool_use"
    message = {"id": "msg_%d" % number, "type": "message", "role": "assistant", "model": "fake", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def openai(request):
    for item in request["input"]:
        if item.get("type") == "function_call_output":
            record(item["call_id"], item["output"])
    number, step = next_step()
    if isinstance(step, str):
        content = [{"type": "output_text", "text": step}]
        item = {"type": "message", "role": "assistant", "id": "msg_%d" % number, "content": content}
    else:
        item = {"type": "function_call", "call_id": "call_%d" % number, "name": step["name"]}
        item["arguments"] = json.dumps(step["input"])
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None}
    usage["total_tokens"] = 2
    name = "resp_%d" % number
    done = {"id": name, "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": name}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        KEYS.write(str(self.headers.get("x-api-key") or self.headers.get("authorization")) + "\n")
        KEYS.flush()
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        speak = {"/v1/messages": anthropic, "/v1/responses": openai}.get(path)
        if speak is None:
            return self.answer(404, "application/json", b"{}")
        events = speak(json.loads(body))
        text = "".join("event: %s\ndata: %s\n\n" % (event["type"], json.dumps(event)) for event in events)
        return self.answer(200, "text/event-stream", text.encode())

    def do_GET(self):
        if self.path.startswith("/reached"):
            upgrade = self.headers.get("upgrade")
            who = " as %s with %s" % (upgrade, self.headers.get("authorization")) if upgrade else ""
            VISITS.write(self.path + who + "\n")
            VISITS.flush()
            return self.answer(200, "text/plain", b"you reached it")
        return self.answer(404, "application/json", b"{}")

    do_HEAD = do_GET

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if sys.argv[3] == "--serve":
    ADDRESS, CERTIFICATE = sys.argv[4:]
    SCRIPT = json.load(open(sys.argv[1]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server = http.server.ThreadingHTTPServer((ADDRESS, 9443), Model)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)
    server.serve_forever()

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
port = str(server.server_port)
SCRIPT = json.loads(open(sys.argv[1]).read().replace("{port}", port))
threading.Thread(target=server.serve_forever, daemon=True).start()
arguments = [word.replace("{port}", port) for word in sys.argv[3:]]
environment = {name: value.replace("{port}", port) for name, value in os.environ.items()}
done = subprocess.run(arguments, env=environment, stdin=subprocess.DEVNULL, timeout=100)
sys.exit(done.returncode)
