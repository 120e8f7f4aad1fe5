# LiveKit's server and an agent of LiveKit Agents with the plugin for Gemini Live. No turn detection but Gemini's.
# name: LiveKit
# caller: livekit
# cannot beep.websocket beep.twilio slow.heard slow.beside slow.memory: it has no such door
# cannot beep.sip: telephones come by another server of LiveKit's, which wants a Redis
import os
import socket
import subprocess
import sys
from importlib.metadata import version

SERVER = os.environ["COMPARE_CACHE"] + "/bin/server"
if sys.argv[1:] == ["version"]:
    print(subprocess.check_output([SERVER, "--version"], text=True).strip() + ", livekit-agents", version("livekit-agents") + ", livekit-plugins-google",
          version("livekit-plugins-google") + ", livekit", version("livekit") + ", google-genai", version("google-genai") + ", Python", sys.version.split()[0])
    sys.exit()

import asyncio
import json

import aiohttp
from google.genai import types
from livekit.agents import Agent, AgentServer, AgentSession, JobContext, function_tool
from livekit.plugins import google

KEY, SECRET = "bench", "only-for-this-machine-and-this-hour-0123456789"


def free(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@function_tool
async def lookup() -> str:
    """Looks something up."""
    async with aiohttp.ClientSession() as http, http.post(os.environ["COMPARE_TOOL"]) as response:
        return await response.text()


async def talk(job: JobContext):
    model = google.realtime.RealtimeModel(api_key="anything", http_options=types.HttpOptions(base_url=os.environ["COMPARE_MODEL_TLS"]))
    session = AgentSession(llm=model)
    await session.start(agent=Agent(instructions=os.environ["COMPARE_INSTRUCTION"], tools=[lookup]), room=job.room)


async def main():
    port = free()
    config = os.environ["COMPARE_FOLDER"] + "/livekit.json"  # JSON is YAML
    with open(config, "w") as f:
        json.dump({"port": port, "bind_addresses": ["127.0.0.1"], "keys": {KEY: SECRET}, "logging": {"level": "warn"},
                   "rtc": {"udp_port": free(socket.SOCK_DGRAM), "tcp_port": free(), "use_external_ip": False, "enable_loopback_candidate": True}}, f)
    media = subprocess.Popen([SERVER, "--config", config])
    agents = AgentServer(ws_url=f"ws://127.0.0.1:{port}", api_key=KEY, api_secret=SECRET, host="127.0.0.1", port=0, load_fnc=lambda *_: 0.1,  # the machine is full of callers
                         initialize_process_timeout=60)
    agents.rtc_session(talk)
    agents.on("worker_registered", lambda *_: print(f"ready url=http://{KEY}:{SECRET}@127.0.0.1:{port}", file=sys.stderr, flush=True))
    try:
        await agents.run()
    finally:
        media.terminate()


if __name__ == "__main__":
    asyncio.run(main())
