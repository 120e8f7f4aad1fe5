"""Pipecat's service against the gateway: python pipecat_client.py URL. It talks for ten turns, and prints what it got as JSON."""
import asyncio
import json
import math
import struct
import sys

from loguru import logger
from pipecat.frames.frames import EndFrame, ErrorFrame, Frame, InputAudioRawFrame, LLMRunFrame, TTSAudioRawFrame, TTSTextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

logger.remove()
logger.add(sys.stderr, level="WARNING")
RATE = 24_000
TURNS = 10


class Ear(FrameProcessor):
    """What comes of the service."""

    def __init__(self):
        super().__init__()
        self.text, self.seconds, self.errors = "", 0.0, []

    async def process_frame(self, frame: Frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSTextFrame):
            self.text += frame.text
        elif isinstance(frame, TTSAudioRawFrame):
            self.seconds += len(frame.audio) / 2 / frame.sample_rate
        elif isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)
        await self.push_frame(frame, direction)

    async def until(self, text, times):
        async with asyncio.timeout(15):
            while self.text.count(text) < times:
                await asyncio.sleep(0.05)


class Errors(FrameProcessor):
    """Errors go upstream."""

    def __init__(self, ear):
        super().__init__()
        self.ear = ear

    async def process_frame(self, frame: Frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, ErrorFrame):
            self.ear.errors.append(frame.error)
        await self.push_frame(frame, direction)


async def main():
    service = OpenAIRealtimeLLMService(api_key="anything", base_url=sys.argv[1].replace("http", "ws", 1) + "/v1/realtime")
    ear = Ear()
    users, assistants = LLMContextAggregatorPair(LLMContext([{"role": "user", "content": "Hello"}]))
    task = PipelineTask(Pipeline([Errors(ear), users, service, ear, assistants]), params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE))
    running = asyncio.create_task(PipelineRunner(handle_sigint=False).run(task))
    await task.queue_frames([LLMRunFrame()])
    await ear.until("Hello", 1)
    samples = [int(9_000 * math.sin(2 * math.pi * 440 * i / RATE)) for i in range(RATE // 2)] + [0] * RATE
    for turn in range(1, TURNS):
        for i in range(0, len(samples), RATE // 50):
            piece = samples[i:i + RATE // 50]
            await task.queue_frames([InputAudioRawFrame(audio=struct.pack(f"<{len(piece)}h", *piece), sample_rate=RATE, num_channels=1)])
        await ear.until("speech.", turn)
        await asyncio.sleep(0.3)
    await task.queue_frames([EndFrame()])
    await running
    print(json.dumps({"text": ear.text, "seconds": ear.seconds, "errors": ear.errors}))


asyncio.run(main())
