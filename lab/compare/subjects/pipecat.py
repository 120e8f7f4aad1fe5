# Pipecat's SmallWebRTCTransport and its service for Gemini Live, in one process, as in its examples: no turn detection but Gemini's.
# name: Pipecat
# caller: smallwebrtc
# cannot beep.sip: telephones come by a provider of SIP
import asyncio
import json
import os
import socket
import sys
from importlib.metadata import version

if sys.argv[1:] == ["version"]:
    print("pipecat-ai", version("pipecat-ai") + ", aiortc", version("aiortc") + ", google-genai", version("google-genai") + ", Python", sys.version.split()[0])
    sys.exit()

import aiohttp
import aioice.ice
import uvicorn
from fastapi import FastAPI, WebSocket
from google.genai.types import HttpOptions
from loguru import logger
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import LLMRunFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.services.google.gemini_live.llm import GeminiLiveLLMService
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.request_handler import SmallWebRTCRequest, SmallWebRTCRequestHandler
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport

logger.remove()
logger.add(sys.stderr, level="WARNING")
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]  # which aioice leaves out; the callers are there
tools = ToolsSchema(standard_tools=[FunctionSchema("lookup", "Looks something up.", {}, [])])
running = set()


async def lookup(params):
    async with aiohttp.ClientSession() as http, http.post(os.environ["COMPARE_TOOL"]) as response:
        await params.result_callback(await response.json())


async def talk(transport, rate_in=16_000, rate_out=24_000):
    service = GeminiLiveLLMService(
        api_key="anything",
        http_options=HttpOptions(base_url=os.environ["COMPARE_MODEL_TLS"]),
        system_instruction=os.environ["COMPARE_INSTRUCTION"],
        tools=tools,
    )
    service.register_function("lookup", lookup)
    users, assistants = LLMContextAggregatorPair(LLMContext())
    task = PipelineTask(
        Pipeline([transport.input(), users, service, transport.output(), assistants]),
        params=PipelineParams(audio_in_sample_rate=rate_in, audio_out_sample_rate=rate_out),
        cancel_on_idle_timeout=False,
    )

    @transport.event_handler("on_client_connected")
    async def connected(*_):
        await task.queue_frames([LLMRunFrame()])  # with nothing to say yet: Gemini listens

    @transport.event_handler("on_client_disconnected")
    async def gone(*_):
        await task.cancel()

    await PipelineRunner(handle_sigint=False).run(task)


app, handler = FastAPI(), SmallWebRTCRequestHandler()


@app.post("/api/offer")
async def offer(body: dict):
    async def begin(connection):
        transport = SmallWebRTCTransport(connection, TransportParams(audio_in_enabled=True, audio_out_enabled=True))
        running.add(talking := asyncio.create_task(talk(transport)))
        talking.add_done_callback(running.discard)

    return await handler.handle_web_request(SmallWebRTCRequest(sdp=body["sdp"], type=body["type"]), begin)


@app.websocket("/ws")
async def page(socket: WebSocket):
    await socket.accept()
    params = FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, serializer=ProtobufFrameSerializer())
    await talk(FastAPIWebsocketTransport(socket, params))


@app.websocket("/twilio")
async def telephone(socket: WebSocket):
    await socket.accept()
    await socket.receive_text()  # connected
    start = json.loads(await socket.receive_text())["start"]
    serializer = TwilioFrameSerializer(start["streamSid"], start["callSid"], params=TwilioFrameSerializer.InputParams(auto_hang_up=False))
    params = FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, serializer=serializer)
    await talk(FastAPIWebsocketTransport(socket, params), 8_000, 8_000)


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"listening url=http://127.0.0.1:{sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)


listener = socket.create_server(("127.0.0.1", 0))
Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
