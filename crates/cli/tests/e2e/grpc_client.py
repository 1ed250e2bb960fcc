"""Calls methods with the official client of gRPC for Python, and prints what it says became of each.

The only argument is an object of JSON with `target` and `calls`. A call has `path`, `flow` (unary, server, both), `message` (hex) or
`length` (so many bytes 0xff), and may have `token`, `authority` and `flood`: the address of the socket on which requests of the same
process are sent meanwhile, until the method is refused.
"""

import json
import socket
import sys
import threading
import time

import grpc

wanted = json.loads(sys.argv[1])


def flood(address, over):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(address)

        def read():
            while stream.recv(65536):
                pass

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while not over.is_set():
            stream.sendall(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n" * 100)
        stream.shutdown(socket.SHUT_RDWR)


def flooded(address, ask):
    over = threading.Event()
    for _ in range(6):
        threading.Thread(target=flood, args=(address, over), daemon=True).start()
    end = time.monotonic() + 30
    said = ask()
    while said["code"] == "OK" and time.monotonic() < end:
        said = ask()
    over.set()
    return said


def asked(channel, call):
    metadata = [("authorization", "Bearer " + call["token"])] if "token" in call else []
    message = b"\xff" * call["length"] if "length" in call else bytes.fromhex(call["message"])
    try:
        if call["flow"] == "unary":
            channel.unary_unary(call["path"])(message, metadata=metadata, timeout=60)
        elif call["flow"] == "server":
            next(iter(channel.unary_stream(call["path"])(message, metadata=metadata, timeout=60)), None)
        else:
            next(iter(channel.stream_stream(call["path"])(iter([message]), metadata=metadata, timeout=60)), None)
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        return {
            "code": error.code().name,
            "message": error.details(),
            "has_details": "grpc-status-details-bin" in trailers,
        }
    return {"code": "OK", "message": "", "has_details": False}


answers = []
for call in wanted["calls"]:
    options = [("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0)]
    # By default this client sends the path of a Unix socket as the name of the host, which HTTP/2 does not allow.
    default = "ringfence" if wanted["target"].startswith("unix:") else None
    authority = call.get("authority", default)
    if authority:
        options.append(("grpc.default_authority", authority))
    with grpc.insecure_channel(wanted["target"], options=options) as channel:
        if "flood" in call:
            answers.append(flooded(call["flood"], lambda: asked(channel, call)))
        else:
            answers.append(asked(channel, call))
print(json.dumps(answers))
