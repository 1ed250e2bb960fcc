"""The official client of the Model Context Protocol for Python, in one era: mcp_client.py MODE ANSWER SERVER ARGUMENT...

Prints one JSON object: what was offered, and what came of some calls. Results are checked by the client against the schemas
that the server has given.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

MODE, ANSWER, *SERVER = sys.argv[1:]
asked = []


async def elicit(_context, params):
    asked.append(params.message)
    return ElicitResult(action="accept", content={"answer": ANSWER})


async def main():
    server = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env=dict(os.environ), cwd=os.getcwd())
    seen = []
    async with Client(server, mode=MODE, elicitation_callback=elicit) as client:
        tools = (await client.list_tools()).tools
        done = {"version": client.protocol_version, "tools": [tool.name for tool in tools]}

        async def progress(amount, *_):
            seen.append(amount)

        run = await client.call_tool("exec", {"command": "echo out; exit 3"})
        done["exec"] = run.structured_content
        done["slow"] = (await client.call_tool("exec", {"command": "sleep 2.5"}, progress_callback=progress)).is_error
        await client.call_tool("write_file", {"path": "a.txt", "content": "one\n"})
        done["read"] = (await client.call_tool("read_file", {"path": "a.txt"})).structured_content["content"]
        outside = await client.call_tool("write_file", {"path": "/etc/x", "content": "x"})
        done["outside"] = [outside.is_error, outside.structured_content["denial"]["rule"]]
        done["explain"] = (await client.call_tool("explain", {"command": "ls"})).structured_content["decision"]
        done["asked"] = (await client.call_tool("exec", {"command": "mkdir made"})).structured_content["ended"]
    done["progress"], done["questions"] = len(seen), asked
    print(json.dumps(done))


asyncio.run(main())
